"""Lineages: which checkpoint counts as a new one, and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sluicegate.errors import CheckpointOfAnotherJob, StoreUnavailable
from sluicegate.storage.lineage import (
    RESTORING,
    Lineage,
    claim_lineage,
    create_lineage,
    delete_checkpoint,
    new_lineage_id,
)
from sluicegate.storage.object_store import LocalObjectStore, ObjectStore
from sluicegate.storage.s3_object_store import S3ObjectStore

NAMES = ("commits/0", "epochs/0", "metadata", "offsets/0", "sources/0/0", "state/0/0/10.zip")


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return LocalObjectStore(tmp_path)
    return S3ObjectStore(MemoryStore(), "s3://b/c")  # type: ignore[arg-type]


def test_a_checkpoint_that_was_deleted_is_a_new_one(store: ObjectStore) -> None:
    first = claim_lineage(store, "j")
    for name in NAMES:
        store.create(name, b"x")
    delete_checkpoint(store)
    assert claim_lineage(store, "j").id != first.id


@pytest.mark.parametrize("left", NAMES)
def test_a_checkpoint_whose_deletion_was_interrupted_is_refused(
    store: ObjectStore, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old state under a new lineage would be loaded as if it were its own."""
    claim_lineage(store, "j")
    store.create(left, b"x")

    def interrupted() -> None:
        raise StoreUnavailable("no reply")

    monkeypatch.setattr(store, "clear", interrupted)
    with pytest.raises(StoreUnavailable):
        delete_checkpoint(store)
    with pytest.raises(CheckpointOfAnotherJob, match=left.partition("/")[0]):
        claim_lineage(store, "j")


def test_a_lineage_that_cannot_be_read_back_is_not_claimed(tmp_path: Path) -> None:
    """The checkpoint may have another one."""

    class Blind(LocalObjectStore):
        def read(self, name: str) -> bytes | None:
            del name
            return None

    with pytest.raises(
        StoreUnavailable, match=r"lineage.json of .* was created and cannot be read"
    ):
        claim_lineage(Blind(tmp_path), "j")


def test_a_checkpoint_keeps_its_lineage(store: ObjectStore) -> None:
    assert claim_lineage(store, "job") == claim_lineage(store, "job")


def test_two_checkpoints_have_different_lineages(tmp_path: Path) -> None:
    one, two = (claim_lineage(LocalObjectStore(tmp_path / name), "job") for name in ("a", "b"))
    assert one.id != two.id


def test_a_checkpoint_of_another_job_is_rejected_by_name(store: ObjectStore) -> None:
    claim_lineage(store, "orders")
    with pytest.raises(CheckpointOfAnotherJob, match=r"orders(.|\n)*ip_count"):
        claim_lineage(store, "ip_count")


def test_a_checkpoint_is_claimed_again_after_spark_has_used_it(store: ObjectStore) -> None:
    lineage = claim_lineage(store, "ip_count")
    store.create("metadata", b"{}")
    assert claim_lineage(store, "ip_count") == lineage


def test_a_checkpoint_whose_restore_is_incomplete_is_rejected(store: ObjectStore) -> None:
    store.create(RESTORING, b"{}")
    with pytest.raises(CheckpointOfAnotherJob, match=r"restore of a savepoint .* is incomplete"):
        claim_lineage(store, "ip_count")


def test_the_id_of_a_lineage_is_short_enough_for_the_keys_of_markers() -> None:
    assert len(new_lineage_id()) == 16


def test_a_checkpoint_that_spark_used_alone_is_rejected(store: ObjectStore) -> None:
    store.create("metadata", b"{}")
    with pytest.raises(CheckpointOfAnotherJob):
        claim_lineage(store, "ip_count")


def test_a_restored_lineage_reads_back_with_its_parent(store: ObjectStore) -> None:
    lineage = Lineage("l", "j", first_epoch=4, parent="p", moved=True)
    assert create_lineage(store, lineage) == lineage
    assert claim_lineage(store, "j") == lineage


def test_a_lineage_is_created_once(store: ObjectStore) -> None:
    first = create_lineage(store, Lineage("one", "j"))
    assert create_lineage(store, Lineage("two", "j")) == first


def test_a_lineage_of_an_older_version_is_read(store: ObjectStore) -> None:
    store.create("lineage.json", b'{"id": "l", "job": "j", "first_epoch": 0}')
    assert claim_lineage(store, "j") == Lineage("l", "j")
