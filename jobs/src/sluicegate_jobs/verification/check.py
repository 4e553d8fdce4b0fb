"""What the checks of all packaged jobs share: they read topics and tables, and check the markers.

A check runs while the job is stopped or idle, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pymysql
from confluent_kafka.admin import ResourceType
from pymysql.cursors import SSCursor

from sluicegate.errors import SinkUnavailable, SluicegateError, TargetMissing
from sluicegate.packaged_job import JobSettings, Verification
from sluicegate.protocol.markers import Marker
from sluicegate.savepoints.takeover import successor
from sluicegate.settings.epoch import EXACTLY_ONCE
from sluicegate.sinks.contract import quoted
from sluicegate.sinks.kafka.admin import KafkaAdmin
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.marker_reader import committed_marker
from sluicegate.sinks.kafka.reader import CommittedReader, Record, read_committed
from sluicegate.sinks.mysql.catalog import Catalog
from sluicegate.sinks.mysql.connection import Address, connect
from sluicegate.sinks.mysql.connection import Connection as Database
from sluicegate.sinks.mysql.writer import MARKERS
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.verification.epoch_log import (
    SinkState,
    SourceRecords,
    compare_decided,
    read_decided,
)
from sluicegate_jobs.verification.limits import SinkLimits, TableLimits, TopicLimits
from sluicegate_jobs.verification.watermarks import Watermarks, read_watermarks

_TIMEOUT_S = 120.0
_NO_SUCH_TABLE = 1146


class Check:
    """One check of a job; `source` is its topic, empty for a batch."""

    def __init__(self, settings: JobSettings, source: str = "") -> None:
        self._settings, self._source = settings, source
        self.objects = open_store(settings.checkpoint)
        self.decided = read_decided(self.objects, source or None)
        self._records: dict[str, int] = {}

    @cached_property
    def _kafka(self) -> Connection:
        return Connection.of(self._settings.kafka)

    @cached_property
    def _database(self) -> Address:
        return Address.parse(self._settings.mysql or None)

    def source(self, *, late_rows: bool = False) -> SourceRecords:
        """Return the records of the source; reading them fails if retention removed the oldest ones.

        Args:
            late_rows: the job drops late rows, so read the watermarks of all retained epochs.
        """
        watermarks = Watermarks()
        if late_rows and self.decided.newest:
            newest = self.decided.newest.epoch
            watermarks = read_watermarks(self.objects, self._source, newest)
        return SourceRecords(self._source, self.source_records(), self.decided.covered, watermarks)

    def limits(self, *, topic: str = "", table: str = "") -> SinkLimits:
        """Return the limits of the job's sinks, as the servers name them now."""
        topics, tables = {}, {}
        if topic:
            config = KafkaAdmin(self._kafka).config(ResourceType.TOPIC, topic)
            topics[f"kafka.{topic}"] = TopicLimits(
                int(config["max.message.bytes"]),
                compacted="compact" in config["cleanup.policy"],
            )
        if table:
            with self._session(f"the columns of {table}") as session:
                catalog = Catalog(session)
                found = catalog.table(table)
                columns = found.by_lower_name() if found else {}
                tables[f"mysql.{table}"] = TableLimits(columns, catalog.server.max_allowed_packet)
        return SinkLimits(topics, tables)

    def source_records(self) -> Iterator[Record]:
        """Yield all records of the source, whether a decided epoch has read them or not.

        Raises:
            SluicegateError: retention has removed the oldest ones.
        """
        with CommittedReader(self._kafka) as reader:
            bounds = reader.bounds(self._source)
            removed = {partition: begin for partition, (begin, _) in bounds.items() if begin}
            if removed:
                raise SluicegateError(
                    f"topic {self._source} no longer has its first records: the oldest offsets are {removed}",
                    data="what the sinks must hold cannot be recomputed; no error was found",
                    do="raise the topic's retention and check a run from its beginning",
                )
            yield from reader.read(self._source, bounds)

    def topic_records(self, topic: str) -> Iterator[Record]:
        """Yield the records of a sink's topic and count them."""
        self._records[topic] = 0
        for record in read_committed(self._kafka, topic):
            self._records[topic] += 1
            yield record

    def topic_values(self, topic: str) -> Iterator[bytes | None]:
        """Yield the values of a sink's topic and count them."""
        return (record.value for record in self.topic_records(topic))

    def table_rows(self, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table; `columns` is SQL, in the order of the values."""
        with self._session(f"table {table}") as session, session.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {columns} FROM {quoted(table)}")  # noqa: S608 - a quoted name and our own columns
            while rows := cursor.fetchmany(10_000):
                yield from rows

    def conclude(self, compared: Verification, table: str = "") -> Verification:
        """Return a comparison of rows, completed by a comparison of markers with the epoch log.

        All topics of sinks must have been read before. `table` is the one of the MySQL sink, if any.
        """
        states = self._sink_states(table)
        _check_not_moved(states)
        newest = self.decided.newest.epoch if self.decided.newest else None
        if StoredEpochLog(self.objects).decided()[-1:] != ([] if newest is None else [newest]):
            raise SluicegateError(
                "the job decided an epoch while it was being checked",
                data="no error was found; the comparison was discarded",
                do="stop the job, or wait until it has read its input, and check again",
            )
        if newest is None and compared.exact:
            # Without findings this would look like a proof.
            raise SluicegateError(
                f"no epoch is decided in checkpoint {self._settings.checkpoint}, and the sinks are empty",
                data="nothing was compared, so nothing is proved",
                do="run the job first; if it has run, give the checkpoint that it ran with",
            )
        checked = compared.checked | {"decided epochs in the log": len(self.decided.attempts)}
        if self.decided.rows is None:
            checked["pruned epochs, whose records are not counted"] = min(self.decided.attempts)
        return Verification(checked, compared.findings + compare_decided(self.decided, states))

    def _sink_states(self, table: str) -> dict[str, SinkState]:
        """Return the markers and record counts of the sinks; without a decided epoch, no markers."""
        newest = self.decided.newest
        records = {f"kafka.{topic}": count for topic, count in self._records.items()}
        if newest is None or newest.delivery != EXACTLY_ONCE:
            return {sink: SinkState({}, count) for sink, count in records.items()}
        parts = {sink: range(binding.parts) for sink, binding in newest.sinks.items()}
        states = {}
        for sink, count in records.items():
            markers = {
                part: committed_marker(
                    self._kafka, newest.lineage, sink, part, timeout_s=_TIMEOUT_S
                )
                for part in parts.get(sink, ())
            }
            states[sink] = SinkState(markers, count)
        if table:
            sink = f"mysql.{table}"
            rows = self._table_markers(newest.lineage, sink)
            states[sink] = SinkState({p: rows.get(p) for p in {*parts.get(sink, ()), *rows}}, None)
        return states

    def _table_markers(self, lineage: str, sink: str) -> dict[int, Marker]:
        query = (
            f"SELECT part, epoch, attempt FROM {quoted(MARKERS)} WHERE lineage = %s AND sink = %s"  # noqa: S608 - a constant
        )
        with self._session(f"the markers of {sink}") as session, session.cursor() as cursor:
            cursor.execute(query, (lineage, sink))
            return {
                int(p): Marker(int(epoch), str(attempt)) for p, epoch, attempt in cursor.fetchall()
            }

    @contextmanager
    def _session(self, what: str) -> Iterator[Database]:
        """Connect for reading `what`; translates the server's errors."""
        connection = connect(self._database, timeout_s=_TIMEOUT_S)
        try:
            yield connection
        except pymysql.err.Error as error:
            if error.args[:1] == (_NO_SUCH_TABLE,):
                raise TargetMissing(
                    f"{self._database}: {what}: the table does not exist",
                    data="nothing was compared; if the job has run, the table was dropped since",
                    do="check the name and the url; `sluicegate targets` creates missing tables",
                ) from error
            raise SinkUnavailable(
                f"{self._database} did not return {what}: {error}",
                data="nothing was compared; nothing was changed",
                do="check the server and the name, then run the check again",
            ) from error
        finally:
            connection.close()


def _check_not_moved(states: Mapping[str, SinkState]) -> None:
    """Refuse to check a sealed parent: its sinks have continued without it."""
    markers = [marker for state in states.values() for marker in state.markers.values()]
    lineage = next((successor(marker) for marker in markers if successor(marker)), "")
    if lineage:
        raise SluicegateError(
            f"the job was moved: lineage {lineage} has taken its sinks over",
            data="no error was found; the other checkpoint describes what the sinks hold now",
            do="give the checkpoint that the savepoint was restored into",
        )
