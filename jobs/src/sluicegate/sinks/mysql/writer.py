"""A MySQL sink bound to its table, and the writer that applies a part of a decided epoch (rule 12).

The marker row is seeded beforehand in its own transaction, because a lock on a missing row let two
appliers both commit. The transaction locks it first, so that appliers of one part queue up, compares it,
and advances it last and only from `prev`. Any error discards the whole connection: error 1205 rolls back
only a statement, and a driver that reconnects would continue in autocommit with half of the rows gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import pyarrow as pa
import pymysql

from sluicegate.errors import MarkerMismatch, SinkRejected, SinkUnavailable, TargetMissing
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.contract import PartDecision, Receipt, apply_steps
from sluicegate.sinks.mysql import errors as mysql_errors
from sluicegate.sinks.mysql.connection import Address, Connection, connect
from sluicegate.sinks.mysql.row_validation import refusals
from sluicegate.sinks.mysql.statements import InsertForm, inserts

MARKERS = "sluicegate_markers"
"""The marker table: in the same database as the rows, so in the same transaction."""

_READ = f"SELECT epoch, attempt FROM {MARKERS} WHERE lineage = %s AND sink = %s AND part = %s"  # noqa: S608 - a constant
_SEED = (
    f"INSERT IGNORE INTO {MARKERS} (lineage, sink, part, epoch, attempt, updated_at) "  # noqa: S608 - a constant
    "VALUES (%s, %s, %s, %s, %s, UTC_TIMESTAMP(6))"
)
_ADVANCE = (
    f"UPDATE {MARKERS} SET epoch = %s, attempt = %s, updated_at = UTC_TIMESTAMP(6) "  # noqa: S608 - a constant
    "WHERE lineage = %s AND sink = %s AND part = %s AND epoch = %s AND attempt = %s"
)
_COMMITTING = "committing"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BoundMySQL:
    """See `contract.BoundSink`. Its repr does not show the password, which it carries to executors.

    Args:
        expressions: staged columns, spelled as in the table, and their Spark SQL.
        statement_rows: approximate number of rows per statement.
        packet_bytes: the server's max_allowed_packet at the preflight.
        apply_timeout_s: how long one apply may take.
        lineage: whose marker `MySQLPartWriter.marker` reads.
    """

    refresh_every_s: ClassVar[float | None] = None  # markers never expire

    id: str
    binding: SinkBinding
    expressions: tuple[tuple[str, str], ...]
    part_expression: str | None
    address: Address
    form: InsertForm
    statement_rows: int
    packet_bytes: int
    apply_timeout_s: float
    lineage: str

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        row_bytes = self.packet_bytes - self.form.overhead()
        return refusals(batch, self.form.columns, keys=self.form.keys, row_bytes=row_bytes)

    def open(self, part: int) -> MySQLPartWriter:
        """Return a writer; it connects when it is first used.

        Earlier writers of the part need no fencing: each locks and compares the marker row.
        """
        return MySQLPartWriter(self, part)


class MySQLPartWriter:
    """One connection, reused between applies; see `contract.PartWriter`."""

    def __init__(self, sink: BoundMySQL, part: int) -> None:
        self._sink, self._part = sink, part
        self._where = f"sink {sink.id}, part {part}, {sink.binding.target}"
        self._connection: Connection | None = None
        self._step = ""
        self._deadline = 0.0

    def marker(self, *, durable: bool = False) -> Marker | None:  # noqa: ARG002 - it never expires
        # A separate connection: the writer's own may be in a transaction and would see its marker.
        key = (self._sink.lineage, self._sink.id, self._part)
        return _read_and_close(self._open(), key, self._where)

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        started_ns = time.time_ns()
        self._deadline = time.monotonic() + self._sink.apply_timeout_s
        connection = self._connected()
        self._step = "beginning"
        try:
            if not decision.markers:
                connection.begin()
            elif self._begin(connection, decision) is Verdict.SKIP:
                connection.rollback()
                return Receipt(Verdict.SKIP, steps=apply_steps((started_ns, time.time_ns())))
            return self._write_and_commit(connection, decision, batches, started_ns)
        except pymysql.err.Error as error:  # an OSError comes from the batches and passes unchanged
            self._discard_connection()
            raise mysql_errors.apply_error(
                error, self._where, self._step, committing=self._step == _COMMITTING
            ) from error
        except BaseException:
            self._discard_connection()
            raise

    def close(self) -> None:
        """Close the connection; the server rolls back an open transaction."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()  # the driver suppresses errors of the socket

    def _begin(self, connection: Connection, decision: PartDecision) -> Verdict:
        """Open the transaction, lock the marker and compare it."""
        key = (decision.lineage, self._sink.id, self._part)
        if decision.prev == NO_MARKER:
            self._step = "seeding the marker"  # in autocommit: a transaction of its own
            _execute(connection, _SEED, (*key, NO_MARKER.epoch, NO_MARKER.attempt))
        self._step = "locking the marker"
        connection.begin()
        return decision.verdict(_read_marker(connection, key, lock=True), self._where)

    def _write_and_commit(
        self,
        connection: Connection,
        decision: PartDecision,
        batches: Iterable[pa.RecordBatch],
        started_ns: int,
    ) -> Receipt:
        sink = self._sink
        rows_to_write = iter(batches)
        first = next(rows_to_write, None)
        if first is not None:
            self._check_form(decision)
            rows_to_write = chain((first,), rows_to_write)
        decision.reach("apply-begun")
        times_ns = [started_ns, time.time_ns()]
        rows = size = 0
        self._step = "writing rows"
        for statement in inserts(
            rows_to_write,
            sink.form,
            statement_rows=sink.statement_rows,
            packet_bytes=sink.packet_bytes,
        ):
            self._check_deadline()
            connection.query(statement.sql)
            rows, size = rows + statement.rows, size + len(statement.sql)
        decision.reach("apply-written")
        decision.reach("apply-flushed")  # the server has answered each statement
        times_ns.append(time.time_ns())
        if decision.markers:
            self._step = "advancing the marker"
            self._advance(connection, decision)
        self._check_deadline()
        decision.reach("before-commit")
        times_ns.append(
            time.time_ns()
        )  # 'flush' is the time of the marker: all rows are already sent
        self._step = _COMMITTING
        connection.commit()
        times_ns.append(time.time_ns())
        decision.reach("after-commit")
        return Receipt(Verdict.APPLY, rows, size, apply_steps(times_ns))

    def _check_form(self, decision: PartDecision) -> None:
        """Raise SinkRejected for rows that were staged to be written in another way."""
        ours = self._sink.binding.form
        if decision.form and decision.form != ours:
            raise SinkRejected(
                f"{self._where}: the rows of epoch {decision.this.epoch} were decided to be written as "
                f"({decision.form}), and this job writes ({ours})",
                data="the epoch stays decided; nothing of it was written here",
                do="start the job once with its former columns, keys and on_conflict; change them after "
                "the epoch is applied",
            )

    def _advance(self, connection: Connection, decision: PartDecision) -> None:
        this, prev = decision.this, decision.prev
        key = (decision.lineage, self._sink.id, self._part)
        moved = _execute(
            connection, _ADVANCE, (this.epoch, this.attempt, *key, prev.epoch, prev.attempt)
        )
        if moved != 1:
            raise MarkerMismatch(
                f"{self._where}: the marker update changed {moved} rows instead of 1, from {prev}",
                data="all of this part was rolled back; somebody else changed the marker",
                do=f"find out who writes to {MARKERS}; only Sluicegate may",
            )

    def _connected(self) -> Connection:
        """Return a working connection; connections are opened only here, never during an apply."""
        if self._connection is not None:
            try:
                self._connection.ping(reconnect=False)
            except (pymysql.err.Error, OSError) as error:
                # Expected: the server ends sessions that are idle longer than an apply may take.
                _log.debug("%s: reconnecting, the session ended: %s", self._where, error)
                self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> Connection:
        try:
            return connect(self._sink.address, timeout_s=self._sink.apply_timeout_s)
        except TargetMissing as error:
            data = "nothing of this part is written; the epoch stays decided, nothing is lost"
            raise SinkRejected(error.what, data=data, do=error.do) from error

    def _discard_connection(self) -> None:
        """Roll back at once if the connection works, so that its locks end; then close it."""
        connection = self._connection
        if connection is not None and connection.open:
            try:
                connection.rollback()
            except (pymysql.err.Error, OSError) as error:
                _log.debug("%s: rollback failed, the server will roll back: %s", self._where, error)
        self.close()

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise SinkUnavailable(
                f"{self._where}: {self._step} took longer than an apply may, "
                f"{self._sink.apply_timeout_s:g} s",
                data="all of this part was rolled back; the next attempt reads the marker first",
                do="check the server for locks and load, or raise apply-timeout-s; smaller epochs or "
                "more parts help only the epochs that are not yet decided",
            )


def committed_marker(
    address: Address, lineage: str, sink: str, part: int, *, timeout_s: float = 10.0
) -> Marker | None:
    """Return a part's marker without waiting for an open transaction.

    Raises:
        SinkUnavailable, AccessDenied, TargetMissing: no connection, or no marker table.
    """
    connection = connect(address, timeout_s=timeout_s)
    return _read_and_close(
        connection, (lineage, sink, part), f"sink {sink}, part {part}, {address}"
    )


def _read_and_close(connection: Connection, key: tuple[str, str, int], where: str) -> Marker | None:
    with connection:
        try:
            return _read_marker(connection, key, lock=False)
        except pymysql.err.Error as error:
            raise mysql_errors.apply_error(error, where, "reading the marker") from error


def _read_marker(connection: Connection, key: tuple[str, str, int], *, lock: bool) -> Marker | None:
    """Return the marker of this lineage, sink and part."""
    with connection.cursor() as cursor:
        cursor.execute(_READ + (" FOR UPDATE" if lock else ""), key)
        row = cursor.fetchone()
    return Marker(int(row[0]), str(row[1])) if row else None


def _execute(connection: Connection, sql: str, values: tuple[object, ...]) -> int:
    with connection.cursor() as cursor:
        return int(cursor.execute(sql, values))
