"""Staged chunks that have objects of their own."""

import hashlib
from pathlib import Path

import pytest

from sluicegate.errors import EpochLogBroken, StageFailed
from sluicegate.protocol.record import Chunk
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.storage.staging_area import StagingArea


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path)


def test_rule_08_a_staged_name_is_never_written_twice(store: LocalObjectStore) -> None:
    area = StagingArea(store)
    area.write(4, "a", "s/0-0-0-0", b"1")
    with pytest.raises(StageFailed):
        area.write(4, "a", "s/0-0-0-0", b"2")


def test_a_changed_chunk_is_not_applied(store: LocalObjectStore) -> None:
    area = StagingArea(store)
    name = area.write(4, "a", "x", b"other")
    with pytest.raises(EpochLogBroken):
        area.read(Chunk("s", 0, (0, 0), 1, 5, "not its hash", name=name))


def test_a_chunk_whose_reply_was_lost_is_found_by_its_content(store: LocalObjectStore) -> None:
    """The client repeats the request and finds its own object; other content is an error."""
    area = StagingArea(store)
    assert area.write(4, "a", "x", b"rows") == area.write(4, "a", "x", b"rows")
    with pytest.raises(StageFailed, match="exists already with other content"):
        area.write(4, "a", "x", b"other rows")


def test_a_chunk_is_read_from_its_record_or_from_its_object(store: LocalObjectStore) -> None:
    area, digest = StagingArea(store), hashlib.sha256(b"rows").hexdigest()
    name = area.write(4, "a", "x", b"rows")
    for chunk in (
        Chunk("s", 0, (0, 0), 1, 4, digest, name=name),
        Chunk("s", 0, (0, 0), 1, 4, digest, inline=b"rows"),
    ):
        assert area.read(chunk) == b"rows"


def test_a_missing_chunk_is_an_error(store: LocalObjectStore) -> None:
    with pytest.raises(EpochLogBroken, match="is missing"):
        StagingArea(store).read(Chunk("s", 0, (0, 0), 1, 5, "h", name="staging/4/a/x"))
