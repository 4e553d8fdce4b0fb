"""What the coordinator needs of the world. Implemented by storage, sinks and spark; faked in tests.

Each method may fail, hang, or succeed without saying so; what a port must make of that is said
here, in the names of `errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sluicegate.protocol.record import Chunk, EpochRecord, EventTime
from sluicegate.protocol.seal import Seal


@dataclass(frozen=True)
class Staged:
    """What a try at an epoch has made durable, before anything is decided."""

    chunks: tuple[Chunk, ...] = ()
    event_times: tuple[EventTime, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class EpochLog(Protocol):
    """Create-once records by epoch number."""

    def create(self, record: EpochRecord) -> bool:
        """Create the record if there is none: True if it is new, False if one was there.

        False does not say whose it is: an earlier request of ours may have got through.

        Raises:
            StoreUnavailable: no answer, or one in doubt. The record may be there or not.
        """

    def read(self, epoch: int) -> EpochRecord | None:
        """Return the record, None if there is none. Always from the store, never from memory.

        Raises:
            Sealed: a seal stands there.
        """

    def newest(self) -> int | None:
        """Return the highest epoch that has a record or a seal, None if there is none."""

    def create_seal(self, seal: Seal) -> bool:
        """Create the seal in the place of `epochs/N`, as `create` does a record."""

    def read_any(self, epoch: int) -> Seal | EpochRecord | None:
        """Return what stands at `epochs/N`; a seal is returned, not raised."""

    def discarded(self, epoch: int) -> frozenset[str]:
        """Return the sinks for which somebody discarded this decided epoch (rule 14)."""

    def finished(self, epoch: int) -> bool:
        """Return whether `finish` was called for the epoch."""

    def finish(self, epoch: int) -> None:
        """Note that an epoch is in every sink, where Spark's commit does not say so.

        Of an overlapped one at the end of a driver that ends well; of any by one that only finishes.
        """

    def tidy(self, record: EpochRecord) -> None:
        """Remove what nobody can need once `record` is applied (rules 2 and 8).

        Old records beyond the retention, never the newest; staged attempts of decided epochs,
        never the decided attempt. Best effort: a failure is logged and the next call goes on.
        """


class Offsets(Protocol):
    """Spark's offset log, read back from storage."""

    def digest(self, epoch: int) -> str | None:
        """Return the SHA-256 of `offsets/N`, None if it is not there.

        Raises:
            OffsetLogDiverged: the running query holds other offsets for this epoch than are stored
                there: another driver's file, with which this plan's rows must not be decided.
            StoreUnavailable: no answer.
        """

    def committed(self, epoch: int) -> bool:
        """Return whether Spark has written `commits/N`: it will not run the epoch again."""


class Plan(Protocol):
    """The epoch's plan, run by Spark."""

    def stage(self, epoch: int, attempt: str) -> Staged:
        """Run the plan once and make its output durable under `attempt`.

        Raises:
            StageFailed: nothing is decided; another try needs another attempt id.
            RowRefused: a row fits no sink and no dead-letter sink was declared.
        """

    def check_state(self, epoch: int) -> None:
        """Raise StateIncomplete unless every state partition has its next version (rule 9)."""

    def feed(self, event_times: tuple[EventTime, ...]) -> None:
        """Give a skipped plan the event times that it would have seen (rule 16)."""


class Sinks(Protocol):
    """All sinks of the job."""

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        """Write the parts of a decided epoch into one sink, each in one transaction with its marker.

        May be called any number of times for the same record, from several processes at once.
        With `discard` the rows stay out and only the marker moves.

        Raises:
            SinkUnavailable: in doubt; call again, the marker will tell.
            SinkRejected: for good; the epoch stays decided.
            Fenced, SinkWentBack, MarkerMismatch: see `markers.judge`.
        """

    def settled(self) -> int | None:
        """Return once every apply that was started before has ended well; raise its error if not.

        Returns:
            The last epoch that this driver has applied, None if it has applied none.
        """


class Clock(Protocol):
    """Time and randomness."""

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970."""

    def pause(self, seconds: float) -> None:
        """Wait."""

    def new_attempt(self) -> str:
        """Return a fresh random id."""

    def traceparent(self) -> str:
        """Return the W3C trace context of the running epoch, empty if it is not traced."""


@dataclass(frozen=True)
class Ports:
    """All ports of one driver."""

    log: EpochLog
    offsets: Offsets
    plan: Plan
    sinks: Sinks
    clock: Clock
