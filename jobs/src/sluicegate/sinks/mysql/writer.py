"""Applies one part of a decided epoch to a table: rule 12, line by line.

The marker row is seeded beforehand in its own transaction, because a lock on a missing row let two
appliers both commit. It is locked first, so that appliers of one part queue up; judged; advanced
last and only from `prev`. Any error gives up the whole connection: a 1205 undoes only a statement,
and a driver that reconnects would go on in autocommit with half of the rows gone. Called through
`contract.PartWriter`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sluicegate.protocol.errors import MarkerMismatch, SinkRejected, SinkUnavailable, TargetMissing
from sluicegate.protocol.markers import GENESIS, Marker, Verdict, judge
from sluicegate.sinks.contract import PartDecision, Receipt, Step
from sluicegate.sinks.mysql import faults
from sluicegate.sinks.mysql.session import Address, Connection, connect
from sluicegate.sinks.mysql.statements import InsertForm, inserts

MARKERS = "sluicegate_markers"
"""The table of markers: in the same database as the rows, so in the same transaction."""

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
    """All that a writer needs to know; see `BoundMySQL` for the fields.

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
    """One connection, kept between applies; see `contract.PartWriter`."""

    def __init__(self, plan: PartPlan) -> None:
        self._plan = plan
        self._connection: Connection | None = None
        self._doing = ""
        self._committing = False
        self._deadline = 0.0

    def marker(self) -> Marker | None:
        """Return the committed marker, None if there is none."""
        # A connection of its own: this writer's may be in a transaction, and would see its marker.
        connection = self._open()
        try:
            return self._read(connection, self._plan.lineage, lock=False)
        except pymysql.err.Error as error:
            raise faults.in_apply(
                error, self._plan.where, "reading the marker", committing=False
            ) from error
        finally:
            connection.close()

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write all rows and the marker in one transaction; see `contract.PartWriter`."""
        started_ns = time.time_ns()
        self._deadline = time.monotonic() + self._plan.apply_timeout_s
        connection = self._connected()
        with self._given_up_on_error("beginning"):
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
        """Let go of the connection; the server rolls back what is open."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            try:
                connection.close()
            except (pymysql.err.Error, OSError) as error:
                _log.debug("%s: the connection was gone at close: %s", self._plan.where, error)

    def _begin(self, connection: Connection, decision: PartDecision) -> Verdict:
        """Open the transaction, lock the marker, and say what it means."""
        where = (decision.lineage, self._plan.sink, self._plan.part)
        if decision.prev == GENESIS:
            self._doing = "seeding the marker"  # in autocommit: a transaction of its own
            self._execute(connection, _SEED, (*where, GENESIS.epoch, GENESIS.attempt))
        self._doing = "locking the marker"
        connection.begin()
        found = self._read(connection, decision.lineage, lock=True)
        return judge(found, this=decision.this, prev=decision.prev, where=self._plan.where)

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
        self._doing = "writing rows"
        for statement in inserts(
            batches, plan.form, statement_rows=plan.statement_rows, packet_bytes=plan.packet_bytes
        ):
            self._in_time()
            connection.query(statement.sql)
            rows, size = rows + statement.rows, size + len(statement.sql)
        decision.reach("apply-written")
        written_ns = time.time_ns()
        if decision.markers:
            self._doing = "advancing the marker"
            self._advance(connection, decision)
        self._in_time()
        decision.reach("before-commit")
        flushed_ns = time.time_ns()
        self._doing, self._committing = "committing", True
        connection.commit()
        self._committing = False
        committed_ns = time.time_ns()
        decision.reach("after-commit")
        steps = (
            Step("begin", started_ns, begun_ns),
            Step("write", begun_ns, written_ns),
            Step("flush", written_ns, flushed_ns),  # of rows nothing is left: it is the marker's
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
                f"{self._plan.where}: the marker moved by {moved} rows instead of 1, from {prev}",
                data="all of this part was rolled back; somebody changed the marker by hand",
                do=f"find out who writes to {MARKERS}; it is the library's own",
            )

    def _read(self, connection: Connection, lineage: str, *, lock: bool) -> Marker | None:
        return _read(connection, lineage, self._plan.sink, self._plan.part, lock=lock)

    @staticmethod
    def _execute(connection: Connection, sql: str, values: tuple[object, ...]) -> int:
        with connection.cursor() as cursor:
            return int(cursor.execute(sql, values))

    def _connected(self) -> Connection:
        """Return a living connection: the only place where one is opened, and never in an apply."""
        if self._connection is not None:
            try:
                self._connection.ping(reconnect=False)
            except (pymysql.err.Error, OSError) as error:
                # Expected: the server ends sessions that idle longer than an apply may take.
                _log.debug("%s: connecting again, the session ended: %s", self._plan.where, error)
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
    def _given_up_on_error(self, doing: str) -> Iterator[None]:
        """Roll everything back on any error, and say what the server's error means."""
        self._doing, self._committing = doing, False
        try:
            yield
        except pymysql.err.Error as error:  # an OSError would be of the batches: theirs to explain
            committing = self._committing
            self._give_up()
            raise faults.in_apply(
                error, self._plan.where, self._doing, committing=committing
            ) from error
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Roll back now where the connection lives, so that the lock ends now; then drop it."""
        connection = self._connection
        if connection is not None and connection.open:
            try:
                connection.rollback()
            except (pymysql.err.Error, OSError) as error:
                _log.debug("%s: no rollback, the server does it: %s", self._plan.where, error)
        self.close()

    def _in_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise SinkUnavailable(
                f"{self._plan.where}: {self._doing} took longer than the apply may, "
                f"{self._plan.apply_timeout_s:g} s",
                data="all of this part was rolled back; the apply starts again from the marker",
                do="look for locks and load on the server; raise the apply timeout, or take "
                "smaller epochs or more parts",
            )


def committed_marker(
    address: Address, lineage: str, sink: str, part: int, *, timeout_s: float = 10.0
) -> Marker | None:
    """Return a part's marker without waiting for a transaction that is open.

    Raises:
        SinkUnavailable, AccessDenied, TargetMissing: no connection, or no table of markers.
    """
    connection = connect(address, timeout_s=timeout_s)
    try:
        return _read(connection, lineage, sink, part, lock=False)
    except pymysql.err.Error as error:
        where = f"sink {sink}, part {part}, {address}"
        raise faults.in_apply(error, where, "reading the marker", committing=False) from error
    finally:
        connection.close()


def _read(
    connection: Connection, lineage: str, sink: str, part: int, *, lock: bool
) -> Marker | None:
    with connection.cursor() as cursor:
        cursor.execute(_READ + (" FOR UPDATE" if lock else ""), (lineage, sink, part))
        found = cursor.fetchone()
    return Marker(int(found[0]), str(found[1])) if found else None
