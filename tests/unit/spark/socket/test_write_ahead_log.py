"""WriteAheadLog on a disk: each number is used once, and only unneeded segments are pruned."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.errors import EpochLogBroken, Fenced
from sluicegate.spark.socket.write_ahead_log import Line, WriteAheadLog, peer_of
from sluicegate.storage.object_store import LocalObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjectStore:
    """Return an empty checkpoint."""
    return LocalObjectStore(tmp_path)


@pytest.fixture
def log(objects: LocalObjectStore) -> WriteAheadLog:
    """Return its log."""
    return WriteAheadLog(objects)


def append(log: WriteAheadLog, *numbers: int, receiver: str = "a") -> None:
    """Log a segment with one line per number."""
    for number in numbers:
        log.append(number, [Line(b"line %d" % number, 1)], receiver)


def plan(objects: LocalObjectStore, epoch: int, through: int, *, committed: bool) -> None:
    """Write the files of Spark for an epoch."""
    objects.create(f"offsets/{epoch}", b'v1\n{"conf":{}}\n{"received":%d}' % through)
    if committed:
        objects.create(f"commits/{epoch}", b"v1\n{}")


def test_a_segment_is_read_as_it_was_written(log: WriteAheadLog) -> None:
    log.append(1, [Line(b"\xff\n", 7), Line(b"cut", 8, "overlong: x", 99, "00")], "a")
    assert log.read(1).to_pydict() | {"received_at": None} == {
        "line": [b"\xff\n", b"cut"],
        "broken": [None, "overlong: x"],
        "length": [2, 99],
        "sha256": [None, "00"],
        "received_at": None,
    }


def test_a_segment_has_the_address_of_the_peer(log: WriteAheadLog) -> None:
    log.append(1, [Line(b"x", 1)], "a", "host:9")
    assert peer_of(log.read(1)) == "host:9"


def test_a_number_of_another_receiver_is_fenced(log: WriteAheadLog) -> None:
    append(log, 1)
    with pytest.raises(Fenced):
        append(log, 1, receiver="b")


def test_a_lost_reply_is_resolved_by_a_retry(log: WriteAheadLog) -> None:
    append(log, 1, 1)
    assert log.newest() == 1


def test_a_missing_segment_is_an_error_and_never_skipped(log: WriteAheadLog) -> None:
    with pytest.raises(EpochLogBroken, match="segment 1 of the log of received lines is missing"):
        log.read(1)


def test_the_number_of_a_lost_segment_is_not_used_again(
    log: WriteAheadLog, objects: LocalObjectStore
) -> None:
    append(log, 1)
    plan(objects, 0, 3, committed=False)
    assert log.end() == 3


def test_unplanned_segments_are_in_no_epoch_yet(
    log: WriteAheadLog, objects: LocalObjectStore
) -> None:
    append(log, 1, 2, 3)
    plan(objects, 0, 1, committed=True)
    plan(objects, 1, 2, committed=False)
    assert log.unplanned() == {3: 1}


def test_prune_removes_the_segments_up_to_the_oldest_retained_epoch(
    log: WriteAheadLog, objects: LocalObjectStore
) -> None:
    append(log, 1, 2, 3, 4)
    plan(objects, 7, 2, committed=True)
    plan(objects, 8, 3, committed=True)
    plan(objects, 9, 4, committed=False)
    log.prune()
    assert [number for number in range(1, 5) if _exists(log, number)] == [3, 4]


def test_nothing_is_pruned_before_the_oldest_epoch_is_committed(
    log: WriteAheadLog, objects: LocalObjectStore
) -> None:
    append(log, 1, 2)
    plan(objects, 0, 2, committed=False)
    log.prune()
    assert _exists(log, 1)


def test_the_newest_segment_is_never_pruned(log: WriteAheadLog, objects: LocalObjectStore) -> None:
    append(log, 1, 2)
    plan(objects, 0, 2, committed=True)
    log.prune()
    assert log.newest() == 2


def _exists(log: WriteAheadLog, number: int) -> bool:
    try:
        log.read(number)
    except EpochLogBroken:
        return False
    return True
