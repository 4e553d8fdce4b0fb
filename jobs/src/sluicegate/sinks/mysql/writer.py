"""Applies one part of a decided epoch to a table (rule 12).

The marker row is seeded beforehand in its own transaction, because a lock on a missing row let two
appliers both commit. The transaction locks it first, so that appliers of one part queue up, compares it,
and advances it last and only from `prev`. Any error discards the whole connection: error 1205 rolls back
only a statement, and a driver that reconnects would continue in autocommit with half of the rows gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sluicegate.errors import MarkerMismatch, SinkRejected, SinkUnavailable, TargetMissing
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict, compare_marker
from sluicegate.sinks.contract import PartDecision, Receipt, Step
from sluicegate.sinks.mysql import errors as mysql_errors
from sluicegate.sinks.mysql.connection import Address, Connection, connect
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
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartPlan:
    """The configuration of a writer; see `BoundMySQL` for the other fields.

    Args:
        lineage: whose marker `MySQLPartWriter.marker` reads.
        where: sink, part and table, for messages.
    """

    lineage: str
    sink: str
    part: int
    where: str
    address: Address
    form: InsertForm
    statement_rows: int
    packet_bytes: int
    apply_timeout_s: float


class MySQLPartWriter:
    """One connection, reused between applies; see `contract.PartWriter`."""

    def __init__(self, plan: PartPlan) -> None:
        self._plan = plan
        self._connection: Connection | None = None
        self._step = ""
        self._committing = False
        self._deadline = 0.0

    def marker(self) -> Marker | None:
        """Return the committed marker, None if there is none."""
        # A separate connection: the writer's own may be in a transaction and would see its marker.
        connection = self._open()
        try:
            return self._read(connection, self._plan.lineage, lock=False)
        except pymysql.err.Error as error:
            raise mysql_errors.apply_error(
                error, self._plan.where, "reading the marker", committing=False
            ) from error
        finally:
            connection.close()

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write all rows and the marker in one transaction; see `contract.PartWriter`."""
        started_ns = time.time_ns()
        self._deadline = time.monotonic() + self._plan.apply_timeout_s
        connection = self._connected()
        with self._discard_on_error("beginning"):
            if decision.markers:
                verdict = self._begin(connection, decision)
                if verdict is Verdict.SKIP:
                    connection.rollback()
                    begin = Step("begin", started_ns, time.time_ns())
                    return Receipt(verdict, steps=(begin,))
            else:
                connection.begin()
            return self._write_and_commit(connection, decision, batches, started_ns)

    def close(self) -> None:
        """Close the connection; the server rolls back an open transaction."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            try:
                connection.close()
            except (pymysql.err.Error, OSError) as error:
                _log.debug(
                    "%s: the connection was already lost at close: %s", self._plan.where, error
                )

    def _begin(self, connection: Connection, decision: PartDecision) -> Verdict:
        """Open the transaction, lock the marker and compare it."""
        where = (decision.lineage, self._plan.sink, self._plan.part)
        if decision.prev == NO_MARKER:
            self._step = "seeding the marker"  # in autocommit: a transaction of its own
            self._execute(connection, _SEED, (*where, NO_MARKER.epoch, NO_MARKER.attempt))
        self._step = "locking the marker"
        connection.begin()
        marker = self._read(connection, decision.lineage, lock=True)
        return compare_marker(
            marker, this=decision.this, prev=decision.prev, where=self._plan.where
        )

    def _write_and_commit(
        self,
        connection: Connection,
        decision: PartDecision,
        batches: Iterable[pa.RecordBatch],
        started_ns: int,
    ) -> Receipt:
        plan = self._plan
        decision.reach("apply-begun")
        begun_ns = time.time_ns()
        rows = size = 0
        self._step = "writing rows"
        for statement in inserts(
            batches, plan.form, statement_rows=plan.statement_rows, packet_bytes=plan.packet_bytes
        ):
            self._check_deadline()
            connection.query(statement.sql)
            rows, size = rows + statement.rows, size + len(statement.sql)
        decision.reach("apply-written")
        written_ns = time.time_ns()
        if decision.markers:
            self._step = "advancing the marker"
            self._advance(connection, decision)
        self._check_deadline()
        decision.reach("before-commit")
        flushed_ns = time.time_ns()
        self._step, self._committing = "committing", True
        connection.commit()
        self._committing = False
        committed_ns = time.time_ns()
        decision.reach("after-commit")
        steps = (
            Step("begin", started_ns, begun_ns),
            Step("write", begun_ns, written_ns),
            Step(
                "flush", written_ns, flushed_ns
            ),  # the time of the marker: all rows are already sent
            Step("commit", flushed_ns, committed_ns),
        )
        return Receipt(Verdict.APPLY, rows, size, steps)

    def _advance(self, connection: Connection, decision: PartDecision) -> None:
        where = (decision.lineage, self._plan.sink, self._plan.part)
        this, prev = decision.this, decision.prev
        moved = self._execute(
            connection, _ADVANCE, (this.epoch, this.attempt, *where, prev.epoch, prev.attempt)
        )
        if moved != 1:
            raise MarkerMismatch(
                f"{self._plan.where}: the marker update changed {moved} rows instead of 1, from {prev}",
                data="all of this part was rolled back; somebody else changed the marker",
                do=f"find out who writes to {MARKERS}; only Sluicegate may",
            )

    def _read(self, connection: Connection, lineage: str, *, lock: bool) -> Marker | None:
        return _read(connection, lineage, self._plan.sink, self._plan.part, lock=lock)

    @staticmethod
    def _execute(connection: Connection, sql: str, values: tuple[object, ...]) -> int:
        with connection.cursor() as cursor:
            return int(cursor.execute(sql, values))

    def _connected(self) -> Connection:
        """Return a working connection; connections are opened only here, never during an apply."""
        if self._connection is not None:
            try:
                self._connection.ping(reconnect=False)
            except (pymysql.err.Error, OSError) as error:
                # Expected: the server ends sessions that are idle longer than an apply may take.
                _log.debug("%s: reconnecting, the session ended: %s", self._plan.where, error)
                self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> Connection:
        try:
            return connect(self._plan.address, timeout_s=self._plan.apply_timeout_s)
        except TargetMissing as error:
            data = "nothing of this part is written; the epoch stays decided, nothing is lost"
            raise SinkRejected(error.what, data=data, do=error.do) from error

    @contextmanager
    def _discard_on_error(self, doing: str) -> Iterator[None]:
        """Roll everything back on any error, and translate the server's error."""
        self._step, self._committing = doing, False
        try:
            yield
        except pymysql.err.Error as error:  # an OSError comes from the batches and passes unchanged
            committing = self._committing
            self._discard_connection()
            raise mysql_errors.apply_error(
                error, self._plan.where, self._step, committing=committing
            ) from error
        except BaseException:
            self._discard_connection()
            raise

    def _discard_connection(self) -> None:
        """Roll back at once if the connection works, so that its locks end; then close it."""
        connection = self._connection
        if connection is not None and connection.open:
            try:
                connection.rollback()
            except (pymysql.err.Error, OSError) as error:
                _log.debug(
                    "%s: rollback failed, the server will roll back: %s", self._plan.where, error
                )
        self.close()

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise SinkUnavailable(
                f"{self._plan.where}: {self._step} took longer than an apply may, "
                f"{self._plan.apply_timeout_s:g} s",
                data="all of this part was rolled back; the next attempt reads the marker first",
                do="check the server for locks and load; raise the apply timeout, or use "
                "smaller epochs or more parts",
            )


def committed_marker(
    address: Address, lineage: str, sink: str, part: int, *, timeout_s: float = 10.0
) -> Marker | None:
    """Return a part's marker without waiting for an open transaction.

    Raises:
        SinkUnavailable, AccessDenied, TargetMissing: no connection, or no marker table.
    """
    connection = connect(address, timeout_s=timeout_s)
    try:
        return _read(connection, lineage, sink, part, lock=False)
    except pymysql.err.Error as error:
        where = f"sink {sink}, part {part}, {address}"
        raise mysql_errors.apply_error(
            error, where, "reading the marker", committing=False
        ) from error
    finally:
        connection.close()


def _read(
    connection: Connection, lineage: str, sink: str, part: int, *, lock: bool
) -> Marker | None:
    with connection.cursor() as cursor:
        cursor.execute(_READ + (" FOR UPDATE" if lock else ""), (lineage, sink, part))
        row = cursor.fetchone()
    return Marker(int(row[0]), str(row[1])) if row else None
