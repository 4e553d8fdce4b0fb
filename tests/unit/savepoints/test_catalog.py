"""Listing and deleting savepoints of a checkpoint built by the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate import failpoints
from sluicegate.errors import SavepointFailed, SavepointInvalid, SavepointRefused
from sluicegate.failpoints import FailpointHit, arm
from sluicegate.savepoints import catalog
from sluicegate.savepoints.catalog import dispose_savepoint, list_savepoints
from sluicegate.savepoints.manifest import MANIFEST, TAKING, read_manifest, write_manifest
from sluicegate.storage.epoch_log import StoredEpochLog, SystemClock
from sluicegate.storage.object_store import LocalObjectStore, open_store
from tests.unit.savepoints.builders import restore, take, write


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


def test_savepoints_are_listed_by_age_and_incomplete_ones_after_them(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages = {}
    for at_ms in (3, 1, 2, 9, 5, 8, 6, 7):
        monkeypatch.setattr(SystemClock, "now_ms", staticmethod(lambda at=at_ms: at))
        savepoint = take(parent, folder)
        ages[savepoint.url] = at_ms
        if at_ms in (5, 6, 7, 8):
            (Path(savepoint.url) / MANIFEST).unlink()
    assert [ages[s.url] for s in list_savepoints(f"{folder}/")] == [1, 2, 3, 9, 5, 6, 7, 8]


def test_only_savepoints_directly_in_the_folder_are_listed(parent: str, folder: str) -> None:
    savepoint = take(parent, folder)
    take(parent, f"{folder}/of another job")
    write(Path(folder), "notes/today.txt")
    assert [s.url for s in list_savepoints(folder)] == [savepoint.url]


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


@pytest.mark.parametrize(
    ("point", "sealed"), [("savepoint-copying", False), ("before-manifest", True)]
)
def test_a_savepoint_that_is_disposed_of_while_it_is_taken_is_none(
    parent: str, folder: str, point: str, *, sealed: bool
) -> None:
    """It was sealed and published without its files."""

    def dispose_once() -> None:
        arm("")
        (unfinished,) = list_savepoints(folder)
        dispose(unfinished.url, unfinished=True)

    failpoints.hook("dispose", dispose_once)
    arm(f"{point}=dispose")
    with pytest.raises(SavepointFailed, match="disposed of while it was being taken"):
        take(parent, folder, seal=True)
    assert list_savepoints(folder) == []
    assert (StoredEpochLog(LocalObjectStore(Path(parent))).seal() is not None) is sealed
    assert take(parent, folder, seal=True).manifest is not None


@pytest.mark.parametrize("killed_at", [TAKING, MANIFEST])
def test_a_savepoint_whose_disposal_was_killed_is_completed_by_nobody_and_disposed_of_again(
    parent: str, folder: str, killed_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = take(parent, folder)
    assert complete.manifest is not None
    store = open_store(complete.url)
    store.delete(MANIFEST)
    delete = LocalObjectStore.delete

    def killed(self: LocalObjectStore, name: str) -> None:
        if name == killed_at:
            raise KeyboardInterrupt
        delete(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalObjectStore, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            dispose(complete.url, unfinished=True)
    with pytest.raises(SavepointFailed):
        write_manifest(store, complete.manifest)
    assert [s.manifest for s in list_savepoints(folder)] == [None]
    with pytest.raises(SavepointInvalid, match="incomplete savepoint"):
        dispose(complete.url)
    dispose(complete.url, unfinished=True)
    assert list(store.names("")) == []


def test_a_savepoint_that_was_completed_in_the_meantime_is_not_unfinished(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint = take(parent, folder)
    monkeypatch.setattr(catalog, "is_unfinished", lambda _: True)  # as a moment ago
    with pytest.raises(SavepointRefused, match="completed in the meantime"):
        dispose(savepoint.url, unfinished=True)
    assert [s.manifest for s in list_savepoints(folder)] == [savepoint.manifest]


def test_an_incomplete_savepoint_is_listed_with_its_age(
    parent: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "now_ms", staticmethod(lambda: 1_700_000_000_000))
    arm("before-manifest=raise")
    with pytest.raises(FailpointHit):
        take(parent, folder)
    (incomplete,) = list_savepoints(folder)
    assert incomplete.begun_at_ms == 1_700_000_000_000


@pytest.mark.parametrize("note", [b"", b"{}", b"[]", b'{"begun_at_ms": "today"}'])
def test_the_age_of_an_incomplete_savepoint_without_a_readable_note_is_unknown(
    folder: str, note: bytes
) -> None:
    write(Path(folder), f"s/{TAKING}", note)
    (incomplete,) = list_savepoints(folder)
    assert incomplete.begun_at_ms == 0


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
