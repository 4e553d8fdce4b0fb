"""The steps of the protocol as values: the coordinator yields them, `drive` performs them.

That the coordinator only ever yields is what makes it testable: a simulation can crash it, lose
a reply or run another driver between any two effects.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sluicegate.protocol import failpoints
from sluicegate.protocol.ports import Ports, Staged
from sluicegate.protocol.record import EpochRecord, EventTime
from sluicegate.protocol.seal import Seal

T = TypeVar("T")


class Effect(Protocol):
    """One step that touches the world."""

    def perform(self, ports: Ports) -> Any:  # noqa: ANN401 - each effect has its own reply
        """Do it and return the reply."""


Steps = Generator[Effect, Any, T]
"""A piece of the coordinator that ends in a T."""


@dataclass(frozen=True)
class ReadRecord:
    """Read `epochs/N`; a seal there is raised as `Sealed`."""

    epoch: int

    def perform(self, ports: Ports) -> EpochRecord | None:
        return ports.log.read(self.epoch)


@dataclass(frozen=True)
class NewestEpoch:
    """Find the highest decided epoch."""

    def perform(self, ports: Ports) -> int | None:
        return ports.log.newest()


@dataclass(frozen=True)
class CreateRecord:
    """Create `epochs/N` if it is not there: the commit point."""

    record: EpochRecord

    def perform(self, ports: Ports) -> bool:
        return ports.log.create(self.record)


@dataclass(frozen=True)
class CreateSeal:
    """Create the seal in the place of `epochs/N` if nothing is there."""

    seal: Seal

    def perform(self, ports: Ports) -> bool:
        return ports.log.create_seal(self.seal)


@dataclass(frozen=True)
class ReadSeal:
    """Read what stands at `epochs/N`, a seal or a decision."""

    epoch: int

    def perform(self, ports: Ports) -> Seal | EpochRecord | None:
        return ports.log.read_any(self.epoch)


@dataclass(frozen=True)
class ReadDiscarded:
    """Read which sinks were told to leave this epoch out."""

    epoch: int

    def perform(self, ports: Ports) -> frozenset[str]:
        return ports.log.discarded(self.epoch)


@dataclass(frozen=True)
class IsFinished:
    """Read whether a driver that ended well has noted this epoch as applied."""

    epoch: int

    def perform(self, ports: Ports) -> bool:
        return ports.log.finished(self.epoch)


@dataclass(frozen=True)
class Finish:
    """Note an overlapped epoch as applied."""

    epoch: int

    def perform(self, ports: Ports) -> None:
        ports.log.finish(self.epoch)


@dataclass(frozen=True)
class Tidy:
    """Remove what nobody can need any more."""

    record: EpochRecord

    def perform(self, ports: Ports) -> None:
        ports.log.tidy(self.record)


@dataclass(frozen=True)
class ReadOffsets:
    """Read the digest of Spark's `offsets/N` back from storage."""

    epoch: int

    def perform(self, ports: Ports) -> str | None:
        return ports.offsets.digest(self.epoch)


@dataclass(frozen=True)
class IsCommitted:
    """Read whether Spark counts the epoch as done."""

    epoch: int

    def perform(self, ports: Ports) -> bool:
        return ports.offsets.committed(self.epoch)


@dataclass(frozen=True)
class Begin:
    """Draw the attempt's id and take the time and the trace context."""

    def perform(self, ports: Ports) -> tuple[str, str]:
        return ports.clock.new_attempt(), ports.clock.traceparent()


@dataclass(frozen=True)
class Now:
    """Read the clock."""

    def perform(self, ports: Ports) -> int:
        return ports.clock.now_ms()


@dataclass(frozen=True)
class Pause:
    """Wait before another try."""

    seconds: float

    def perform(self, ports: Ports) -> None:
        ports.clock.pause(self.seconds)


@dataclass(frozen=True)
class Stage:
    """Run the plan."""

    epoch: int
    attempt: str

    def perform(self, ports: Ports) -> Staged:
        return ports.plan.stage(self.epoch, self.attempt)


@dataclass(frozen=True)
class CheckState:
    """See that all state of the plan is in."""

    epoch: int

    def perform(self, ports: Ports) -> None:
        ports.plan.check_state(self.epoch)


@dataclass(frozen=True)
class Feed:
    """Feed the watermark of a plan that is skipped."""

    event_times: tuple[EventTime, ...]

    def perform(self, ports: Ports) -> None:
        ports.plan.feed(self.event_times)


@dataclass(frozen=True)
class Apply:
    """Write parts of a decided epoch into a sink."""

    record: EpochRecord
    sink: str
    parts: tuple[int, ...]
    discard: bool = False

    def perform(self, ports: Ports) -> None:
        ports.sinks.apply(self.record, self.sink, self.parts, discard=self.discard)


@dataclass(frozen=True)
class AwaitSettled:
    """Wait until no apply of this driver is running; the reply is the last epoch that it applied."""

    def perform(self, ports: Ports) -> int | None:
        return ports.sinks.settled()


@dataclass(frozen=True)
class Reach:
    """Pass a failpoint."""

    point: str
    epoch: int
    sink: str = ""

    def perform(self, ports: Ports) -> None:  # noqa: ARG002 - failpoints are the process's own
        failpoints.reach(self.point, epoch=self.epoch, sink=self.sink)


def drive(steps: Steps[T], ports: Ports) -> T:
    """Perform a coordinator's effects until it ends; errors of an effect are thrown into it."""
    try:
        effect = next(steps)
        while True:
            try:
                reply = effect.perform(ports)
            except Exception as error:  # noqa: BLE001 - the coordinator decides what to make of it
                effect = steps.throw(error)
            else:
                effect = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
