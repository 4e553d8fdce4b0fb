"""Which snapshots of Spark's state are removed before an undecided epoch runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sluicegate.errors import StoreUnavailable
from sluicegate.storage.object_store import LocalObjectStore, ObjectStore
from sluicegate.storage.s3_object_store import S3ObjectStore
from sluicegate.storage.state_files import (
    StateFile,
    remove_undecided_snapshots,
    replaceable_snapshots,
    state_file,
)

STORE = "state/0/3/"
JOINED = f"{STORE}left-keyToNumValues/"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"{STORE}7.changelog", StateFile(f"{STORE}7.changelog", STORE, 7, False, False)),  # noqa: FBT003 - a field
        (f"{STORE}7.zip", StateFile(f"{STORE}7.zip", STORE, 7, True, False)),  # noqa: FBT003 - a field
        (f"{JOINED}7.delta", StateFile(f"{JOINED}7.delta", JOINED, 7, False, False)),  # noqa: FBT003 - a field
        (f"{JOINED}7.snapshot.crc", StateFile(f"{JOINED}7.snapshot.crc", JOINED, 7, True, True)),  # noqa: FBT003 - a field
        (f"{STORE}SSTs/000007-1a2b.sst", None),
        (f"{STORE}_metadata/schema", None),
        ("state/0/_metadata/metadata", None),
        ("offsets/7", None),
    ],
)
def test_the_version_of_a_state_file_is_in_its_name(name: str, found: StateFile | None) -> None:
    assert state_file(name) == found


@pytest.mark.parametrize(("changes", "snapshot"), [("changelog", "zip"), ("delta", "snapshot")])
def test_snapshots_of_later_versions_are_replaceable(changes: str, snapshot: str) -> None:
    names = [f"{STORE}{v}.{kind}" for v in range(1, 8) for kind in (changes, snapshot)]
    assert replaceable_snapshots(names, 5) == [f"{STORE}6.{snapshot}", f"{STORE}7.{snapshot}"]


def test_a_snapshot_is_replaced_only_by_the_changes_of_its_own_store() -> None:
    """Without them it is the only copy of its version."""
    names = [f"{STORE}6.zip", f"{JOINED}6.zip", f"{JOINED}6.changelog", "state/0/4/6.changelog"]
    assert replaceable_snapshots([*names, f"{STORE}6.changelog.crc"], 5) == [f"{JOINED}6.zip"]


def test_a_checksum_is_as_replaceable_as_its_snapshot() -> None:
    names = [f"{STORE}6.{kind}{tail}" for kind in ("changelog", "zip") for tail in ("", ".crc")]
    assert replaceable_snapshots(names, 5) == [f"{STORE}6.zip", f"{STORE}6.zip.crc"]


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Return a checkpoint whose epoch 5 an earlier driver has attempted, in one of two partitions."""
    if request.param == "local":
        checkpoint: ObjectStore = LocalObjectStore(tmp_path)
    else:
        checkpoint = S3ObjectStore(MemoryStore())  # type: ignore[arg-type] # any store
    for name in STATE:
        checkpoint.create(name, b"")
    return checkpoint


STATE = {
    *(f"{STORE}{name}" for name in ("4.zip", "4.changelog", "5.changelog", "6.changelog")),
    *(f"{STORE}{name}" for name in ("6.zip", "SSTs/a.sst")),
    *("state/0/4/4.zip", "state/0/4/5.changelog"),
}


def test_the_snapshots_that_an_undecided_attempt_has_written_are_removed(
    store: ObjectStore,
) -> None:
    """As in each running job, the epoch before is decided."""
    store.create("epochs/4", b"a record")
    remove_undecided_snapshots(store, 5)
    assert set(store.names("state/")) == STATE - {f"{STORE}6.zip"}


@pytest.mark.parametrize("newest", [5, 200], ids=["decided", "decided and pruned"])
def test_the_snapshots_of_an_epoch_that_was_decided_meanwhile_stay(
    store: ObjectStore, newest: int
) -> None:
    store.create(f"epochs/{newest}", b"a record")
    remove_undecided_snapshots(store, 5)
    assert set(store.names("state/")) == STATE


def test_whether_an_epoch_is_decided_is_read_after_the_list(tmp_path: Path) -> None:
    """Else the list could have a snapshot that belongs to a later decision."""

    class DecidedDuringTheList(LocalObjectStore):
        def names(self, prefix: str) -> Iterator[str]:
            yield from super().names(prefix)
            if prefix == "state/":
                self.create("epochs/5", b"a record")

    checkpoint = DecidedDuringTheList(tmp_path)
    for name in STATE:
        checkpoint.create(name, b"")
    remove_undecided_snapshots(checkpoint, 5)
    assert f"{STORE}6.zip" in set(checkpoint.names("state/"))


def test_only_the_list_is_requested_if_there_is_no_snapshot(tmp_path: Path) -> None:
    class ListsTheState(LocalObjectStore):
        def names(self, prefix: str) -> Iterator[str]:
            assert prefix == "state/"
            return super().names(prefix)

        def delete(self, name: str) -> None:
            raise AssertionError(name)

    checkpoint = ListsTheState(tmp_path)
    for name in STATE - {f"{STORE}6.zip"}:
        checkpoint.create(name, b"")
    remove_undecided_snapshots(checkpoint, 5)


def test_a_snapshot_that_cannot_be_removed_fails_the_start(tmp_path: Path) -> None:
    class WithoutDeletion(LocalObjectStore):
        def delete(self, name: str) -> None:
            raise StoreUnavailable(f"no permission to delete {name}")

    checkpoint = WithoutDeletion(tmp_path)
    for name in STATE:
        checkpoint.create(name, b"")
    with pytest.raises(StoreUnavailable, match=r"6\.zip"):
        remove_undecided_snapshots(checkpoint, 5)
