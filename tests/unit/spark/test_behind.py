"""The one apply that runs behind the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from sluicegate.protocol.errors import Stuck
from sluicegate.spark.behind import Behind


@pytest.fixture
def behind() -> Iterator[Behind]:
    """Give one, and let go of its thread."""
    made = Behind()
    yield made
    made.close()


def stuck() -> int:
    raise Stuck("the sink is away")


def test_nothing_was_applied_at_first(behind: Behind) -> None:
    assert behind.settled() is None


def test_start_returns_while_the_work_runs(behind: Behind) -> None:
    let_go = threading.Event()

    def work() -> int:
        assert let_go.wait(10)
        return 3

    behind.start(work)
    let_go.set()
    assert behind.settled() == 3


def test_the_last_epoch_is_remembered(behind: Behind) -> None:
    behind.start(lambda: 3)
    behind.settled()
    assert behind.settled() == 3


def test_the_next_work_waits_for_the_one_before(behind: Behind) -> None:
    order: list[int] = []

    def work(epoch: int) -> int:
        order.append(epoch)
        return epoch

    for epoch in (1, 2, 3):
        behind.start(partial(work, epoch))
    behind.settled()
    assert order == [1, 2, 3]


def test_an_error_is_raised_once_to_whoever_waits(behind: Behind) -> None:
    behind.start(stuck)
    with pytest.raises(Stuck):
        behind.settled()
    assert behind.settled() is None


def test_an_error_that_nobody_waited_for_is_told(behind: Behind) -> None:
    done = threading.Event()

    def work() -> int:
        done.set()
        return stuck()

    behind.start(work)
    assert done.wait(10)
    for _ in range(1000):
        if behind.failed():
            break
        threading.Event().wait(0.01)
    assert behind.failed()
    with pytest.raises(Stuck):
        behind.settled()
    assert not behind.failed()
