"""Checkpoint and savepoint in different stores: a local disk and a bucket.

The bucket is a real one, or obstore's in-memory store behind the S3 code.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sluicegate.savepoints import catalog
from sluicegate.savepoints import take as savepoints_take
from sluicegate.savepoints.catalog import dispose_savepoint, list_savepoints
from sluicegate.savepoints.stop_request import Answer, StopRequestInbox, await_answer, request_stop
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store
from sluicegate.storage.s3_object_store import S3ObjectStore
from tests.unit.savepoints import builders
from tests.unit.savepoints.builders import checkpoint, restore, take

BUCKET = S3ObjectStore(MemoryStore())  # type: ignore[arg-type] # obstore's functions take any store


class Below:
    """The objects in a bucket below a prefix, as `S3Store` presents them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._prefix = f"{url.removeprefix('memory://').strip('/')}/"

    def create(self, name: str, content: bytes) -> bool:
        return BUCKET.create(self._prefix + name, content)

    def read(self, name: str) -> bytes | None:
        return BUCKET.read(self._prefix + name)

    def names(self, prefix: str) -> Iterator[str]:
        names = list(BUCKET.names(self._prefix + prefix))
        return (name.removeprefix(self._prefix) for name in names)

    def entries(self, prefix: str) -> Iterator[str]:
        names = list(BUCKET.entries(self._prefix + prefix))
        return (name.removeprefix(self._prefix) for name in names)

    def delete(self, name: str) -> None:
        BUCKET.delete(self._prefix + name)

    def clear(self) -> None:
        for name in self.names(""):
            self.delete(name)

    def stream(self, name: str) -> Iterator[bytes] | None:
        return BUCKET.stream(self._prefix + name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        BUCKET.put(self._prefix + name, content)

    def sync(self, names: Iterable[str]) -> None:
        pass


def opened(url: str) -> ObjectStore:
    """Return the in-memory store for `memory://`, the usual one for anything else."""
    return Below(url) if url.startswith("memory:") else open_store(url)


Address = Callable[[str], str]


@pytest.fixture(params=["memory", "s3"])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Address:
    """Return addresses below a new prefix of a bucket."""
    for module in (builders, savepoints_take, catalog):
        monkeypatch.setattr(module, "open_store", opened)
    s3 = None if request.param == "memory" else request.getfixturevalue("bucket").url
    root = f"{s3 or 'memory:/'}/{uuid.uuid4().hex}"
    return lambda name: f"{root}/{name}"


def checkpoint_at(url: str, disk: Path) -> str:
    """Write a checkpoint to the disk, copy it to an address and return that."""
    source = open_store(checkpoint(disk / "source", 3))
    target = opened(url)
    for name in source.names(""):
        target.put(name, source.stream(name) or ())
    return url


@pytest.fixture(params=["disk", "bucket"])
def parent(request: pytest.FixtureRequest, address: Address, tmp_path: Path) -> str:
    """Return a checkpoint in either store."""
    if request.param == "disk":
        return checkpoint(tmp_path / "parent", 3)
    return checkpoint_at(address("parent"), tmp_path)


@pytest.mark.parametrize("to", ["disk", "bucket"])
def test_a_job_moves_from_any_store_over_a_bucket_to_any_store(
    parent: str, address: Address, tmp_path: Path, to: str
) -> None:
    savepoint = take(parent, address("savepoints"), seal=True)
    new = address("new") if to == "bucket" else str(tmp_path / "new")
    lineage = restore(savepoint.url, new)
    assert lineage == read_lineage(opened(new))
    assert opened(new).read("state/0/0/3.delta") == b"delta 3"
    (listed,) = list_savepoints(address("savepoints"))
    assert listed.moved_to == new


def test_a_savepoint_in_a_bucket_is_deleted(parent: str, address: Address) -> None:
    savepoint = take(parent, address("savepoints"))
    assert dispose_savepoint(opened(savepoint.url))
    assert list(opened(address("savepoints")).names("")) == []


def test_a_stop_is_requested_through_a_bucket(address: Address) -> None:
    store = opened(address("checkpoint"))
    request = request_stop(store, "l", valid_s=60)
    inbox = StopRequestInbox(store, "l", 0.0)
    assert inbox.poll() == request
    inbox.answer(Answer(stopped=True, message="stopped"))
    answer = await_answer(store, request, timeout_s=30)
    assert answer is not None
    assert answer.stopped
