"""Driver processes of the simulated world, stepped one by one.

A driver is Spark's loop around `run_epoch`: a generator of effects. `Driver.step` performs one
effect (of an apply, one step of a transaction), so another driver, a crash or a fault can come
between any two. Called by `world`, which starts them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from sluicegate.protocol import coordinator
from sluicegate.protocol.coordinator import Settled
from sluicegate.protocol.effects import (
    Apply,
    AwaitSettled,
    Effect,
    Reach,
    Steps,
)
from sluicegate.protocol.errors import OffsetLogDiverged, StageFailed, StoreUnavailable
from sluicegate.protocol.ports import Ports, Staged
from sluicegate.protocol.record import Chunk, EpochRecord, EventTime, encode
from sluicegate.protocol.seal import Seal

from . import laws
from .setting import LOCAL, Call
from .sim_sinks import Fault, Late, SubSteps, cached_decode

if TYPE_CHECKING:
    from .world import World


class Driver:
    """One driver process: Spark's loop, stepped effect by effect. Also all of its ports."""

    seals = False
    """Whether it is a process that seals, rather than a driver."""

    def __init__(self, world: World, name: str, last: int | None) -> None:
        self.world, self.name, self.last = world, name, last
        self.ports = Ports(log=self, offsets=self, plan=self, sinks=self, clock=self)
        self.memory: dict[int, tuple[int, int]] = {}
        self.points: list[tuple[str, int, str]] = []
        self.fed: list[int] = []
        self.alive, self.rivalled, self.faulted = True, False, False
        self.error: BaseException | None = None
        self.fault: Fault = None
        self.history = 0
        self.attempts = 0
        self._behind: Settled | None = None
        self._caught_up: int | None = None
        self._in_doubt: set[int] = set()
        self._sub: SubSteps | None = None
        self.next_step = ""
        self._loop = self._spark()
        self._pending: Effect | None = None
        self._advance(lambda: next(self._loop))

    # --- stepping ---------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Say whether the next step waits for a lock that another holds."""
        return self.next_step == "blocked" and not self._lock_is_free()

    def _lock_is_free(self) -> bool:
        effect = self._pending
        assert isinstance(effect, Apply)
        return not any(self.world.sinks[effect.sink].parts[p].txn for p in effect.parts)

    def step(self, fault: Fault = None) -> None:
        """Perform the next step that others could see, and what follows it for this one alone."""
        if not self.alive:
            return
        self.fault, self.faulted = fault, self.faulted or fault is not None
        self._perform()
        while isinstance(self._pending, LOCAL):
            self.fault = None
            self._perform()
        laws.check(self.world)

    def crash(self) -> None:
        """Die between two steps; the server sees the connection close."""
        self.alive = False
        if self._sub is not None:
            self._sub.close()

    def _perform(self) -> None:
        try:
            if self._sub is not None:
                self.next_step = self._sub.send(self.fault)
                return
            assert self._pending is not None
            if isinstance(self._pending, Reach):
                self.points.append((self._pending.point, self._pending.epoch, self._pending.sink))
            reply = self._pending.perform(self.ports)
        except StopIteration:
            self._sub, reply = None, None
        except Exception as error:  # noqa: BLE001 - as `effects.drive` does
            self._sub = None
            raised = error
            self._remember(repr(error))
            self._advance(lambda: self._loop.throw(raised))
            return
        self._remember(repr(reply))
        self._advance(lambda: self._loop.send(reply))

    def _remember(self, reply: str) -> None:
        self.history = hash((self.history, type(self._pending), reply))

    def _advance(self, resume: Callable[[], Effect]) -> None:
        try:
            self._pending = resume()
        except StopIteration:
            self.alive, self._pending = False, None
            return
        except Exception as error:  # noqa: BLE001 - the driver dies of it; the laws judge it
            self.alive, self.error, self._pending = False, error, None
            laws.check_death(self.world, self, error)
            return
        self.next_step = type(self._pending).__name__
        if isinstance(self._pending, Call):
            self.next_step = self._pending.name
        if isinstance(self._pending, Apply):
            self._sub = self.world.sinks[self._pending.sink].applying(self._pending)
            self.next_step = next(self._sub)

    # --- Spark's loop -----------------------------------------------------------------------

    def _spark(self) -> Steps[None]:
        world = self.world
        if world.setting.overlap:  # without, no record asks for it
            late = yield from coordinator.owed(world.job)
            if late is not None:
                yield from coordinator.apply(world.job, late)
        latest: int = yield Call("look", lambda: max(world.offsets, default=-1))
        # a driver reads its logs once, at its start; from there on it believes its memory
        end = world.offsets.get(latest - 1, 0)
        if latest >= 0 and latest not in world.commits:
            self.memory[latest] = (end, world.offsets[latest])
            yield from self._epoch(latest)
        end = world.offsets.get(latest, 0)
        for epoch in self._epochs(latest + 1):
            self.memory[epoch] = (end, end + world.setting.size(self.name, epoch))
            yield Call("log offsets", lambda e=epoch: self._log_offsets(e))  # type: ignore[misc]
            yield from self._epoch(epoch)
            end = self.memory[epoch][1]
        behind = self._behind
        yield from self._catch_up()
        if behind is not None:
            yield from coordinator.finish(behind)

    def _epochs(self, first: int) -> Iterator[int]:
        epoch = first
        while self.last is None or epoch <= self.last:
            yield epoch
            epoch += 1

    def _epoch(self, epoch: int) -> Steps[None]:
        if self.world.setting.overlap:
            settled = yield from self._settle(epoch)
            yield from self._catch_up()
            self._behind = settled
        else:
            yield from self.world.setting.run_epoch(self.world.job, epoch)
        yield Call("log commit", lambda: self._log_commit(epoch))

    def _settle(self, epoch: int) -> Steps[Settled]:
        """Settle an epoch; the one before is applied as late as that is allowed.

        Staging is seen by nobody, so to apply late, or before Spark's commit as without overlap,
        and to crash in between, is all that can be told apart.
        """
        steps = coordinator.settle(self.world.job, epoch)
        resume: Callable[[], Effect] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                effect = resume()
            except StopIteration as end:
                settled: Settled = end.value
                return settled
            try:
                if isinstance(effect, AwaitSettled):
                    yield from self._catch_up()
                reply = yield effect
            except Exception as error:  # noqa: BLE001 - as `effects.drive` does
                resume = lambda e=error: steps.throw(e)  # type: ignore[misc] # noqa: E731
            else:
                resume = lambda r=reply: steps.send(r)  # type: ignore[misc] # noqa: E731

    def _catch_up(self) -> Steps[None]:
        behind, self._behind = self._behind, None
        if behind is not None:
            yield from coordinator.apply(self.world.job, behind)
            self._caught_up = behind.record.epoch

    def _log_offsets(self, epoch: int) -> None:
        if self.fault == "vanish":
            self.world.events.add("offsets hazard")
            return
        if self.fault == "overwrite":
            self.world.events.add("offsets hazard")
        elif epoch in self.world.offsets:
            raise laws.SparkLogConflict(f"offsets/{epoch}")
        self.world.offsets[epoch] = self.memory[epoch][1]

    def _log_commit(self, epoch: int) -> None:
        if epoch in self.world.commits:
            raise laws.SparkLogConflict(f"commits/{epoch}")
        self.world.commits.add(epoch)
        laws.check_commit(self.world, epoch)
        old = epoch - self.world.setting.retention
        self.world.offsets = {e: end for e, end in self.world.offsets.items() if e > old}
        self.world.commits = {e for e in self.world.commits if e > old}

    # --- ports ------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self.fault in ("failed", "lost", "late"):
            raise StoreUnavailable("no answer")

    def create(self, record: EpochRecord) -> bool:
        stored = encode(record)
        self._in_doubt.add(record.epoch)
        if self.fault == "late":
            self.world.delay(Late(f"put {record.attempt}", lambda: self._put(stored), lambda: None))
        created = self.fault not in ("late", "failed") and self.world.put(stored)
        self._ask()
        return created

    def _put(self, stored: bytes) -> None:
        self.world.put(stored)

    def _put_seal(self, seal: Seal) -> None:
        self.world.put_seal(seal)

    def read(self, epoch: int) -> EpochRecord | None:
        self._ask()
        if self.fault == "glitch" and epoch in self._in_doubt:
            return None
        self._in_doubt.discard(epoch)
        found = self.read_any(epoch)
        if isinstance(found, Seal):
            raise found.error()
        return found

    def create_seal(self, seal: Seal) -> bool:
        if self.fault == "late":
            land = partial(self._put_seal, seal)
            self.world.delay(Late(f"seal {seal.id}", land, lambda: None))
        created = self.fault not in ("late", "failed") and self.world.put_seal(seal)
        self._ask()
        return created

    def read_any(self, epoch: int) -> Seal | EpochRecord | None:
        self._ask()
        if epoch in self.world.seals:
            return self.world.seals[epoch]
        stored = self.world.records.get(epoch)
        return None if stored is None else cached_decode(stored)

    def newest(self) -> int | None:
        self._ask()
        return max([*self.world.records, *self.world.seals], default=None)

    def discarded(self, epoch: int) -> frozenset[str]:
        self._ask()
        return frozenset(sink for e, sink in self.world.discards if e == epoch)

    def finished(self, epoch: int) -> bool:
        self._ask()
        return epoch in self.world.finished_epochs

    def finish(self, epoch: int) -> None:
        self.world.finished_epochs.add(epoch)

    def committed(self, epoch: int) -> bool:
        self._ask()
        return epoch in self.world.commits

    def tidy(self, record: EpochRecord) -> None:
        if self.fault is None:
            self.world.tidy(record)

    def digest(self, epoch: int) -> str | None:
        self._ask()
        stored = self.world.offsets.get(epoch)
        if stored is not None and epoch in self.memory and self.memory[epoch][1] != stored:
            raise OffsetLogDiverged(f"offsets/{epoch} is another driver's")
        return None if stored is None else hashlib.sha256(f"{epoch}:{stored}".encode()).hexdigest()

    def stage(self, epoch: int, attempt: str) -> Staged:
        start, end = self.memory[epoch]
        self.world.ranges[attempt] = (start, end)
        chunks: list[Chunk] = []
        for sink in self.world.sinks:
            for part in range(self.world.setting.parts):
                route, parts = self.world.setting.route, self.world.setting.parts
                mine = [[o, attempt] for o in range(start, end) if route(o, attempt, parts) == part]
                if mine:
                    chunks.append(
                        self._chunk(epoch, attempt, sink, part, json.dumps(mine).encode())
                    )
            if self.fault:
                raise StageFailed("a task was killed in the middle")
        return Staged(tuple(chunks), (EventTime(end, start, 0.0, end - start),))

    def _chunk(self, epoch: int, attempt: str, sink: str, part: int, data: bytes) -> Chunk:
        digest, rows = hashlib.sha256(data).hexdigest(), len(json.loads(data))
        if sink == "kafka":
            return Chunk(sink, part, (0, 0), rows, len(data), digest, inline=data)
        name = f"{epoch}/{attempt}/{sink}-{part}"
        self.world.staged[name] = data
        return Chunk(sink, part, (0, 0), rows, len(data), digest, name=name)

    def check_state(self, epoch: int) -> None:
        """All state is in, here."""

    def feed(self, event_times: tuple[EventTime, ...]) -> None:
        self.fed.extend(e.max_ms for e in event_times)

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        """Apply in one go; `step` cuts it into steps instead."""
        for _ in self.world.sinks[sink].applying(Apply(record, sink, parts, discard)):
            pass

    def settled(self) -> int | None:
        """Return what was caught up with; nothing runs beside the generator."""
        return self._caught_up

    def now_ms(self) -> int:
        return 0

    def pause(self, seconds: float) -> None:
        """No time passes, here."""

    def new_attempt(self) -> str:
        self.attempts += 1
        return f"{self.name}{self.attempts}"

    def traceparent(self) -> str:
        return ""
