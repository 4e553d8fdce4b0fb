"""A simulated world: Spark's loop, the checkpoint store, staging, and drivers stepped one by one.

A driver is Spark's loop around `run_epoch`: a generator of effects. `Driver.step` performs one
effect (of an apply, one step of a transaction), so another driver, a crash or a fault can come
between any two. The laws (`laws.py`) are checked after each step. Not here: what to schedule; the
searches and the directed tests choose.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from sluicegate.protocol import coordinator
from sluicegate.protocol.coordinator import Job, Settled
from sluicegate.protocol.effects import (
    Apply,
    AwaitSettled,
    Effect,
    Reach,
    Steps,
)
from sluicegate.protocol.errors import OffsetLogDiverged, StageFailed, StoreUnavailable
from sluicegate.protocol.ports import Ports, Staged
from sluicegate.protocol.record import Chunk, EpochRecord, EventTime, SinkBinding, encode
from sluicegate.protocol.seal import Seal

from . import laws
from .setting import LOCAL, Call, Setting
from .sim_sinks import Fault, Late, SimSink, SubSteps, Surroundings, cached_decode


@dataclass
class World:
    """Everything that outlives a driver, and what the laws remember of it."""

    setting: Setting = field(default_factory=Setting)

    def __post_init__(self) -> None:
        around = Surroundings(self.setting.judge, self._staged, self.delay)
        self.sinks = {
            n: SimSink(n, kind, self.setting.parts, around) for n, kind in self.setting.sinks
        }
        bindings = {
            n: SinkBinding(k, f"{k} {n}", self.setting.parts, f"L.{n}")
            for n, k in self.setting.sinks
        }
        redoable = frozenset(n for n, kind in self.setting.sinks if kind == "locking")
        self.job = Job(
            "sim",
            "L",
            sinks=bindings,
            overlap=self.setting.overlap,
            redoable=redoable,
            decide_tries=3,
            apply_tries=3,
        )
        self.finished_epochs: set[int] = set()
        self.records: dict[int, bytes] = {}
        self.seals: dict[int, Seal] = {}
        self.staged: dict[str, bytes] = {}
        self.offsets: dict[int, int] = {}
        self.commits: set[int] = set()
        self.discards: set[tuple[int, str]] = set()
        self.late: list[Late] = []
        self.drivers: list[Driver] = []
        # what only the laws look at
        self.decided: dict[int, EpochRecord] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.pruned: set[int] = set()
        self.events: set[str] = set()
        self.watch = laws.Watch()

    # --- the store --------------------------------------------------------------------------

    def put(self, stored: bytes) -> bool:
        """Create a record if there is none."""
        record = cached_decode(stored)
        if record.epoch in self.records or record.epoch in self.seals:
            return False
        self.records[record.epoch] = stored
        # one that lands where the decided one was pruned is no decision
        self.decided.setdefault(record.epoch, record)
        return True

    def put_seal(self, seal: Seal) -> bool:
        """Create a seal where no record is."""
        if seal.epoch in self.records or seal.epoch in self.seals:
            return False
        self.seals[seal.epoch] = seal
        if seal.epoch not in self.pruned:  # where a decision was pruned it ends nothing
            self.events.add("sealed")
            laws.check_seal(self, seal.epoch)
        return True

    def tidy(self, record: EpochRecord) -> None:
        """Prune as the storage does (rules 2 and 8)."""
        old = [e for e in self.records if e <= record.epoch - self.setting.retention]
        for epoch in old:
            del self.records[epoch]
            self.pruned.add(epoch)
        for name in list(self.staged):
            epoch, attempt = int(name.split("/")[0]), name.split("/")[1]
            kept = self.records.get(epoch)
            pruned = epoch <= record.epoch - self.setting.retention
            if pruned or (kept is not None and cached_decode(kept).attempt != attempt):
                del self.staged[name]

    def _staged(self, name: str) -> bytes | None:
        # looked up anew each time: a checkpoint from a backup puts another staging area here
        return self.staged.get(name)

    def delay(self, late: Late) -> None:
        """Keep a request in the network."""
        self.late.append(late)

    def settle_late(self, index: int, *, land: bool) -> None:
        """Let a late request land, or get lost for good."""
        late = self.late.pop(index)
        self.events.add("late")
        (late.land if land else late.drop)()
        laws.check(self)

    # --- what else happens ------------------------------------------------------------------

    def start(self, name: str, *, last: int | None = None) -> Driver:
        """Start a driver process; it ends once it has committed epoch `last`."""
        driver = Driver(self, name, last)
        self.join(driver)
        return driver

    def join(self, driver: Driver) -> None:
        """Let a process of another kind run beside the drivers."""
        self.drivers.append(driver)
        for other in self.alive():
            if other is not driver:
                other.rivalled = driver.rivalled = True

    def alive(self) -> list[Driver]:
        """Return the drivers that still run, paused or not."""
        return [d for d in self.drivers if d.alive]

    def restore_sink(self, name: str, index: int) -> None:
        """Put a sink back from a backup."""
        self.events.add("restored")
        self.sinks[name].restore(index)
        laws.check(self)

    def discard(self, epoch: int, sink: str) -> None:
        """`sluicegate epochs discard`."""
        if self.sinks[sink].discard(self.decided[epoch]):
            self.discards.add((epoch, sink))
        laws.check(self)

    def checkpoint(self) -> Callable[[], None]:
        """Back the checkpoint up; the returned function puts it back."""
        kept = (dict(self.records), dict(self.staged), dict(self.offsets), set(self.commits))

        def put_back() -> None:
            self.events.add("checkpoint restored")
            self.records, self.staged, self.offsets, self.commits = (
                dict(kept[0]), dict(kept[1]), dict(kept[2]), set(kept[3])
            )  # fmt: skip

        return put_back

    def key(self) -> int:
        """Return a hash that tells this state from another."""
        stored = tuple(sorted((e, cached_decode(r).attempt) for e, r in self.records.items()))
        drivers = tuple((d.name, d.alive, d.history, d.next_step) for d in self.drivers)
        return hash((
            stored, tuple(sorted(self.staged)), tuple(sorted(self.offsets.items())), frozenset(self.commits),
            tuple(s.key() for s in self.sinks.values()), tuple(x.what for x in self.late), drivers,
            tuple(sorted(self.seals)), frozenset(self.finished_epochs),
        ))  # fmt: skip


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
