"""Create-once objects: on a local disk always, on S3 where SLUICEGATE_S3 names a bucket."""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sluicegate.protocol.errors import SettingsInvalid, StoreUnavailable
from sluicegate.storage.objects import (
    PIECE_BYTES,
    LocalObjects,
    Objects,
    S3Objects,
    open_objects,
)

S3 = os.environ.get("SLUICEGATE_S3", "")


@pytest.fixture(params=["local", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "s3" and not S3:
        pytest.skip("SLUICEGATE_S3 (s3://bucket/prefix, with AWS_* for the endpoint) is not set")
    return open_objects(str(tmp_path) if request.param == "local" else f"{S3}/{uuid.uuid4().hex}")


def test_rule_01_the_first_creation_wins_and_its_bytes_stay(objects: Objects) -> None:
    assert objects.create("epochs/0", b"first")
    assert not objects.create("epochs/0", b"second")
    assert objects.read("epochs/0") == b"first"


def test_rule_01_a_race_of_sixteen_creations_has_one_winner_25_times_of_25(
    objects: Objects,
) -> None:
    with ThreadPoolExecutor(16) as pool:
        for epoch in range(25):
            name = f"epochs/{epoch}"
            won = list(pool.map(lambda i, n=name: objects.create(n, b"%d" % i), range(16)))
            assert won.count(True) == 1
            assert objects.read(name) == b"%d" % won.index(True)


def test_what_is_not_there_reads_as_nothing_and_deletes_without_error(objects: Objects) -> None:
    assert objects.read("epochs/7") is None
    objects.delete("epochs/7")


def test_names_are_those_below_the_prefix(objects: Objects) -> None:
    for name in ("epochs/1", "epochs/2.discard/mysql", "staging/1/a/x"):
        objects.create(name, b"")
    assert sorted(objects.names("epochs/")) == ["epochs/1", "epochs/2.discard/mysql"]


def test_a_deleted_name_can_be_created_again(objects: Objects) -> None:
    objects.create("a/b", b"1")
    objects.delete("a/b")
    assert list(objects.names("a/")) == []
    assert objects.create("a/b", b"2")


def test_a_half_written_file_is_never_an_object(tmp_path: Path) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / ".scratch").write_bytes(b"half")
    assert list(LocalObjects(tmp_path).names("epochs/")) == []


def test_a_store_that_fails_says_that_the_write_is_in_doubt(tmp_path: Path) -> None:
    (tmp_path / "epochs").write_bytes(b"a file where a folder should be")
    with pytest.raises(StoreUnavailable, match=r"create(.|\n)*data: whether(.|\n)*do: "):
        LocalObjects(tmp_path).create("epochs/0", b"")


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(SettingsInvalid, match="ftp"):
        open_objects("ftp://host/path")


# --- in pieces, for what is too large for memory -----------------------------------------------------

PIECES = [b"a" * (3 << 20), b"b" * (3 << 20), b"c"]


@pytest.fixture(params=["local", "obstore", "s3"])
def large(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """Give a store; 'obstore' is the code for S3 over obstore's own store in memory."""
    if request.param == "obstore":
        return S3Objects(MemoryStore())  # type: ignore[arg-type] # obstore's functions take any store
    if request.param == "s3" and not S3:
        pytest.skip("SLUICEGATE_S3 (s3://bucket/prefix, with AWS_* for the endpoint) is not set")
    return open_objects(str(tmp_path) if request.param == "local" else f"{S3}/{uuid.uuid4().hex}")


@pytest.mark.parametrize("pieces", [PIECES, [b"small"], []])
def test_an_object_that_is_put_in_pieces_is_read_in_pieces(
    large: Objects, pieces: list[bytes]
) -> None:
    large.put("a/large", iter(pieces))
    found = large.chunks("a/large")
    assert found is not None
    sizes = [len(piece) for piece in found]
    assert sum(sizes) == sum(map(len, pieces))
    assert max(sizes, default=0) <= 2 * PIECE_BYTES
    assert large.read("a/large") == b"".join(pieces)


def test_a_put_replaces(large: Objects) -> None:
    large.put("a", [b"1"])
    large.put("a", [b"2"])
    assert large.read("a") == b"2"


def test_pieces_of_what_is_not_there_are_none(large: Objects) -> None:
    assert large.chunks("nowhere") is None


def test_a_put_whose_pieces_fail_leaves_no_object(large: Objects) -> None:
    def torn() -> Iterator[bytes]:
        yield PIECES[0]
        raise StoreUnavailable("the source went away")

    with pytest.raises(StoreUnavailable):
        large.put("a/torn", torn())
    assert large.read("a/torn") is None
    assert list(large.names("a/")) == []
