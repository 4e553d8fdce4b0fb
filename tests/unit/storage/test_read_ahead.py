"""The first reads of an epoch on S3: made together, and never instead of a later look."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sluicegate.errors import StoreUnavailable
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.storage.read_ahead import ReadAhead

FIRST_READS = 5
"""The records and the offsets of an epoch and of the one before, and the list of records."""


class Remote(LocalObjectStore):
    """A store with an address on S3, which counts its reads."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "s3://bucket/checkpoint")
        self.asked: list[str] = []

    def read(self, name: str) -> bytes | None:
        self.asked.append(name)
        return super().read(name)

    def names(self, prefix: str) -> Iterator[str]:
        self.asked.append(prefix)
        return super().names(prefix)

    def sync(self, names: Iterable[str]) -> None:
        self.asked.extend(names)


class Meeting(Remote):
    """A store that answers when all first reads of an epoch wait for it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._all = threading.Barrier(FIRST_READS, timeout=10)

    def read(self, name: str) -> bytes | None:
        self._all.wait()
        return super().read(name)

    def names(self, prefix: str) -> Iterator[str]:
        self._all.wait()
        return super().names(prefix)


class Broken(Remote):
    """A store that cannot be reached."""

    def read(self, name: str) -> bytes | None:
        raise StoreUnavailable(f"no reply for {name}")


def test_the_first_reads_of_an_epoch_are_made_at_the_same_time(tmp_path: Path) -> None:
    reads = ReadAhead(Meeting(tmp_path))
    reads.begin(1)
    assert [reads.read(f"{log}/{n}") for log in ("epochs", "offsets") for n in (0, 1)] == [None] * 4
    assert list(reads.names("epochs/")) == []


def test_an_answer_is_given_once(tmp_path: Path) -> None:
    store = Remote(tmp_path)
    reads = ReadAhead(store)
    reads.begin(7)
    reads.names("epochs/")
    assert reads.read("epochs/7") is None
    store.create("epochs/7", b"another's")
    assert reads.read("epochs/7") == b"another's"
    assert list(reads.names("epochs/")) == ["epochs/7"]


def test_after_a_creation_everything_is_read_again(tmp_path: Path) -> None:
    """Whether another driver went on is looked up after the decision, and not before."""
    store = Remote(tmp_path)
    reads = ReadAhead(store)
    reads.begin(7)
    assert reads.create("epochs/7", b"ours")
    store.create("epochs/8", b"another's")
    assert sorted(reads.names("epochs/")) == ["epochs/7", "epochs/8"]
    assert reads.read("epochs/7") == b"ours"


def test_a_retry_reads_again(tmp_path: Path) -> None:
    store = Remote(tmp_path)
    reads = ReadAhead(store)
    reads.begin(7)
    reads.drop()
    store.create("epochs/7", b"another's")
    reads.begin(7)
    assert reads.read("epochs/7") == b"another's"


def test_there_is_nothing_to_read_of_an_epoch_before_the_first(tmp_path: Path) -> None:
    store = Remote(tmp_path)
    reads = ReadAhead(store)
    reads.begin(0)
    assert (reads.read("epochs/0"), reads.read("offsets/0")) == (None, None)
    assert list(reads.names("epochs/")) == []
    assert sorted(store.asked) == ["epochs/", "epochs/0", "offsets/0"]


def test_all_else_is_done_by_the_store(tmp_path: Path) -> None:
    store = Remote(tmp_path)
    reads = ReadAhead(store)
    reads.put("state/1", [b"a", b"b"])
    assert list(reads.entries("state/")) == ["state/1"]
    assert b"".join(reads.stream("state/1") or ()) == b"ab"
    reads.delete("state/1")
    assert store.read("state/1") is None
    reads.put("state/2", [b"c"])
    reads.clear()
    assert list(store.names("")) == []
    reads.sync(["offsets/1"])
    assert store.asked[-1] == "offsets/1"
    assert reads.url == store.url


def test_an_error_reaches_who_asks(tmp_path: Path) -> None:
    reads = ReadAhead(Broken(tmp_path))
    reads.begin(0)
    with pytest.raises(StoreUnavailable, match="offsets/0"):
        reads.read("offsets/0")


def test_nothing_is_read_ahead_from_a_disk(tmp_path: Path) -> None:
    store = Remote(tmp_path)
    store.url = str(tmp_path)
    ReadAhead(store).begin(7)
    assert store.asked == []
