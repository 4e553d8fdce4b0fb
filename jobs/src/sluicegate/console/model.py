"""What a checkpoint says about its job, and what follows from it. Pure: no I/O and no clock.

The markers in the sinks are not read. While a decided epoch may not be in every sink, it is therefore in
doubt for each sink that it writes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median

from sluicegate.protocol.record import (
    DEAD_LETTERS,
    STATE_ROWS,
    EpochRecord,
    Seal,
    SinkBinding,
)
from sluicegate.savepoints.catalog import Savepoint
from sluicegate.storage.driver_end import DriverEnd
from sluicegate.storage.driver_failure import DriverFailure
from sluicegate.storage.driver_start import DriverStart
from sluicegate.storage.epoch_report import EpochReport
from sluicegate.storage.lineage import Lineage

_PATIENCE_MS = 60_000
_PATIENCE_INTERVALS = 5
"""A job is late after a minute, or after this many of its usual intervals if they are longer."""


_GROWTH = 2
"""A state grows if it has at least so many times the rows that it had."""


@dataclass(frozen=True)
class Problem:
    """Something that could not be read, in the three parts of an error."""

    what: str
    data: str = ""
    do: str = ""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A decided epoch: its record without the rows, and its report if there is one."""

    number: int
    attempt: str
    decided_at_ms: int
    delivery: str
    overlapped: bool
    sinks: Mapping[str, SinkBinding]
    rows: Mapping[str, int]
    chunks: int
    bytes: int
    counts: Mapping[str, int]
    offsets_digest: str
    traceparent: str
    report: EpochReport | None = None

    @classmethod
    def of(cls, record: EpochRecord) -> Epoch:
        """Return the facts of a record, without its inline rows."""
        return cls(
            number=record.epoch,
            attempt=record.attempt,
            decided_at_ms=record.decided_at_ms,
            delivery=record.delivery,
            overlapped=record.overlapped,
            sinks=record.sinks,
            rows={sink: record.rows(sink) for sink in record.sinks},
            chunks=len(record.chunks),
            bytes=sum(chunk.size for chunk in record.chunks),
            counts=record.counts,
            offsets_digest=record.offsets_digest,
            traceparent=record.traceparent,
        )

    @property
    def dead_letters(self) -> dict[str, int]:
        """The number of dead letters by kind."""
        return {
            name.removeprefix(DEAD_LETTERS): number
            for name, number in self.counts.items()
            if name.startswith(DEAD_LETTERS)
        }

    @property
    def is_reported(self) -> bool:
        """Whether its driver reported that every sink has this very attempt."""
        return self.report is not None and self.report.attempt == self.attempt


class State(enum.Enum):
    """The state of a job, the most urgent first."""

    DAMAGED = "damaged"
    FAILED = "failed"
    IN_DOUBT = "in doubt"
    UNDECIDED = "undecided"
    QUIET = "quiet"
    RUNNING = "running"
    NEW = "new"
    SEALED = "sealed"

    @property
    def urgency(self) -> int:
        """The position in a list of jobs, 0 first."""
        return list(State).index(self)


@dataclass(frozen=True)
class Condition:
    """The state of a job, in a word and in a sentence; `since_ms` is since when, 0 if unknown."""

    state: State
    sentence: str
    since_ms: int = 0


@dataclass(frozen=True)
class UnreadEnd:
    """A driver that has ended, whose record is damaged or was written by another version.

    Args:
        ended_at_ms: when, in ms since 1970.
        failed: whether it failed.
    """

    ended_at_ms: int
    failed: bool


@dataclass(frozen=True)
class JobFacts:
    """What a checkpoint says.

    Args:
        key: its path in the console.
        address: where it is.
        lineage: None if it has none, or an unreadable one.
        epochs: the newest decided epochs, oldest first.
        numbers: the epochs that the log retains, in order.
        planned: the newest epoch in Spark's offset log, whose input is fixed.
        planned_at_ms: when Spark planned it, 0 if unknown.
        committed: the epochs among the newest ones that Spark has committed.
        marked: those that are marked as applied.
        discarded: epoch -> the sinks that never get its rows.
        seal: the end of the lineage.
        problems: what could not be read and matters for the data.
        notes: what could not be read and is information only.
        savepoints: those of any job that were found.
        failures: the last drivers that failed, newest first.
        ends: the last drivers that ended without a failure, newest first.
        starts: the last drivers that started, newest first.
        unread_ends: those of the last drivers whose record cannot be read, failures first.
        failed: the newest failure after which no driver has started and no epoch was decided.
        thrown_away: epoch -> the number of its attempts that ended before it was decided.
    """

    key: str
    address: str
    lineage: Lineage | None = None
    epochs: tuple[Epoch, ...] = ()
    numbers: tuple[int, ...] = ()
    planned: int | None = None
    planned_at_ms: int = 0
    committed: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    discarded: Mapping[int, frozenset[str]] = field(default_factory=dict)
    seal: Seal | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    savepoints: tuple[Savepoint, ...] = ()
    failures: tuple[DriverFailure, ...] = ()
    ends: tuple[DriverEnd, ...] = ()
    starts: tuple[DriverStart, ...] = ()
    unread_ends: tuple[UnreadEnd, ...] = ()
    failed: DriverFailure | None = None
    thrown_away: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name; that of the folder if no lineage says it."""
        return self.lineage.job if self.lineage else self.key

    @property
    def newest(self) -> Epoch | None:
        """The newest decided epoch."""
        return self.epochs[-1] if self.epochs else None

    @property
    def reports(self) -> list[EpochReport]:
        """The reports of the newest epochs, oldest first."""
        return [epoch.report for epoch in self.epochs if epoch.report is not None]

    @cached_property
    def in_doubt(self) -> Epoch | None:
        """The decided epoch that a sink may lack; at most one exists."""
        newest = self.newest
        return None if newest is None or self.is_applied(newest) else newest

    @property
    def every_sink_has(self) -> int | None:
        """The last epoch that is certainly in every sink, None if there is none."""
        if self.newest is None:
            return None
        last = self.newest.number - (self.in_doubt is not None)
        return last if last >= (self.lineage.first_epoch if self.lineage else 0) else None

    @property
    def applied_at_ms(self) -> int:
        """When every sink had its last epoch, or when that was decided; 0 if unknown."""
        epoch = next((e for e in reversed(self.epochs) if e.number == self.every_sink_has), None)
        if epoch is None:
            return 0
        steps = epoch.report.steps if epoch.report else ()
        # steps of a part are timed by another machine, whose clock may differ
        ends = [step.start_ms + step.duration_ms for step in steps if step.part is None]
        return int(max(ends, default=epoch.decided_at_ms))

    @property
    def behind_since_ms(self) -> int:
        """Since when input waits that some sink lacks, 0 if there is none or it is unknown.

        Input that Spark has not planned counts if the driver saw it when its last epoch was planned,
        as in the metric (`sluicegate.oldest_input`). Of a sealed lineage the input is that of another job.
        """
        if self.seal is not None:
            return 0
        applied = self.every_sink_has
        seen = next((report for report in self.reports if report.epoch == applied), None)
        times_ms = (int(seen.waits_since_ms) if seen else 0, self._planned_since_ms)
        return min(filter(None, times_ms), default=0)

    @property
    def _planned_since_ms(self) -> int:
        """Since when input is planned that some sink lacks, 0 if there is none or it is unknown."""
        doubt, newest = self.in_doubt, self.newest
        if doubt is not None:
            return min(doubt.decided_at_ms, self.planned_at_ms or doubt.decided_at_ms)
        planned = self.planned is not None and (newest is None or self.planned > newest.number)
        return self.planned_at_ms if planned else 0

    @property
    def interval_ms(self) -> float:
        """The usual time between two decisions, 0 if it is unknown."""
        times = [epoch.decided_at_ms for epoch in self.epochs]
        return median([b - a for a, b in pairwise(times)]) if len(times) > 1 else 0.0

    def is_applied(self, epoch: Epoch) -> bool:
        """Return whether the checkpoint proves that every sink has a decided epoch.

        A later decision, Spark's commit of an epoch without overlap, a mark, or a report does.
        """
        if self.newest is not None and epoch.number < self.newest.number:
            return True
        committed = epoch.number in self.committed and not epoch.overlapped
        return committed or epoch.number in self.marked or epoch.is_reported


def condition(job: JobFacts, now_ms: int) -> Condition:
    """Return the state of a job. Whether a driver runs is unknown: a checkpoint cannot say it."""
    ended = _ended(job)
    if ended is not None:
        return ended
    newest = job.newest
    waiting = _unfinished(job)
    patience_ms = max(_PATIENCE_MS, _PATIENCE_INTERVALS * job.interval_ms)
    if waiting is not None and now_ms - waiting.since_ms > patience_ms:
        return waiting
    if newest is None:
        what = "Nothing is decided yet." if job.lineage else "No job of Sluicegate has run on it."
        return Condition(State.NEW, what, job.planned_at_ms)
    if waiting is not None or now_ms - newest.decided_at_ms <= patience_ms:
        return Condition(State.RUNNING, "Its last epoch is recent.", newest.decided_at_ms)
    what = "Every decided epoch is in every sink, and no new one came: no input, or no driver runs."
    return Condition(State.QUIET, what, job.applied_at_ms)


def _ended(job: JobFacts) -> Condition | None:
    """Return the condition of a job that cannot continue as it is, or whose driver failed last."""
    if job.problems:
        return Condition(State.DAMAGED, f"Not readable: {job.problems[0].what}.")
    if job.seal is not None:
        what = f"Sealed before epoch {job.seal.epoch}: {job.seal.why}."
        return Condition(State.SEALED, what, job.seal.sealed_at_ms)
    if job.failed is None:
        return None
    why = job.failed.kind or f"exit code {job.failed.exit_code}"
    what = f"Its driver failed ({why}), and no driver has started since"
    then = f": {job.failed.then}." if job.failed.then else "."
    return Condition(State.FAILED, what + then, job.failed.ended_at_ms)


def _unfinished(job: JobFacts) -> Condition | None:
    """Return the condition of a job that stays as it is: an epoch is decided, or planned, and not more."""
    newest, doubt = job.newest, job.in_doubt
    if doubt is not None:
        what = f"Epoch {doubt.number} is decided, and nothing shows that every sink has it."
        return Condition(State.IN_DOUBT, what, doubt.decided_at_ms)
    if job.planned is None or (newest is not None and job.planned <= newest.number):
        return None
    what = f"Epoch {job.planned} has its input and is not decided: it is staged, or no driver runs."
    since_ms = job.planned_at_ms or (newest.decided_at_ms if newest else 0)
    return Condition(State.UNDECIDED, what, since_ms)


@dataclass(frozen=True)
class StateSize:
    """Rows in the state of a job, after the first and the last of some epochs.

    `grows`: it has at least doubled meanwhile, and no epoch made it smaller.
    """

    first: int
    before: int
    last: int
    rows: int
    grows: bool


def state_size(epochs: Sequence[Epoch]) -> StateSize | None:
    """Return how the state of a job develops; None if its epochs record no state."""
    counted = [(e.number, e.counts[STATE_ROWS]) for e in epochs if STATE_ROWS in e.counts]
    if not counted:
        return None
    (first, before), (last, now) = counted[0], counted[-1]
    steady = all(earlier <= later for (_, earlier), (_, later) in pairwise(counted))
    grows = steady and now > before and now >= _GROWTH * before
    return StateSize(first, before, last, now, grows)
