"""Checkpoint and savepoint on different volumes: a disk, and a bucket.

The bucket is obstore's own store in memory behind the code for S3; with SLUICEGATE_S3 a real one too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sluicegate.checkpoint import restoring, savepoints
from sluicegate.checkpoint.requests import Answer, StopDesk, ask, await_answer
from sluicegate.checkpoint.restoring import restore
from sluicegate.checkpoint.savepoints import dispose, listed, take
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import Objects, S3Objects, open_objects

from .made import checkpoint

S3 = os.environ.get("SLUICEGATE_S3", "")
BUCKET = S3Objects(MemoryStore())  # type: ignore[arg-type] # obstore's functions take any store


class Below:
    """The objects of a bucket below a prefix, as `S3Store` gives them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix.strip('/')}/"

    def create(self, name: str, content: bytes) -> bool:
        return BUCKET.create(self._prefix + name, content)

    def read(self, name: str) -> bytes | None:
        return BUCKET.read(self._prefix + name)

    def names(self, prefix: str) -> Iterator[str]:
        found = BUCKET.names(self._prefix + prefix)
        return (name.removeprefix(self._prefix) for name in list(found))

    def delete(self, name: str) -> None:
        BUCKET.delete(self._prefix + name)

    def clear(self) -> None:
        for name in self.names(""):
            self.delete(name)

    def chunks(self, name: str) -> Iterator[bytes] | None:
        return BUCKET.chunks(self._prefix + name)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        BUCKET.put(self._prefix + name, content)


def opened(url: str) -> Objects:
    """Return the store in memory for `memory://`, the usual one for anything else."""
    return Below(url.removeprefix("memory://")) if url.startswith("memory:") else open_objects(url)


Place = Callable[[str], str]


@pytest.fixture(params=["memory", "s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give addresses in a bucket that nobody else uses."""
    monkeypatch.setattr(savepoints, "open_objects", opened)
    monkeypatch.setattr(restoring, "open_objects", opened)
    if request.param == "s3" and not S3:
        pytest.skip("SLUICEGATE_S3 (s3://bucket/prefix, with AWS_* for the endpoint) is not set")
    root = f"{'memory:/' if request.param == 'memory' else S3}/{uuid.uuid4().hex}"
    return lambda name: f"{root}/{name}"


def moved_onto(url: str, disk: Path) -> str:
    """Make a checkpoint on the disk, and copy it to another place; return that."""
    source = open_objects(checkpoint(disk / "made", 3))
    target = opened(url)
    for name in source.names(""):
        target.put(name, source.chunks(name) or ())
    return url


@pytest.fixture(params=["disk", "bucket"])
def parent(request: pytest.FixtureRequest, bucket: Place, tmp_path: Path) -> str:
    """Give a checkpoint on either volume."""
    if request.param == "disk":
        return checkpoint(tmp_path / "parent", 3)
    return moved_onto(bucket("parent"), tmp_path)


@pytest.mark.parametrize("to", ["disk", "bucket"])
def test_a_job_moves_from_any_volume_over_a_bucket_to_any(
    parent: str, bucket: Place, tmp_path: Path, to: str
) -> None:
    made = take(parent, bucket("savepoints"), seal=True)
    new = bucket("new") if to == "bucket" else str(tmp_path / "new")
    lineage = restore(made.url, new)
    assert lineage == read_lineage(opened(new))
    assert opened(new).read("state/0/0/3.delta") == b"delta 3"
    (seen,) = listed(bucket("savepoints"))
    assert seen.moved_to == new


def test_a_savepoint_in_a_bucket_is_removed(parent: str, bucket: Place) -> None:
    made = take(parent, bucket("savepoints"))
    assert dispose(made.url)
    assert list(opened(bucket("savepoints")).names("")) == []


def test_a_driver_is_asked_through_a_bucket(bucket: Place) -> None:
    objects = opened(bucket("checkpoint"))
    request = ask(objects, "l", hold_s=60)
    desk = StopDesk(objects, "l", 0.0)
    assert desk.asked() == request
    desk.answer(Answer(stopped=True, said="stopped"))
    answer = await_answer(objects, request, patience_s=30)
    assert answer is not None
    assert answer.stopped
