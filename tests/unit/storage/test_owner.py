"""Owners of folders on a store: the first resource that claims a folder has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.errors import OwnedByAnother, StoreUnavailable
from sluicegate.storage.object_store import LocalObjectStore, open_store
from sluicegate.storage.owner import OWNER, Owner, claim_owner, read_owner
from sluicegate_operator.api import paths

CLICKS = Owner("StreamingJob", "shop", "clicks", "u-1")


def test_a_second_owner_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    folder = open_store(str(tmp_path))
    claim_owner(folder, CLICKS)
    with pytest.raises(OwnedByAnother, match="belongs to StreamingJob shop/clicks"):
        claim_owner(folder, Owner("StreamingJob", "shop", "orders"))
    assert read_owner(folder) == CLICKS


def test_a_resource_created_again_is_the_same_owner(tmp_path: Path) -> None:
    """A StreamingJob that is deleted and applied again continues with its checkpoint."""
    folder = open_store(str(tmp_path))
    claim_owner(folder, CLICKS)
    claim_owner(folder, Owner("StreamingJob", "shop", "clicks", "u-2"))
    assert read_owner(folder) == CLICKS


@pytest.mark.parametrize("content", [b"", b"[]", b'{"kind": "x"}', b"\xff"])
def test_an_unreadable_owner_is_not_taken_for_none(content: bytes, tmp_path: Path) -> None:
    folder = open_store(str(tmp_path))
    folder.create(OWNER, content)
    with pytest.raises(OwnedByAnother, match="does not name an owner"):
        claim_owner(folder, CLICKS)


def test_of_two_owners_that_claim_at_once_one_is_refused(tmp_path: Path) -> None:
    class Raced(LocalObjectStore):
        def create(self, name: str, content: bytes) -> bool:
            super().create(name, content.replace(b"clicks", b"orders"))
            return super().create(name, content)

    with pytest.raises(OwnedByAnother, match="belongs to StreamingJob shop/orders"):
        claim_owner(Raced(tmp_path), CLICKS)


def test_an_owner_that_cannot_be_read_back_owns_nothing(tmp_path: Path) -> None:
    """Another one may have created the object."""

    class Blind(LocalObjectStore):
        def read(self, name: str) -> bytes | None:
            assert name == OWNER
            return None

    with pytest.raises(StoreUnavailable, match="was created and cannot be read"):
        claim_owner(Blind(tmp_path), CLICKS)


def test_the_operator_reserves_the_name_of_the_object() -> None:
    """The operator does not import the library's storage, so this test compares the two."""
    assert paths.OWNER == OWNER
