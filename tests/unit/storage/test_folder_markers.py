"""Empty objects `x/` on S3, with which consoles and S3A show a folder, are no part of a store."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from minio import Minio
from obstore.store import MemoryStore

from infra.local_services import S3Endpoint
from sluicegate.savepoints import take as savepoints_take
from sluicegate.storage.lineage import claim_lineage, delete_checkpoint, read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store
from sluicegate.storage.s3_config import split_s3
from sluicegate.storage.s3_object_store import S3ObjectStore, is_folder_marker
from sluicegate_operator.reconcile.storage_tasks import Delete
from sluicegate_operator.storage_tasks.worker import objects
from tests.unit.savepoints.builders import checkpoint, restore, take

Mark = Callable[[str], None]

FOLDERS = ["", "state/", "state/0/0/", "offsets/", "staging/", "epochs/"]


@pytest.fixture
def url(bucket: S3Endpoint) -> str:
    return f"{bucket.url}/{uuid.uuid4().hex}"


@pytest.fixture
def mark(bucket: S3Endpoint, url: str) -> Mark:
    """Return a function that makes the marker of a folder of the checkpoint, as a console does."""
    host = bucket.endpoint.removeprefix("http://")
    keys = bucket.access_key, bucket.secret_key
    client = Minio(host, *keys, secure=False, region="us-east-1")
    name, prefix = split_s3(url)

    def mark(folder: str) -> None:
        client.put_object(name, f"{prefix}/{folder}", io.BytesIO(), 0)

    return mark


@pytest.fixture
def marked(url: str, mark: Mark, tmp_path: Path) -> ObjectStore:
    """Return a checkpoint of three epochs with a marker for each of its folders."""
    source, target = open_store(checkpoint(tmp_path / "source", 3)), open_store(url)
    for folder in FOLDERS:
        mark(folder)
    for name in source.names(""):
        target.put(name, source.stream(name) or ())
    return target


def test_names_and_entries_leave_markers_out(marked: ObjectStore, tmp_path: Path) -> None:
    source = open_store(str(tmp_path / "source"))
    marked.create("empty", b"")
    assert sorted(marked.names("")) == sorted([*source.names(""), "empty"])
    assert sorted(marked.names("offsets/")) == sorted(source.names("offsets/"))
    assert sorted(marked.entries("offsets/")) == sorted(source.entries("offsets/"))
    assert list(marked.names("staging/")) == []


def test_the_marker_of_a_store_is_one_although_an_object_has_the_name_of_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Amazon's S3 `job` and `job/` are two objects; a store at `job` would find the first."""
    monkeypatch.setattr(obstore, "head", lambda _store, name: {"path": name})
    assert is_folder_marker(MemoryStore(), {"path": "", "size": 0})  # type: ignore[arg-type, typeddict-item]


def test_an_object_with_content_is_listed_without_a_request_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = S3ObjectStore(MemoryStore())  # type: ignore[arg-type] # obstore's functions take any store
    store.create("epochs/0", b"x")
    monkeypatch.delattr(obstore, "head")
    assert list(store.names("")) == ["epochs/0"]


def test_a_savepoint_of_a_checkpoint_with_markers_is_taken(
    marked: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoints_take, "_PAUSE_S", 0.0)
    manifest = take(marked.url, str(tmp_path / "savepoints")).manifest
    assert manifest is not None
    assert manifest.epoch == 2


def test_a_savepoint_is_restored_into_a_folder_that_a_console_made(
    url: str, mark: Mark, tmp_path: Path
) -> None:
    savepoint = take(checkpoint(tmp_path / "source", 3), str(tmp_path / "savepoints")).url
    mark("")
    assert restore(savepoint, url) == read_lineage(open_store(url))


def test_a_checkpoint_of_markers_is_a_new_one(url: str, mark: Mark) -> None:
    for folder in FOLDERS:
        mark(folder)
    assert claim_lineage(open_store(url), "j").first_epoch == 0


def test_a_checkpoint_with_markers_is_deleted(marked: ObjectStore) -> None:
    delete_checkpoint(marked)
    assert list(marked.names("")) == []


def test_a_volume_with_markers_is_deleted(marked: ObjectStore) -> None:
    count = len(list(marked.names("")))
    assert objects.delete(Delete(marked.url)).objects == count
    assert objects.delete(Delete(marked.url)).objects == 0
