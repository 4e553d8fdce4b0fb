"""A row is seen when the commit of its transaction is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.bench.table_watch import Commits


@dataclass
class Table:
    """A table with one transaction under way."""

    committed: list[int] = field(default_factory=list)
    uncommitted: list[int] = field(default_factory=list)

    def commit(self) -> None:
        self.committed += self.uncommitted
        self.uncommitted = []


@dataclass
class View:
    """What a connection sees of a table, and how often it requested the newest row."""

    table: Table
    dirty: bool = False
    requests: int = 0

    def newest(self) -> int:
        self.requests += 1
        return max(self._rows(), default=0)

    def has(self, seq: int) -> bool:
        return seq in self._rows()

    def _rows(self) -> Sequence[int]:
        return self.table.committed + (self.table.uncommitted if self.dirty else [])


class Watched:
    """A table whose commits are watched; each poll is a nanosecond later."""

    def __init__(self) -> None:
        self.table = Table()
        self.committed = View(self.table)
        self.now_ns = 0
        self.commits = Commits(
            self.committed, View(self.table, dirty=True), now_ns=lambda: self.now_ns
        )

    def poll(self) -> None:
        self.now_ns += 1
        self.commits.poll()

    def seen_ns(self, *seqs: int) -> list[int]:
        return [int(ns) for ns in self.commits.seen_ns(np.array(seqs, dtype=np.int64))]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_row_is_seen_at_the_first_poll_after_its_commit(watched: Watched) -> None:
    watched.table.uncommitted = [1, 2]
    watched.poll()
    watched.table.uncommitted += [3]
    watched.poll()
    watched.table.commit()
    watched.poll()
    watched.commits.mark()
    assert watched.seen_ns(1, 2, 3) == [3, 3, 3]


def test_rows_of_different_transactions_are_seen_at_different_times(watched: Watched) -> None:
    for seq in (5, 9):
        watched.table.uncommitted = [seq - 1, seq]
        watched.poll()
        watched.table.commit()
        watched.poll()
    assert watched.seen_ns(4, 5, 8, 9) == [2, 2, 4, 4]


def test_a_transaction_that_was_rolled_back_is_not_awaited(watched: Watched) -> None:
    watched.table.uncommitted = [1, 2]
    watched.poll()
    watched.table.uncommitted = [3, 4]
    watched.poll()
    watched.table.commit()
    watched.poll()
    assert watched.seen_ns(3, 4) == [3, 3]


def test_a_transaction_under_way_is_not_read(watched: Watched) -> None:
    """The server would look up every row that it has inserted."""
    watched.table.uncommitted = [1, 2]
    for _ in range(3):
        watched.poll()
    assert watched.committed.requests == 0


def test_a_row_after_the_last_mark_is_given_its_time(watched: Watched) -> None:
    watched.table.committed = [1]
    watched.poll()
    watched.poll()
    assert watched.seen_ns(1, 7) == [2, 2]
