"""What a store on a local disk makes survive a power cut."""

import os
from pathlib import Path

import pytest

from sluicegate.storage import object_store
from sluicegate.storage.object_store import LocalObjectStore


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the inodes that were synced, files and directories."""
    inodes: set[int] = set()
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        fsync(descriptor)
        inodes.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", recording)
    return inodes


def inodes(root: Path, *names: str) -> set[int]:
    return {(root / name).stat().st_ino for name in names}


def test_a_created_object_is_synced_with_all_its_new_directories(
    tmp_path: Path, synced: set[int]
) -> None:
    root = tmp_path / "new" / "checkpoint"
    LocalObjectStore(root).create("staging/0/chunk", b"rows")
    wanted = inodes(root, "staging/0/chunk", "staging/0", "staging", "", "..", "../..")
    assert wanted <= synced


def test_an_object_that_was_found_is_synced_before_the_refusal(
    tmp_path: Path, synced: set[int]
) -> None:
    """The request that created it may have failed before the sync; the loser relies on the object."""
    store = LocalObjectStore(tmp_path)
    store.create("epochs/0", b"first")
    synced.clear()
    assert not store.create("epochs/0", b"second")
    assert inodes(tmp_path, "epochs", "") <= synced


def test_a_deletion_is_synced_in_the_directory_that_remains(
    tmp_path: Path, synced: set[int]
) -> None:
    store = LocalObjectStore(tmp_path)
    store.create("epochs/3.discard/mysql", b"")
    synced.clear()
    store.delete("epochs/3.discard/mysql")
    assert inodes(tmp_path, "") <= synced


def test_what_spark_wrote_is_synced_with_its_checksums_and_directories(
    tmp_path: Path, synced: set[int]
) -> None:
    names = ("state/0/1/4.delta", "state/0/1/.4.delta.crc")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    LocalObjectStore(tmp_path).sync(["state/0/1/4.delta"])
    wanted = inodes(tmp_path, *names, "state/0/1", "state/0", "state", "", "..")
    assert wanted <= synced, "the folder above too: Spark may have made the checkpoint"


def test_all_that_is_below_a_folder_is_synced(tmp_path: Path, synced: set[int]) -> None:
    store = LocalObjectStore(tmp_path)
    for name in ("sources/0/0", "sources/1/7"):
        store.create(name, b"x")
    synced.clear()
    store.sync(["sources/", "nowhere/"])
    assert inodes(tmp_path, "sources/0/0", "sources/1/7", "sources/0", "sources/1") <= synced


def test_only_files_that_are_new_or_replaced_are_synced_again(
    tmp_path: Path, synced: set[int]
) -> None:
    names, store = ["offsets/4", "offsets/5"], LocalObjectStore(tmp_path)
    for name in names:
        store.put(name, [b"x"])
    store.sync([*names, "offsets/6.deleted"])
    kept = inodes(tmp_path, "offsets/4")
    store.put("offsets/5", [b"y"])
    synced.clear()
    store.sync(names)
    assert inodes(tmp_path, "offsets/5") <= synced
    assert not kept & synced


def test_a_cleared_folder_is_synced_again_with_the_folders_above_it(
    tmp_path: Path, synced: set[int]
) -> None:
    store = LocalObjectStore(tmp_path / "new")
    above = tmp_path.stat().st_ino
    for _ in range(2):
        synced.clear()
        store.create("a", b"1")
        assert above in synced
        synced.clear()
        store.create("b", b"1")
        assert above not in synced
        store.clear()


def test_a_replaced_object_is_synced_with_its_folder(tmp_path: Path, synced: set[int]) -> None:
    LocalObjectStore(tmp_path).put("a/b", [b"1"])
    assert {(tmp_path / "a" / "b").stat().st_ino, (tmp_path / "a").stat().st_ino} <= synced


def test_all_bytes_are_with_the_kernel_when_a_file_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda one: sizes.append(os.fstat(one).st_size))
    LocalObjectStore(tmp_path).create("a", b"12345")
    assert sizes[0] == 5


def test_a_sync_closes_what_it_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    closed: list[int] = []
    open_, close = os.open, os.close

    def recorded_open(path: Path, flags: int) -> int:
        opened.append(open_(path, flags))
        return opened[-1]

    def recorded_close(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "open", recorded_open)
    monkeypatch.setattr(os, "close", recorded_close)
    object_store._sync_file(tmp_path)
    assert len(opened) == 1
    assert closed == opened
