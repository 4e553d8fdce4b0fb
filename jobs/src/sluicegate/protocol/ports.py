"""What the coordinator needs from its environment.

`storage` and `spark` implement these protocols; the simulation fakes them. A method may fail, hang,
or succeed without a reply. The docstrings state which of our errors each case must become.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import Chunk, DecidedEpoch, EpochRecord, EventTime, Seal


@dataclass(frozen=True)
class Staged:
    """What one attempt at an epoch has made durable before the decision."""

    chunks: tuple[Chunk, ...] = ()
    event_times: tuple[EventTime, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class EpochLog(Protocol):
    """Records by epoch number, each created at most once."""

    def create(self, record: EpochRecord) -> bool:
        """Create the record and return True; return False if one exists.

        False does not mean that another driver created it: an earlier request of ours may have
        succeeded.

        Raises:
            StoreUnavailable: no reply, or an ambiguous one. The record may or may not exist.
        """

    def read(self, epoch: int) -> EpochRecord | None:
        """Return the record, None if there is none; raises Sealed if the epoch holds a seal.

        Always reads the store, never a cache.
        """

    def newest(self) -> int | None:
        """Return the highest epoch that has a record or a seal, None if there is none."""

    def create_seal(self, seal: Seal) -> bool:
        """Create the seal as `epochs/N`; replies and errors are those of `create`."""

    def read_any(self, epoch: int) -> Seal | EpochRecord | None:
        """Return the seal or the record at `epochs/N`; a seal is returned, not raised."""

    def discarded(self, epoch: int) -> frozenset[str]:
        """Return the sinks for which this decided epoch was discarded (rule 14)."""

    def mark_applied(self, epoch: int) -> None:
        """Record that an epoch is in every sink, where Spark's commit does not prove it."""

    def is_marked_applied(self, epoch: int) -> bool:
        """Return whether `mark_applied` was called for the epoch."""

    def prune_after(self, record: EpochRecord) -> None:
        """Remove what nobody needs once `record` is applied (rules 2 and 8).

        Removes records beyond the retention but never the newest, and staged attempts of decided
        epochs but never the decided attempt. Best effort: a failure is logged, and the next call
        retries.
        """


class Offsets(Protocol):
    """Spark's offset log and commit log, read from storage."""

    def digest(self, epoch: int) -> str | None:
        """Return the SHA-256 of `offsets/N`, None if the file does not exist.

        Raises:
            OffsetLogDiverged: the running query has other offsets for this epoch than the stored
                file: another driver wrote it, and this plan's rows must not be decided with it.
            StoreUnavailable: no reply.
        """

    def is_committed(self, epoch: int) -> bool:
        """Return whether Spark has written `commits/N`: it will not run the epoch again."""


class Clock(Protocol):
    """Time."""

    def now_ms(self) -> int:
        """Return the wall-clock time in ms since 1970."""

    def pause(self, seconds: float) -> None:
        """Sleep."""


class Plan(Protocol):
    """The plan of one epoch, run by Spark."""

    def begin_attempt(self) -> tuple[str, str]:
        """Return a new random attempt id, and the epoch's W3C trace context or ''."""

    def stage(self, epoch: int, attempt: str) -> Staged:
        """Run the plan once and make its output durable under `attempt`.

        Raises:
            StageFailed: nothing is decided; another try needs another attempt id.
            RowRefused: a sink rejects a row and the job has no dead-letter sink.
        """

    def check_state(self, epoch: int) -> None:
        """Raise StateIncomplete unless every state partition has its next version (rule 9).

        What Spark wrote for the epoch survives a power cut afterwards.
        """

    def restore_watermark(self, event_times: tuple[EventTime, ...]) -> None:
        """Give a skipped plan the event times that it would have seen (rule 16)."""


class Sinks(Protocol):
    """All sinks of the job."""

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        """Write parts of a decided epoch to one sink, each in one transaction with its marker.

        May be called any number of times for the same record, also by several processes at once.
        With `discard` only the marker moves and no rows are written.

        Raises:
            SinkUnavailable: the result is unknown; call again, the marker decides.
            SinkRejected: permanent; the epoch stays decided.
            Fenced, SinkRegressed, MarkerMismatch: see `markers.compare_marker`.
        """

    def seed_markers(
        self,
        record: EpochRecord,
        sink: str,
        *,
        may_expire: bool,
        may_regress: bool,
        durable: bool,
    ) -> Mapping[int, Marker]:
        """Check the markers of the parts that an undecided epoch writes, and seed absent ones.

        Called while no apply runs and every sink has the epoch before. Returns the marker of each
        part that was read: the record must name it as the one before it (`markers.marker_to_name`).

        Args:
            record: undecided.
            sink: its id.
            may_expire: a marker that is absent may have expired.
            may_regress: the apply can start from an older marker, with the epochs that the sink lacks.
            durable: one that has expired is read where it does not (`SinkBinding.durable_markers`).

        Raises:
            SinkUnavailable: the result is unknown; call again.
            SinkRejected: the sink does not permit it.
            Fenced, SinkRegressed, MarkerMismatch: the record could never be applied; see
                `markers.compare_marker`.
        """

    def refresh_markers(self, record: EpochRecord) -> None:
        """Refresh the markers of a decided epoch's parts. Best effort: a failure is logged."""

    def start_apply(self, decided: DecidedEpoch) -> None:
        """Start `coordinator.apply` in the background, after waiting for the apply before it."""

    def await_applies(self) -> int | None:
        """Wait until no apply of this driver runs; raise the error of one that failed.

        Returns the last epoch that this driver has applied, None if it has applied none.
        """


@dataclass(frozen=True)
class LogPorts:
    """What steps need that only read and write the logs of a checkpoint."""

    log: EpochLog
    offsets: Offsets
    clock: Clock


@dataclass(frozen=True)
class ApplyPorts(LogPorts):
    """What applying a decided epoch needs."""

    sinks: Sinks

    def with_plan(self, plan: Plan) -> EpochPorts:
        """Return the ports of an epoch that may be staged."""
        return EpochPorts(self.log, self.offsets, self.clock, self.sinks, plan)


@dataclass(frozen=True)
class EpochPorts(ApplyPorts):
    """What a whole epoch needs."""

    plan: Plan
