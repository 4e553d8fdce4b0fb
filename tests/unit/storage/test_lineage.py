"""Which checkpoint counts as a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sluicegate.errors import CheckpointOfAnotherJob, StoreUnavailable
from sluicegate.storage.lineage import claim_lineage, delete_checkpoint
from sluicegate.storage.object_store import LocalObjectStore, ObjectStore, S3ObjectStore

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
