"""Compares what the epoch log of a checkpoint decided with the markers and record counts of the sinks.

This is the part of every check that does not depend on the job's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sluicegate.errors import EpochLogBroken
from sluicegate.packaged_job import Finding
from sluicegate.protocol.markers import NO_MARKER, Marker, is_seed_of
from sluicegate.protocol.record import EpochRecord
from sluicegate.savepoints.manifest import read_ancestry
from sluicegate.sinks.kafka.reader import Record
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore
from sluicegate_jobs.verification.findings import LOST, UNDECIDED, Findings
from sluicegate_jobs.verification.watermarks import Watermarks, read_plan


@dataclass(frozen=True)
class DecidedState:
    """What the epoch log decided.

    Args:
        newest: the newest record, None if nothing is decided.
        attempts: epoch whose record is retained -> the attempt that was decided.
        rows: sink -> rows of all decided epochs, including those that a restored job's parents wrote
            into the same sinks; None if the oldest records are pruned.
        covered: partition of the source -> the first offset that no decided epoch has read.
        has_all_records: whether the retained records decided every row in the sinks: none is pruned, and
            no parent of a restored job has written any.
    """

    newest: EpochRecord | None = None
    attempts: Mapping[int, str] = field(default_factory=dict)
    rows: Mapping[str, int] | None = None
    covered: Mapping[int, int] = field(default_factory=dict)
    has_all_records: bool = True


@dataclass(frozen=True)
class SinkState:
    """The markers of a sink's parts, and its number of records: None for a table, which replaces rows."""

    markers: Mapping[int, Marker | None]
    records: int | None


def compare_decided(decided: DecidedState, states: Mapping[str, SinkState]) -> tuple[Finding, ...]:
    """Return where the states of sinks differ from what was decided. Pure."""
    findings = Findings()
    chain = decided.newest.chain() if decided.newest else {}
    for sink, state in states.items():
        for part, marker in state.markers.items():
            expected = chain.get(sink, {}).get(part, NO_MARKER)
            _check_marker(f"{sink}, part {part}", marker or NO_MARKER, expected, decided, findings)
        if decided.rows is not None and state.records is not None:
            _check_records(sink, state.records, decided.rows.get(sink, 0), findings)
    return findings.result()


def _check_marker(
    where: str, actual: Marker, expected: Marker, decided: DecidedState, findings: Findings
) -> None:
    if actual == expected or is_seed_of(actual, expected):
        return
    older = actual.epoch < expected.epoch
    # An older epoch whose record is pruned was decided once; its attempt is no longer known.
    attempt = decided.attempts.get(actual.epoch, actual.attempt if older else None)
    if older and attempt == actual.attempt:
        findings.add(
            LOST, f"{where}: holds {actual}; {expected} is decided but not applied yet: run the job"
        )
    else:
        findings.add(UNDECIDED, f"{where}: holds {actual}; the log decided {expected}")


def _check_records(sink: str, records: int, rows: int, findings: Findings) -> None:
    what = f"{sink}: {rows} records are decided, {records} exist"
    if records < rows:
        findings.add(LOST, f"{what}: lost, or not applied yet", rows - records)
    elif records > rows:
        findings.add(UNDECIDED, f"{what}: some twice, or never decided", records - rows)


def read_decided(objects: ObjectStore, topic: str | None) -> DecidedState:
    """Return what the epoch log of a checkpoint decided; `topic` is the job's source, None for a batch."""
    log = StoredEpochLog(objects)
    attempts: dict[int, str] = {}
    rows: dict[str, int] = {}
    newest: EpochRecord | None = None
    for epoch in log.decided():
        record = log.read(epoch)
        if record is None:
            continue  # pruned since the listing
        newest, attempts[epoch] = record, record.attempt
        discarded = log.discarded(epoch)
        for sink in record.sinks.keys() - discarded:
            rows[sink] = rows.get(sink, 0) + record.rows(sink)
    ancestry, lineage = read_ancestry(objects), read_lineage(objects)
    if newest is None:
        covered = _covered(objects, ancestry.epoch, topic) if ancestry else {}
        return DecidedState(rows={}, covered=covered, has_all_records=ancestry is None)
    has_all = complete = (lineage.first_epoch if lineage else 0) in attempts
    if ancestry is not None:
        complete = complete and ancestry.rows is not None
        inherited = ancestry.inherited_rows(newest)
        has_all = complete and not any(inherited.values())
        for sink, number in inherited.items():
            rows[sink] = rows.get(sink, 0) + number
    covered = _covered(objects, newest.epoch, topic)
    return DecidedState(newest, attempts, rows if complete else None, covered, has_all)


def _covered(objects: ObjectStore, epoch: int, topic: str | None) -> Mapping[int, int]:
    """Return how far an epoch has read, from Spark's offset log; empty for a batch."""
    if topic is None:
        return {}
    plan = read_plan(objects, epoch, topic)
    if plan is None:
        raise EpochLogBroken(
            f"epoch {epoch} is decided, and offsets/{epoch} does not say how far {topic} was read",
            data="it is unknown which records must be in the sinks; nothing was compared",
            do="check that this is the job's checkpoint and source; restore offsets/ if it is",
        )
    return plan.ends


class SourceRecords:
    """The records of a job's source. Counts those that decided epochs have read, and the others.

    Args:
        topic: of the source.
        records: all of them, those of each partition in order.
        covered: partition -> the first offset that no decided epoch has read.
        watermarks: of the epochs that read them; without any, no row was late.
    """

    def __init__(
        self,
        topic: str,
        records: Iterable[Record],
        covered: Mapping[int, int],
        watermarks: Watermarks | None = None,
    ) -> None:
        self.topic = topic
        self.watermarks = watermarks or Watermarks()
        self._records, self._covered = records, covered
        self._read = self._unread = 0

    def __iter__(self) -> Iterator[Record]:
        """Yield the records that decided epochs have read."""
        return (record for record, read in self.with_unread() if read)

    def with_unread(self) -> Iterator[tuple[Record, bool]]:
        """Yield every record, and whether a decided epoch has read it."""
        for record in self._records:
            read = record.offset < self._covered.get(record.partition, 0)
            self._read += read
            self._unread += not read
            yield record, read

    def counts(self, noun: str = "records") -> dict[str, int]:
        """Return how many records were read and not read, for `Verification.checked`."""
        return {f"source {noun}": self._read, f"source {noun} not read yet": self._unread}
