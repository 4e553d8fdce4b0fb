"""Listing and deleting savepoints of a checkpoint built by the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.errors import SavepointInvalid, SavepointRefused
from sluicegate.failpoints import FailpointHit, arm
from sluicegate.savepoints.catalog import dispose_savepoint, list_savepoints
from sluicegate.savepoints.manifest import MANIFEST, read_manifest
from sluicegate.storage.epoch_log import SystemClock
from sluicegate.storage.object_store import LocalObjectStore, open_store
from tests.unit.savepoints.builders import restore, take


def dispose(url: str, *, unfinished: bool = False, force: bool = False) -> int:
    return dispose_savepoint(open_store(url), unfinished=unfinished, force=force)


def test_a_deleted_savepoint_is_gone_and_others_stay(parent: str, folder: str) -> None:
    one, other = take(parent, folder), take(parent, folder)
    dispose(one.url)
    assert [s.url for s in list_savepoints(folder)] == [other.url]
    assert list(open_store(one.url).names("")) == []


def test_only_the_files_of_a_savepoint_are_deleted(
    parent: str, folder: str, tmp_path: Path
) -> None:
    savepoint = take(parent, folder, seal=True)
    assert savepoint.manifest is not None
    restore(savepoint.url, str(tmp_path / "new"))
    (Path(savepoint.url) / "notes").touch()
    assert dispose(savepoint.url) == len(savepoint.manifest.files) + 1  # and where it moved to
    assert list(open_store(savepoint.url).names("")) == ["notes"]


def test_savepoints_are_listed_by_age_with_incomplete_ones_last(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {}
    for created_at_ms in (3, 1, 2):
        monkeypatch.setattr(SystemClock, "now_ms", staticmethod(lambda at=created_at_ms: at))
        urls[created_at_ms] = take(parent, folder).url
    arm("before-manifest=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder)
    listed = list_savepoints(f"{folder}/")
    assert [s.url for s in listed[:3]] == [urls[1], urls[2], urls[3]]
    assert listed[3].manifest is None


def test_the_manifest_is_deleted_first(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint, deleted = take(parent, folder), []
    delete = LocalObjectStore.delete

    def recorded(self: LocalObjectStore, name: str) -> None:
        deleted.append(name)
        delete(self, name)

    monkeypatch.setattr(LocalObjectStore, "delete", recorded)
    dispose(savepoint.url)
    assert deleted[0] == MANIFEST


def test_a_folder_that_is_not_a_savepoint_is_not_deleted(parent: str) -> None:
    with pytest.raises(SavepointInvalid):
        dispose(parent)
    assert (Path(parent) / "offsets/4").exists()
    with pytest.raises(SavepointInvalid):
        dispose(parent, unfinished=True)


def test_an_incomplete_savepoint_is_listed_and_deleted_only_on_request(
    parent: str, folder: str
) -> None:
    arm("before-manifest=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder)
    (incomplete,) = list_savepoints(folder)
    assert incomplete.manifest is None
    with pytest.raises(SavepointInvalid, match="incomplete savepoint"):
        dispose(incomplete.url)
    dispose(incomplete.url, unfinished=True)
    assert list_savepoints(folder) == []


def test_the_only_savepoint_of_a_sealed_job_is_deleted_only_if_forced(
    parent: str, folder: str
) -> None:
    savepoint = take(parent, folder, seal=True)
    with pytest.raises(SavepointRefused, match="never restored"):
        dispose(savepoint.url)
    with pytest.raises(SavepointRefused, match="never restored"):
        dispose(savepoint.url, unfinished=True)
    assert list_savepoints(folder)[0].manifest is not None
    assert dispose(savepoint.url, force=True)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"format": 2}', b"[]"])
def test_a_broken_manifest_is_not_a_savepoint(parent: str, folder: str, body: bytes) -> None:
    savepoint = take(parent, folder)
    (Path(savepoint.url) / MANIFEST).write_bytes(body)
    with pytest.raises(SavepointInvalid):
        read_manifest(open_store(savepoint.url))
    assert [s.manifest for s in list_savepoints(folder)] == [None]
