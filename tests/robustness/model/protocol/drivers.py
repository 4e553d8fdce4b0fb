"""The driver processes of the simulated world, stepped one by one.

A driver is Spark's loop around `run_epoch`: a generator of effects. `Driver.step` performs one
effect, or one step of a transaction within an apply, so another driver, a crash or a fault can come
between any two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sluicegate.errors import (
    OffsetLogDiverged,
    SluicegateError,
    StageFailed,
    StoreUnavailable,
)
from sluicegate.protocol import coordinator, recovery
from sluicegate.protocol.effects import (
    Apply,
    ApplySteps,
    AwaitApplies,
    Effect,
    EpochSteps,
    HitFailpoint,
    SeedMarkers,
    StartApply,
)
from sluicegate.protocol.job import Job
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.ports import EpochPorts, Staged
from sluicegate.protocol.record import Chunk, DecidedEpoch, EpochRecord, EventTime, Seal, encode
from tests.robustness.model.protocol.simulated_sinks import (
    Fault,
    LateRequest,
    SubSteps,
    cached_decode,
    finish,
)
from tests.robustness.model.protocol.world_config import LOCAL, Call
from tests.robustness.validate import invariants

if TYPE_CHECKING:
    from tests.robustness.model.protocol.world import World

AnyEffect = Effect[EpochPorts]
Answer = TypeVar("Answer")

_TIMES_MS = (0, 1 << 42, 1)


class Driver:
    """One driver process: Spark's loop, stepped effect by effect, and all of its ports."""

    seals = False
    """Whether this process seals instead of running epochs."""

    def __init__(
        self, world: World, name: str, last: int | None, *, overlap: bool | None = None
    ) -> None:
        self.world, self.name, self.last = world, name, last
        self._overlap = overlap
        self.ports = EpochPorts(log=self, offsets=self, clock=self, sinks=self, plan=self)
        self.memory: dict[int, tuple[int, int]] = {}
        self.points: list[tuple[str, int, str]] = []
        self.restored_watermarks: list[int] = []
        self.alive, self.rivalled, self.faulted = True, False, False
        self.error: BaseException | None = None
        self.fault: Fault = None
        self.history = 0
        self.attempts = 0
        self._background: DecidedEpoch | None = None
        self._last_applied: int | None = None
        self._in_doubt: set[int] = set()
        self._ahead: dict[tuple[str, int], Any] = {}
        self._sub: SubSteps[Any] | None = None
        self.next_step = ""
        self._loop = self._spark()
        self._pending: AnyEffect | None = None
        self._advance(lambda: next(self._loop))

    @property
    def job(self) -> Job:
        """The job with this driver's settings."""
        job = self.world.job
        return job if self._overlap is None else replace(job, overlap=self._overlap)

    # --- stepping ---------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether the next step waits for a lock that another driver holds."""
        return self.next_step == "blocked" and not self._lock_is_free()

    def _lock_is_free(self) -> bool:
        effect = self._pending
        assert isinstance(effect, Apply)
        return not any(self.world.sinks[effect.sink].parts[p].txn for p in effect.parts)

    def step(self, fault: Fault = None) -> None:
        """Perform the next step that others can observe, and the local steps that follow it."""
        if not self.alive:
            return
        self.fault, self.faulted = fault, self.faulted or fault is not None
        self._perform()
        while isinstance(self._pending, LOCAL):
            self.fault = None
            self._perform()
        invariants.check(self.world)

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
            if isinstance(self._pending, HitFailpoint):
                self.points.append((self._pending.point, self._pending.epoch, self._pending.sink))
            reply = self._pending.perform(self.ports)
        except StopIteration as end:
            self._sub, reply = None, end.value
        except invariants.InvariantBroken:
            raise  # not an error that the protocol may handle
        except Exception as error:  # noqa: BLE001 - as `run_effects` does
            self._sub = None
            raised = error
            self._remember(repr(error))
            self._advance(lambda: self._loop.throw(raised))
            return
        self._remember(repr(reply))
        self._advance(lambda: self._loop.send(reply))

    def _remember(self, reply: str) -> None:
        self.history = hash((self.history, type(self._pending), reply))

    def _advance(self, resume: Callable[[], AnyEffect]) -> None:
        try:
            self._pending = resume()
        except StopIteration:
            self.alive, self._pending = False, None
            if self.seals:
                invariants.check_sealer(self.world, self)
            return
        except invariants.InvariantBroken:
            raise
        except Exception as error:  # noqa: BLE001 - the driver dies; the invariants judge the cause
            self.alive, self.error, self._pending = False, error, None
            invariants.check_death(self.world, self, error)
            return
        self.next_step = type(self._pending).__name__
        if isinstance(self._pending, Call):
            self.next_step = self._pending.name
        if isinstance(self._pending, Apply):
            self._sub = self.world.sinks[self._pending.sink].applying(self._pending, self.name)
            self.next_step = next(self._sub)
        if isinstance(self._pending, SeedMarkers):
            self._sub = self.world.sinks[self._pending.sink].seeding(self._pending)
            try:
                self.next_step = next(self._sub)
            except StopIteration as end:
                self._sub, markers = None, end.value
                self._advance(lambda: self._loop.send(markers))
            except SluicegateError as error:
                self._sub, refused = None, error
                self._advance(lambda: self._loop.throw(refused))

    # --- Spark's loop -----------------------------------------------------------------------

    def _spark(self) -> EpochSteps[None]:
        world = self.world
        if world.may_overlap:  # otherwise no record is overlapped
            self._background = yield from recovery.pending_apply(self.job)
        latest: int = yield Call("read logs", lambda: max(world.offsets, default=-1))
        # a driver reads its logs once, at its start, and then relies on its memory
        end = world.offsets.get(latest - 1, 0)
        if latest >= 0 and latest not in world.commits:
            self.memory[latest] = (end, world.offsets[latest])
            yield from self._epoch(latest)
        end = world.offsets.get(latest, 0)
        for epoch in self._epochs(latest + 1):
            self.memory[epoch] = (end, end + world.config.size(self.name, epoch))
            yield Call("log offsets", lambda e=epoch: self._log_offsets(e))  # type: ignore[misc]
            yield from self._epoch(epoch)
            end = self.memory[epoch][1]
        last = self._background
        yield from self._run_background()
        if last is not None:
            yield from recovery.mark_applied(last)

    def _read_ahead(self, epoch: int) -> None:
        """Read what the epoch reads first; an answer is given once, and none after a creation."""
        self._ahead = {("newest", 0): self._newest()}
        for number in (epoch - 1, epoch):
            self._ahead["record", number] = self._stored(number)
            self._ahead["offsets", number] = self.world.offsets.get(number)

    def _epochs(self, first: int) -> Iterator[int]:
        epoch = first
        while self.last is None or epoch <= self.last:
            yield epoch
            epoch += 1

    def _epoch(self, epoch: int) -> EpochSteps[None]:
        if self.world.config.reads_ahead:
            self._read_ahead(epoch)
        yield from self._interleaved(self.world.config.run_epoch(self.job, epoch))
        yield Call("log commit", lambda: self._log_commit(epoch))

    def _interleaved(self, steps: EpochSteps[DecidedEpoch]) -> EpochSteps[None]:
        """Perform an epoch; run the background apply as late as it is allowed to.

        Nobody can observe staging. To apply late, to apply before Spark's commit as without overlap,
        and to crash in between are all the cases that can be distinguished.
        """
        resume: Callable[[], AnyEffect] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                effect = resume()
            except StopIteration:
                return
            try:
                if isinstance(effect, AwaitApplies | StartApply):
                    yield from self._run_background()
                reply = yield effect
            except Exception as error:  # noqa: BLE001 - as `run_effects` does
                resume = lambda e=error: steps.throw(e)  # type: ignore[misc] # noqa: E731
            else:
                resume = lambda r=reply: steps.send(r)  # type: ignore[misc] # noqa: E731

    def _run_background(self) -> ApplySteps[None]:
        decided, self._background = self._background, None
        if decided is not None:
            yield from coordinator.apply(self.job, decided)
            self._last_applied = decided.record.epoch

    def _log_offsets(self, epoch: int) -> None:
        if self.fault == "vanish":
            self.world.events.add("offsets hazard")
            return
        if self.fault == "overwrite":
            self.world.events.add("offsets hazard")
        elif epoch in self.world.offsets:
            raise invariants.SparkLogConflict(f"offsets/{epoch}")
        self.world.offsets[epoch] = self.memory[epoch][1]

    def _log_commit(self, epoch: int) -> None:
        if epoch in self.world.commits:
            raise invariants.SparkLogConflict(f"commits/{epoch}")
        self.world.commits.add(epoch)
        invariants.check_commit(self.world, epoch)
        newest_pruned = epoch - self.world.config.retention
        self.world.offsets = {e: end for e, end in self.world.offsets.items() if e > newest_pruned}
        self.world.commits = {e for e in self.world.commits if e > newest_pruned}

    # --- ports ------------------------------------------------------------------------------

    def _request(self) -> None:
        if self.fault in ("failed", "lost", "late"):
            raise StoreUnavailable("no reply")

    def _answer(self, asked: tuple[str, int], read: Callable[[], Answer]) -> Answer:
        """Return what was read ahead, once, and otherwise read."""
        answer: Answer = self._ahead.pop(asked) if asked in self._ahead else read()
        return answer

    def create(self, record: EpochRecord) -> bool:
        self._ahead = {}
        encoded = encode(record)
        self._in_doubt.add(record.epoch)
        if self.fault == "late":
            deliver = partial(self._put_late, encoded)
            self.world.delay(LateRequest(f"put {record.attempt}", deliver, lambda: None))
        created = self.fault not in ("late", "failed") and self.world.put(encoded)
        self._request()
        return created

    def _put_late(self, encoded: bytes) -> None:
        self.world.put(encoded)

    def _put_late_seal(self, seal: Seal) -> None:
        self.world.put_seal(seal)

    def read(self, epoch: int) -> EpochRecord | None:
        self._request()
        if self.fault == "glitch" and epoch in self._in_doubt:
            return None
        self._in_doubt.discard(epoch)
        stored = self.read_any(epoch)
        if isinstance(stored, Seal):
            raise stored.error()
        return stored

    def create_seal(self, seal: Seal) -> bool:
        self._ahead = {}
        if self.fault == "late":
            deliver = partial(self._put_late_seal, seal)
            self.world.delay(LateRequest(f"seal {seal.id}", deliver, lambda: None))
        created = self.fault not in ("late", "failed") and self.world.put_seal(seal)
        self._request()
        return created

    def read_any(self, epoch: int) -> Seal | EpochRecord | None:
        self._request()
        return self._answer(("record", epoch), lambda: self._stored(epoch))

    def _stored(self, epoch: int) -> Seal | EpochRecord | None:
        if epoch in self.world.seals:
            return self.world.seals[epoch]
        stored = self.world.records.get(epoch)
        return None if stored is None else cached_decode(stored)

    def newest(self) -> int | None:
        self._request()
        return self._answer(("newest", 0), self._newest)

    def _newest(self) -> int | None:
        return max([*self.world.records, *self.world.seals], default=None)

    def discarded(self, epoch: int) -> frozenset[str]:
        self._request()
        return frozenset(sink for e, sink in self.world.discards if e == epoch)

    def is_marked_applied(self, epoch: int) -> bool:
        self._request()
        return epoch in self.world.marked_applied

    def mark_applied(self, epoch: int) -> None:
        self.world.marked_applied.add(epoch)

    def is_committed(self, epoch: int) -> bool:
        self._request()
        return epoch in self.world.commits

    def prune_after(self, record: EpochRecord) -> None:
        if self.fault is None:
            self.world.prune_after(record)

    def digest(self, epoch: int) -> str | None:
        self._request()
        stored = self._answer(("offsets", epoch), lambda: self.world.offsets.get(epoch))
        if stored is not None and epoch in self.memory and self.memory[epoch][1] != stored:
            raise OffsetLogDiverged(f"another driver wrote offsets/{epoch}")
        return None if stored is None else hashlib.sha256(f"{epoch}:{stored}".encode()).hexdigest()

    def begin_attempt(self) -> tuple[str, str]:
        self.attempts += 1
        return f"{self.name}{self.attempts}", ""

    def stage(self, epoch: int, attempt: str) -> Staged:
        start, end = self.memory[epoch]
        self.world.ranges[attempt] = (start, end)
        chunks: list[Chunk] = []
        for sink in self.world.sinks:
            for part in range(self.world.config.parts):
                route, parts = self.world.config.route, self.world.config.parts
                rows = [[o, attempt] for o in range(start, end) if route(o, attempt, parts) == part]
                if rows:
                    data = json.dumps(rows).encode()
                    chunks.append(self._chunk(epoch, attempt, sink, part, data))
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
        """State is always complete in the simulation."""

    def restore_watermark(self, event_times: tuple[EventTime, ...]) -> None:
        self.restored_watermarks.extend(e.max_ms for e in event_times)

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        """Apply without interruption; `step` splits an apply into steps instead."""
        finish(self.world.sinks[sink].applying(Apply(record, sink, parts, discard), self.name))

    def seed_markers(
        self,
        record: EpochRecord,
        sink: str,
        *,
        may_expire: bool,
        may_regress: bool,
        durable: bool,
    ) -> Mapping[int, Marker]:
        """Seed without interruption, as `apply`."""
        effect = SeedMarkers(
            record,
            sink,
            record.parts_with_rows(sink),
            may_expire=may_expire,
            may_regress=may_regress,
            durable=durable,
        )
        return finish(self.world.sinks[sink].seeding(effect))

    def refresh_markers(self, record: EpochRecord) -> None:
        """Markers expire when the world says so, refreshed or not."""

    def start_apply(self, decided: DecidedEpoch) -> None:
        """Keep the epoch for `_interleaved`, which has run the one before."""
        self._background = decided

    def await_applies(self) -> int | None:
        """Return the last epoch of `_interleaved`, which has run what was started."""
        return self._last_applied

    def now_ms(self) -> int:
        """Return a time that has jumped since the attempt before: nothing may depend on it."""
        return _TIMES_MS[self.attempts % len(_TIMES_MS)]

    def pause(self, seconds: float) -> None:
        """Time does not pass in the simulation."""
