"""The receipt log on a disk: numbers are taken once, and only what nobody needs is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.protocol.errors import EpochLogBroken, Fenced
from sluicegate.storage.objects import LocalObjects
from sluicegate.storage.receipts import Line, ReceiptLog


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    """Give an empty checkpoint."""
    return LocalObjects(tmp_path)


@pytest.fixture
def log(objects: LocalObjects) -> ReceiptLog:
    """Give its receipt log."""
    return ReceiptLog(objects)


def append(log: ReceiptLog, *numbers: int, receiver: str = "a") -> None:
    """Log a segment of one line for each number."""
    for number in numbers:
        log.append(number, [Line(b"line %d" % number, 1)], receiver)


def plan(objects: LocalObjects, epoch: int, through: int, *, committed: bool) -> None:
    """Write Spark's files of an epoch."""
    objects.create(f"offsets/{epoch}", b'v1\n{"conf":{}}\n{"received":%d}' % through)
    if committed:
        objects.create(f"commits/{epoch}", b"v1\n{}")


def test_a_segment_is_read_as_it_was_logged(log: ReceiptLog) -> None:
    log.append(1, [Line(b"\xff\n", 7), Line(b"cut", 8, "overlong: x", 99, "00")], "a")
    assert log.read(1).to_pydict() | {"received_at": None} == {
        "line": [b"\xff\n", b"cut"],
        "broken": [None, "overlong: x"],
        "length": [2, 99],
        "sha256": [None, "00"],
        "received_at": None,
    }


def test_a_number_that_another_receiver_has_taken_is_fenced(log: ReceiptLog) -> None:
    append(log, 1)
    with pytest.raises(Fenced):
        append(log, 1, receiver="b")


def test_a_lost_reply_is_settled_by_appending_again(log: ReceiptLog) -> None:
    append(log, 1, 1)
    assert log.newest() == 1


def test_a_missing_segment_is_an_error_and_never_skipped(log: ReceiptLog) -> None:
    with pytest.raises(EpochLogBroken, match="segment 1 of the receipt log is gone"):
        log.read(1)


def test_numbers_go_on_after_what_spark_knows_even_if_the_segment_is_lost(
    log: ReceiptLog, objects: LocalObjects
) -> None:
    append(log, 1)
    plan(objects, 0, 3, committed=False)
    assert log.end() == 3


def test_ahead_is_what_no_epoch_has_yet(log: ReceiptLog, objects: LocalObjects) -> None:
    append(log, 1, 2, 3)
    plan(objects, 0, 1, committed=True)
    plan(objects, 1, 2, committed=False)
    assert log.unplanned() == {3: 1}


def test_pruned_is_what_the_oldest_kept_epoch_has_and_nothing_later(
    log: ReceiptLog, objects: LocalObjects
) -> None:
    append(log, 1, 2, 3, 4)
    plan(objects, 7, 2, committed=True)
    plan(objects, 8, 3, committed=True)
    plan(objects, 9, 4, committed=False)
    log.prune()
    assert [number for number in range(1, 5) if _there(log, number)] == [3, 4]


def test_nothing_is_pruned_while_the_oldest_epoch_is_not_committed(
    log: ReceiptLog, objects: LocalObjects
) -> None:
    append(log, 1, 2)
    plan(objects, 0, 2, committed=False)
    log.prune()
    assert _there(log, 1)


def test_the_newest_segment_is_never_pruned(log: ReceiptLog, objects: LocalObjects) -> None:
    append(log, 1, 2)
    plan(objects, 0, 2, committed=True)
    log.prune()
    assert log.newest() == 2


def _there(log: ReceiptLog, number: int) -> bool:
    try:
        log.read(number)
    except EpochLogBroken:
        return False
    return True
