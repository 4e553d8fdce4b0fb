"""What the epoch log of a checkpoint decided, against what its sinks say of themselves.

The part of every check that knows nothing of the job's rows; also how a check reads topics and
tables. Nothing is written anywhere. Called by the verifiers of the packaged jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.cursors import SSCursor

from sluicegate.checkpoint.manifest import read_ancestry
from sluicegate.checkpoint.savepoints import inherited
from sluicegate.checkpoint.takeover import successor
from sluicegate.cli.job import Finding, Verification
from sluicegate.protocol.errors import (
    EpochLogBroken,
    SinkUnavailable,
    SluicegateError,
    TargetMissing,
)
from sluicegate.protocol.markers import GENESIS, Marker
from sluicegate.protocol.record import EXACTLY_ONCE, EpochRecord
from sluicegate.sinks.kafka.clients import Connection as Brokers
from sluicegate.sinks.kafka.committed import committed_marker
from sluicegate.sinks.mysql.session import Address, Connection, connect, quoted
from sluicegate.sinks.mysql.writer import MARKERS
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import Objects, open_objects
from sluicegate_jobs.findings import LOST, UNDECIDED, Findings
from sluicegate_jobs.kafka_reader import Record, TopicReader

_TIMEOUT_S = 120.0
_NO_SUCH_TABLE = 1146


@dataclass(frozen=True)
class Decided:
    """What the epoch log says.

    Args:
        newest: the newest record, None where nothing is decided.
        attempts: kept epoch -> the attempt that was decided.
        rows: sink -> rows of all decided epochs, a restored job's parents' too, as far as they went
            into the same sinks; None where the oldest are pruned.
        covered: partition of the source -> the first offset that no decided epoch has read.
    """

    newest: EpochRecord | None = None
    attempts: Mapping[int, str] = field(default_factory=dict)
    rows: Mapping[str, int] | None = None
    covered: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """What a sink says of itself.

    Args:
        markers: part -> its marker.
        records: how many records a reader sees; None for a table, whose rows are replaced.
    """

    markers: Mapping[int, Marker | None]
    records: int | None


def compare_decided(decided: Decided, held: Mapping[str, Held]) -> tuple[Finding, ...]:
    """Return where what a sink holds is not what was decided.

    Args:
        decided: what the epoch log says.
        held: sink -> what is there.
    """
    findings = Findings()
    chain = decided.newest.chain() if decided.newest else {}
    for sink, there in held.items():
        for part, marker in there.markers.items():
            expected = chain.get(sink, {}).get(part, GENESIS)
            _check_marker(f"{sink}, part {part}", marker or GENESIS, expected, decided, findings)
        if decided.rows is not None and there.records is not None:
            _check_records(sink, there.records, decided.rows.get(sink, 0), findings)
    return findings.found()


def _check_marker(
    where: str, found: Marker, expected: Marker, decided: Decided, findings: Findings
) -> None:
    if found == expected:
        return
    behind = found.epoch < expected.epoch
    # an older epoch whose record is pruned was decided once; by whom cannot be told any more
    known = decided.attempts.get(found.epoch, found.attempt if behind else None)
    if behind and known == found.attempt:
        what = f"{where}: holds {found}; {expected} is decided and not applied yet: run the job"
        findings.add(LOST, what)
    else:
        findings.add(UNDECIDED, f"{where}: holds {found}; the log decided {expected}")


def _check_records(sink: str, records: int, rows: int, findings: Findings) -> None:
    if records < rows:
        what = f"{sink}: {rows} records are decided, {records} are there: lost, or not applied yet"
        findings.add(LOST, what, rows - records)
    elif records > rows:
        what = f"{sink}: {rows} records are decided, {records} are there"
        findings.add(UNDECIDED, f"{what}: some twice, or never decided", records - rows)


def read_decided(objects: Objects, topic: str | None) -> Decided:
    """Return what the epoch log of a checkpoint says about a job that reads `topic`, if any."""
    log = StoredEpochLog(objects)
    attempts: dict[int, str] = {}
    rows: dict[str, int] = {}
    newest: EpochRecord | None = None
    for epoch in log.decided():
        record = log.read(epoch)
        if record is None:
            continue  # pruned since it was listed
        newest, attempts[epoch] = record, record.attempt
        discarded = log.discarded(epoch)
        for sink in record.sinks.keys() - discarded:
            rows[sink] = rows.get(sink, 0) + record.rows(sink)
    ancestry, lineage = read_ancestry(objects), read_lineage(objects)
    if newest is None:
        covered = _covered(objects, ancestry.epoch, topic) if ancestry else {}
        return Decided(rows={}, covered=covered)
    whole = (lineage.first_epoch if lineage else 0) in attempts
    if ancestry is not None:
        whole = whole and ancestry.rows is not None
        for sink, before in inherited(ancestry, newest).items():
            rows[sink] = rows.get(sink, 0) + before
    covered = _covered(objects, newest.epoch, topic)
    return Decided(newest, attempts, rows if whole else None, covered)


def _covered(objects: Objects, epoch: int, topic: str | None) -> dict[int, int]:
    """Return how far an epoch has read, by Spark's own offset log; nothing of a batch."""
    if topic is None:
        return {}
    stored = objects.read(f"offsets/{epoch}")
    # a version, metadata, then an offset for each source; '-' where a source has none yet
    sources = [
        json.loads(line) for line in (stored or b"").decode().splitlines()[2:] if line != "-"
    ]
    offsets = [{int(p): int(o) for p, o in s[topic].items()} for s in sources if topic in s]
    if not offsets or any(offset != offsets[0] for offset in offsets):
        raise EpochLogBroken(
            f"epoch {epoch} is decided, and offsets/{epoch} does not say how far {topic} was read",
            data="which lines must be in the sinks is unknown; nothing was compared",
            do="check that this is the job's checkpoint and source; restore offsets/ if it is",
        )
    return offsets[0]


def whole(servers: str, topic: str) -> Iterator[Record]:
    """Yield the records of a source, which must be there from the first.

    Raises:
        SluicegateError: the oldest are gone.
    """
    reader = TopicReader(servers, topic)
    gone = {partition: begin for partition, begin in reader.begins.items() if begin}
    if gone:
        raise SluicegateError(
            f"topic {topic} no longer has its first lines: {gone} are the oldest offsets",
            data="what the sinks should hold cannot be recomputed; nothing is known to be wrong",
            do="raise the topic's retention and check a run from its beginning",
        )
    yield from reader


def counted(servers: str, topic: str, seen: dict[str, int]) -> Iterator[Record]:
    """Yield the records of a sink's topic and count them."""
    seen[topic] = 0
    for record in TopicReader(servers, topic):
        seen[topic] += 1
        yield record


def table_rows(database: Address, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table.

    Args:
        database: where it is.
        table: its name.
        columns: as SQL, in the order of the values.

    Raises:
        TargetMissing, SinkUnavailable: it cannot be read.
    """
    with (
        database_session(database, f"table {table}") as connection,
        connection.cursor(SSCursor) as cursor,
    ):
        cursor.execute(f"SELECT {columns} FROM {quoted(table)}")  # noqa: S608 - quoted, and ours
        while rows := cursor.fetchmany(10_000):
            yield from rows


def _refuse_a_moved_job(held: Mapping[str, Held]) -> None:
    """A sealed parent's sinks have gone on without it."""
    markers = [marker for there in held.values() for marker in there.markers.values()]
    found = next((successor(marker) for marker in markers if successor(marker)), "")
    if found:
        raise SluicegateError(
            f"the job was moved: lineage {found} has taken its sinks over",
            data="nothing is known to be wrong; what the sinks hold now is in the other's checkpoint",
            do="give the checkpoint that the savepoint was restored into",
        )


def concluded(
    checkpoint: str, decided: Decided, compared: Verification, held: Mapping[str, Held]
) -> Verification:
    """Return a comparison of rows with that of the sinks' markers added.

    Args:
        checkpoint: of the job.
        decided: what the epoch log said before the comparison.
        compared: what the rows are like.
        held: what each sink says of itself.

    Raises:
        SluicegateError: nothing was ever decided, or the job went on meanwhile.
    """
    _refuse_a_moved_job(held)
    newest = decided.newest.epoch if decided.newest else None
    if StoredEpochLog(open_objects(checkpoint)).decided()[-1:] != (
        [] if newest is None else [newest]
    ):
        raise SluicegateError(
            "the job decided an epoch while it was being checked",
            data="nothing is known to be wrong; the comparison was thrown away",
            do="stop the job, or wait until its input is read, and check again",
        )
    if newest is None and compared.exact:
        # no finding here would read as a proof
        raise SluicegateError(
            f"no epoch is decided in checkpoint {checkpoint}, and the sinks are empty",
            data="nothing was compared, so nothing is proved",
            do="run the job first; if it has run, give the checkpoint that it ran with",
        )
    checked = compared.checked | {"decided epochs in the log": len(decided.attempts)}
    if decided.rows is None:
        checked["pruned epochs, whose records are not counted"] = min(decided.attempts)
    return Verification(checked, compared.findings + compare_decided(decided, held))


def held_by(
    decided: Decided,
    topics: Mapping[str, int],
    servers: str,
    table: str = "",
    database: Address | None = None,
) -> dict[str, Held]:
    """Ask each sink for its markers.

    Args:
        decided: names lineage and parts; without a decision there is no marker to ask for.
        topics: topic of a Kafka sink -> records that a reader sees.
        servers: of Kafka.
        table: of the MySQL sink, where there is one.
        database: of the table.
    """
    newest = decided.newest
    records = {f"kafka.{topic}": count for topic, count in topics.items()}
    if newest is None or newest.delivery != EXACTLY_ONCE:
        return {sink: Held({}, count) for sink, count in records.items()}
    parts = {sink: range(binding.parts) for sink, binding in newest.sinks.items()}
    held = {}
    for sink, count in records.items():
        markers = {
            p: committed_marker(Brokers.of(servers), newest.lineage, sink, p, timeout_s=_TIMEOUT_S)
            for p in parts.get(sink, ())
        }
        held[sink] = Held(markers, count)
    if database is not None:
        sink = f"mysql.{table}"
        found = _table_markers(database, newest.lineage, sink)
        held[sink] = Held({p: found.get(p) for p in {*parts.get(sink, ()), *found}}, None)
    return held


def _table_markers(database: Address, lineage: str, sink: str) -> dict[int, Marker]:
    with (
        database_session(database, f"the markers of {sink}") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            f"SELECT part, epoch, attempt FROM {quoted(MARKERS)} WHERE lineage = %s AND sink = %s",  # noqa: S608 - a constant
            (lineage, sink),
        )
        return {int(p): Marker(int(epoch), str(attempt)) for p, epoch, attempt in cursor.fetchall()}


@contextmanager
def database_session(database: Address, what: str) -> Iterator[Connection]:
    """Connect for reading; what the server says becomes an error of ours.

    Args:
        database: where it is.
        what: what is read, for errors.
    """
    connection = connect(database, timeout_s=_TIMEOUT_S)
    try:
        yield connection
    except pymysql.err.Error as error:
        if error.args[:1] == (_NO_SUCH_TABLE,):
            raise TargetMissing(
                f"{database}: {what}: there is no such table",
                data="nothing was compared; if the job has run, the table was dropped since",
                do="check the name and the url; `sluicegate targets` creates missing tables",
            ) from error
        raise SinkUnavailable(
            f"{database} gave no answer for {what}: {error}",
            data="nothing was compared; nothing was changed",
            do="look at the server and the name, then run the check again",
        ) from error
    finally:
        connection.close()
