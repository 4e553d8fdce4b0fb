"""When the rows of a table became visible, without reading them while they arrive.

Reading a row costs Python some microseconds, and the server looks each row up that a transaction has not
committed yet. So each poll requests one row by its key, which the transaction under way has inserted: when
a commit makes it visible, so are those with lower `seq`, because one transaction writes at a time. The rows
are read at the end.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pymysql.connections import Connection
from pymysql.cursors import SSCursor

from infra.local_services import MySQLEndpoint
from tests.bench.paced import Arrived, Integers

_POLL_S = 0.01
_LAST_ROWS = 1000
"""Of each source partition the last ones are among them, and rows of a partition become visible in order."""


class View(Protocol):
    """The rows that a connection sees."""

    def newest(self) -> int:
        """Return the largest `seq`, 0 if there are no rows."""
        ...

    def has(self, seq: int) -> bool:
        """Return whether a row exists."""
        ...


class Commits:
    """The commits of a table: when which rows became visible.

    Args:
        committed: sees what is committed.
        uncommitted: sees all rows, so the server looks up no older version of any.
        now_ns: the clock, in nanoseconds since 1970.
    """

    def __init__(
        self, committed: View, uncommitted: View, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._committed, self._uncommitted, self._now_ns = committed, uncommitted, now_ns
        self._awaited: int | None = None
        self._visible = 0
        self._marks: list[tuple[int, int]] = []

    def poll(self) -> None:
        """Record a commit if there was one since the last call."""
        if self._awaited is not None:
            if self._committed.has(self._awaited):
                self.mark()
            elif not self._uncommitted.has(self._awaited):
                self._awaited = None  # its transaction was rolled back
        if self._awaited is None:
            newest = self._uncommitted.newest()
            self._awaited = newest if newest > self._visible else None

    def mark(self) -> None:
        """Record what is visible now."""
        self._visible, self._awaited = self._committed.newest(), None
        self._marks.append((self._visible, self._now_ns()))

    def seen_ns(self, seqs: Integers) -> Integers:
        """Return when each row was seen to be visible; those after the last mark are given its time."""
        visible, times_ns = np.array(self._marks, dtype=np.int64).T
        result: Integers = times_ns[np.searchsorted(visible[:-1], seqs)]
        return result


@dataclass(frozen=True)
class _View:
    connection: Connection[Any]
    table: str

    def newest(self) -> int:
        return int(self._value(f"SELECT COALESCE(MAX(seq), 0) FROM `{self.table}`"))

    def has(self, seq: int) -> bool:
        return bool(self._value(f"SELECT COUNT(*) FROM `{self.table}` WHERE seq = %s", seq))

    def measured_from(self, number: int) -> int:
        """Return how many measured records from a number on are visible."""
        first, after = f"m {number:09d}", "n"
        query = f"SELECT COUNT(*) FROM `{self.table}` WHERE record >= %s AND record < %s"
        return int(self._value(query, first, after))

    def _value(self, query: str, *values: object) -> Any:  # noqa: ANN401 - what the server returns
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchone()[0]


class Watch:
    """Watches a table; created by `watch`."""

    def __init__(self, view: _View, commits: Commits, records: int) -> None:
        self._view, self._commits, self._records = view, commits, records

    def until_visible(self, sent: Path, silence_s: float) -> None:
        """Poll every 10 ms until the last measured rows are visible, or until no more become so.

        Args:
            sent: exists when all measured records were sent.
            silence_s: how long no measured row becomes visible before the wait ends.
        """
        first, visible = max(0, self._records - _LAST_ROWS), 0
        last_s = time.monotonic()
        while time.monotonic() < last_s + silence_s:
            self._commits.poll()
            if not sent.exists():
                last_s = time.monotonic()
            elif (found := self._view.measured_from(first)) > visible:
                visible, last_s = found, time.monotonic()
                if visible == self._records - first:
                    break
            time.sleep(_POLL_S)
        self._commits.mark()

    def rows(self) -> Arrived:
        """Return the measured rows."""
        numbers, due_ns, seqs = array("q"), array("q"), array("q")
        query = f"SELECT record, due, seq FROM `{self._view.table}` WHERE record >= 'm' AND record < 'n'"
        with self._view.connection.cursor(SSCursor) as cursor:
            cursor.execute(query)
            for record, due, seq in cursor:
                numbers.append(int(record[2:]))
                due_ns.append(due)
                seqs.append(seq)
        seen_ns = self._commits.seen_ns(np.frombuffer(seqs, dtype=np.int64))
        return Arrived(
            np.frombuffer(numbers, dtype=np.int64), np.frombuffer(due_ns, dtype=np.int64), seen_ns
        )


@contextmanager
def watch(mysql: MySQLEndpoint, table: str, records: int) -> Iterator[Watch]:
    """Connect to a table."""
    dirty = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"
    with (
        closing(mysql.connect(autocommit=True)) as committed,
        closing(mysql.connect(autocommit=True, init_command=dirty)) as uncommitted,
    ):
        view = _View(committed, table)
        yield Watch(view, Commits(view, _View(uncommitted, table)), records)
