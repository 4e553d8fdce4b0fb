"""The coordinator's steps as values: the coordinator yields them, `run_effects` performs them.

The coordinator does nothing else, and that makes it testable: a simulation can crash it, lose a
reply or run another driver between any two effects.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sluicegate import failpoints
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.ports import ApplyPorts, EpochPorts, LogPorts, Staged
from sluicegate.protocol.record import DecidedEpoch, EpochRecord, EventTime, Seal

P_contra = TypeVar("P_contra", contravariant=True)
T = TypeVar("T")


class Effect(Protocol[P_contra]):
    """One step that performs I/O, on the ports that it needs."""

    def perform(self, ports: P_contra) -> Any:  # noqa: ANN401 - each effect has its own reply
        """Perform the step and return its reply."""


LogSteps = Generator[Effect[LogPorts], Any, T]
"""Steps on the logs of a checkpoint that return a T."""

ApplySteps = Generator[Effect[ApplyPorts], Any, T]
"""Steps that apply a decided epoch; `LogSteps` can be part of them."""

EpochSteps = Generator[Effect[EpochPorts], Any, T]
"""Steps of a whole epoch; `ApplySteps` and `LogSteps` can be part of them."""


@dataclass(frozen=True)
class ReadRecord:
    """Read `epochs/N`; a seal is raised as `Sealed`."""

    epoch: int

    def perform(self, ports: LogPorts) -> EpochRecord | None:
        return ports.log.read(self.epoch)


@dataclass(frozen=True)
class ReadSeal:
    """Read `epochs/N`, a seal or a record."""

    epoch: int

    def perform(self, ports: LogPorts) -> Seal | EpochRecord | None:
        return ports.log.read_any(self.epoch)


@dataclass(frozen=True)
class LatestEpoch:
    """Find the highest epoch that has a record or a seal."""

    def perform(self, ports: LogPorts) -> int | None:
        return ports.log.newest()


@dataclass(frozen=True)
class CreateRecord:
    """Create `epochs/N` if it does not exist: the commit point."""

    record: EpochRecord

    def perform(self, ports: LogPorts) -> bool:
        return ports.log.create(self.record)


@dataclass(frozen=True)
class CreateSeal:
    """Create the seal as `epochs/N` if nothing exists there."""

    seal: Seal

    def perform(self, ports: LogPorts) -> bool:
        return ports.log.create_seal(self.seal)


@dataclass(frozen=True)
class ReadDiscarded:
    """Read for which sinks the epoch was discarded."""

    epoch: int

    def perform(self, ports: LogPorts) -> frozenset[str]:
        return ports.log.discarded(self.epoch)


@dataclass(frozen=True)
class IsMarkedApplied:
    """Read whether the epoch is marked as applied."""

    epoch: int

    def perform(self, ports: LogPorts) -> bool:
        return ports.log.is_marked_applied(self.epoch)


@dataclass(frozen=True)
class MarkApplied:
    """Mark the epoch as applied."""

    epoch: int

    def perform(self, ports: LogPorts) -> None:
        ports.log.mark_applied(self.epoch)


@dataclass(frozen=True)
class PruneLog:
    """Remove what nobody needs once the record is applied."""

    record: EpochRecord

    def perform(self, ports: LogPorts) -> None:
        ports.log.prune_after(self.record)


@dataclass(frozen=True)
class ReadOffsets:
    """Read the digest of Spark's `offsets/N` from storage."""

    epoch: int

    def perform(self, ports: LogPorts) -> str | None:
        return ports.offsets.digest(self.epoch)


@dataclass(frozen=True)
class IsCommitted:
    """Read whether Spark has committed the epoch."""

    epoch: int

    def perform(self, ports: LogPorts) -> bool:
        return ports.offsets.is_committed(self.epoch)


@dataclass(frozen=True)
class Now:
    """Read the clock, in ms since 1970."""

    def perform(self, ports: LogPorts) -> int:
        return ports.clock.now_ms()


@dataclass(frozen=True)
class Pause:
    """Sleep before a retry."""

    seconds: float

    def perform(self, ports: LogPorts) -> None:
        ports.clock.pause(self.seconds)


@dataclass(frozen=True)
class HitFailpoint:
    """Pass a failpoint."""

    point: str
    epoch: int
    sink: str = ""

    def perform(self, ports: LogPorts) -> None:  # noqa: ARG002 - failpoints belong to the process
        failpoints.reach(self.point, epoch=self.epoch, sink=self.sink)


@dataclass(frozen=True)
class BeginAttempt:
    """Generate the attempt's id and read the trace context."""

    def perform(self, ports: EpochPorts) -> tuple[str, str]:
        return ports.plan.begin_attempt()


@dataclass(frozen=True)
class Stage:
    """Run the plan."""

    epoch: int
    attempt: str

    def perform(self, ports: EpochPorts) -> Staged:
        return ports.plan.stage(self.epoch, self.attempt)


@dataclass(frozen=True)
class CheckState:
    """Check that all state of the plan is complete."""

    epoch: int

    def perform(self, ports: EpochPorts) -> None:
        ports.plan.check_state(self.epoch)


@dataclass(frozen=True)
class RestoreWatermark:
    """Restore the watermark of a plan that is skipped."""

    event_times: tuple[EventTime, ...]

    def perform(self, ports: EpochPorts) -> None:
        ports.plan.restore_watermark(self.event_times)


@dataclass(frozen=True)
class Apply:
    """Write parts of a decided epoch to a sink."""

    record: EpochRecord
    sink: str
    parts: tuple[int, ...]
    discard: bool = False

    def perform(self, ports: ApplyPorts) -> None:
        ports.sinks.apply(self.record, self.sink, self.parts, discard=self.discard)


@dataclass(frozen=True)
class SeedMarkers:
    """Seed absent markers of the parts that an undecided epoch writes; reply with those to name."""

    record: EpochRecord
    sink: str
    parts: tuple[int, ...]
    may_expire: bool
    may_regress: bool
    durable: bool

    def perform(self, ports: ApplyPorts) -> Mapping[int, Marker]:
        return ports.sinks.seed_markers(
            self.record,
            self.sink,
            may_expire=self.may_expire,
            may_regress=self.may_regress,
            durable=self.durable,
        )


@dataclass(frozen=True)
class RefreshMarkers:
    """Refresh the markers of a decided epoch's parts, which may have to wait for another sink."""

    record: EpochRecord

    def perform(self, ports: ApplyPorts) -> None:
        ports.sinks.refresh_markers(self.record)


@dataclass(frozen=True)
class StartApply:
    """Start to apply a decided epoch in the background."""

    decided: DecidedEpoch

    def perform(self, ports: ApplyPorts) -> None:
        ports.sinks.start_apply(self.decided)


@dataclass(frozen=True)
class AwaitApplies:
    """Wait until no apply of this driver runs; reply with the last epoch that it applied."""

    def perform(self, ports: ApplyPorts) -> int | None:
        return ports.sinks.await_applies()


def run_effects(steps: Generator[Effect[P_contra], Any, T], ports: P_contra) -> T:
    """Perform a coordinator's effects until it returns; throw their errors into it."""
    try:
        effect = next(steps)
        while True:
            try:
                reply = effect.perform(ports)
            except Exception as error:  # noqa: BLE001 - the coordinator handles it
                effect = steps.throw(error)
            else:
                effect = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
