"""Create-once objects on a local disk and on S3."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from infra.local_services import S3Endpoint
from sluicegate.errors import SettingsInvalid, StoreUnavailable
from sluicegate.storage import s3_object_store
from sluicegate.storage.object_access import PIECE_BYTES
from sluicegate.storage.object_store import (
    LocalObjectStore,
    ObjectStore,
    absolute,
    open_checkpoint,
    open_store,
)
from sluicegate.storage.s3_object_store import S3ObjectStore


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(str(tmp_path))
    bucket: S3Endpoint = request.getfixturevalue("bucket")
    return open_store(f"{bucket.url}/{uuid.uuid4().hex}")


def test_rule_01_the_first_creation_wins_and_its_bytes_stay(store: ObjectStore) -> None:
    assert store.create("epochs/0", b"first")
    assert not store.create("epochs/0", b"second")
    assert store.read("epochs/0") == b"first"


def test_rule_01_a_race_of_sixteen_creations_has_one_winner_25_times_of_25(
    store: ObjectStore,
) -> None:
    with ThreadPoolExecutor(16) as pool:
        for epoch in range(25):
            name = f"epochs/{epoch}"
            won = list(pool.map(lambda i, n=name: store.create(n, b"%d" % i), range(16)))
            assert won.count(True) == 1
            assert store.read(name) == b"%d" % won.index(True)


def test_a_missing_object_reads_as_none_and_is_deleted_without_error(store: ObjectStore) -> None:
    assert store.read("epochs/7") is None
    store.delete("epochs/7")


def test_names_lists_what_is_below_the_prefix(store: ObjectStore) -> None:
    for name in ("epochs/1", "epochs/2.discard/mysql", "staging/1/a/x"):
        store.create(name, b"")
    assert sorted(store.names("epochs/")) == ["epochs/1", "epochs/2.discard/mysql"]


def test_a_folder_that_vanishes_while_it_is_listed_has_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process sweeps staged chunks at the same time."""
    store = LocalObjectStore(tmp_path)
    for name in ("staging/1/a/x", "staging/2/a/x"):
        store.create(name, b"")
    scandir = os.scandir

    def removed_first(path: str) -> object:
        if str(path).endswith("staging/1"):
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed_first)
    assert list(store.names("staging/")) == ["staging/2/a/x"]


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not look empty: a decision may be in it."""

    def denied(path: str) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(StoreUnavailable, match="did not list"):
        list(LocalObjectStore(tmp_path).names("epochs/"))


def test_a_deleted_name_can_be_created_again(store: ObjectStore) -> None:
    store.create("a/b", b"1")
    store.delete("a/b")
    assert list(store.names("a/")) == []
    assert store.create("a/b", b"2")


def test_a_partially_written_file_is_not_an_object(tmp_path: Path) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / ".scratch").write_bytes(b"half")
    assert list(LocalObjectStore(tmp_path).names("epochs/")) == []


def test_a_failed_write_is_reported_as_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "epochs").write_bytes(b"a file where a folder should be")
    with pytest.raises(
        StoreUnavailable, match=r"create(.|\n)*data: a write may or may not(.|\n)*do: "
    ):
        LocalObjectStore(tmp_path).create("epochs/0", b"")


def test_an_unknown_scheme_is_rejected_by_name() -> None:
    with pytest.raises(SettingsInvalid, match="ftp"):
        open_store("ftp://host/path")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "a//b", ".", ""])
def test_a_name_that_leaves_the_store_is_refused(name: str, tmp_path: Path) -> None:
    """A savepoint's manifest or an epoch record may be written by somebody else."""
    inside = tmp_path / "inside"
    for store in (open_store(str(inside)), S3ObjectStore(MemoryStore())):  # type: ignore[arg-type] # as below
        for use in (
            lambda: store.create(name, b"x"),  # noqa: B023 - called in this iteration
            lambda: store.put(name, [b"x"]),  # noqa: B023
            lambda: store.read(name),  # noqa: B023
            lambda: store.stream(name),  # noqa: B023
            lambda: store.delete(name),  # noqa: B023
        ):
            with pytest.raises(SettingsInvalid, match="is not the name of an object"):
                use()
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "url",
    ["s3://b/shop/#/1", "s3://b/shop?x", "s3a://b/a/../c", "s3://b/a//c", "s3:///x", "file:///a#b"],
)
def test_an_address_that_clients_read_differently_is_refused(url: str) -> None:
    with pytest.raises(SettingsInvalid):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "spelling"),
    [
        ("s3a://b/shop/orders/", "s3://b/shop/orders"),
        ("s3://b/", "s3://b"),
        ("/shop/../orders/", "/orders"),
        ("file:///shop/../orders/", "/orders"),
    ],
)
def test_an_address_has_one_spelling(url: str, spelling: str) -> None:
    """By it a savepoint inside its own checkpoint, and a job that was moved elsewhere, are noticed."""
    assert absolute(url) == absolute(spelling) == spelling


def test_a_relative_path_means_the_same_in_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sluicegate stop` sends the folder of a savepoint to a driver that runs elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert absolute("savepoints/") == str(tmp_path / "savepoints")


@pytest.mark.parametrize("url", ["ftp://host/a/", "file:///a#b", "file:///a?b"])
def test_an_address_that_cannot_be_opened_cannot_be_opened_in_its_one_spelling(url: str) -> None:
    """Otherwise `sluicegate stop` would write the savepoint into another folder."""
    with pytest.raises(SettingsInvalid, match="unknown scheme"):
        open_store(absolute(url))


# --- large objects in pieces ------------------------------------------------------------------------

PIECES = [b"a" * (3 << 20), b"b" * (3 << 20), b"c"]


@pytest.fixture(params=["local", "obstore", "s3"])
def large(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Return a store; 'obstore' is the S3 code on obstore's in-memory store."""
    if request.param == "obstore":
        return S3ObjectStore(MemoryStore())  # type: ignore[arg-type] # obstore's functions take any store
    if request.param == "local":
        return open_store(str(tmp_path))
    bucket: S3Endpoint = request.getfixturevalue("bucket")
    return open_store(f"{bucket.url}/{uuid.uuid4().hex}")


@pytest.mark.parametrize("pieces", [PIECES, [b"small"], []])
def test_an_object_is_written_and_read_in_pieces(large: ObjectStore, pieces: list[bytes]) -> None:
    large.put("a/large", iter(pieces))
    read = large.stream("a/large")
    assert read is not None
    sizes = [len(piece) for piece in read]
    assert sum(sizes) == sum(map(len, pieces))
    assert max(sizes, default=0) <= 2 * PIECE_BYTES
    assert large.read("a/large") == b"".join(pieces)


def test_put_replaces_an_object(large: ObjectStore) -> None:
    large.put("a", [b"1"])
    large.put("a", [b"2"])
    assert large.read("a") == b"2"


def test_a_missing_object_streams_as_none(large: ObjectStore) -> None:
    assert large.stream("nowhere") is None


def test_put_leaves_no_object_when_its_pieces_fail(large: ObjectStore) -> None:
    def failing() -> Iterator[bytes]:
        yield PIECES[0]
        raise StoreUnavailable("the source went away")

    with pytest.raises(StoreUnavailable):
        large.put("a/b", failing())
    assert large.read("a/b") is None
    assert list(large.names("a/")) == []


def test_a_full_disk_of_temporary_files_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop request was not answered, because nothing expected an OSError."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    store = S3ObjectStore(MemoryStore())  # type: ignore[arg-type] # as above
    with pytest.raises(StoreUnavailable, match=f"did not write a through a file in {tmp_path}"):
        store.put("a", PIECES * 2)


def test_entries_are_the_objects_and_folders_directly_below(large: ObjectStore) -> None:
    for name in ("a/b/c", "a/d", "a/e/f/g", "ab/h", "i"):
        large.create(name, b"x")
    assert sorted(large.entries("")) == ["a/", "ab/", "i"]
    assert sorted(large.entries("a/")) == ["a/b/", "a/d", "a/e/"]
    assert list(large.entries("nowhere/")) == []


def test_entries_follow_no_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")
    assert list(open_store(str(tmp_path / "inside")).entries("")) == []


def test_names_follow_a_link_to_a_folder(tmp_path: Path) -> None:
    """Spark does; the state of a checkpoint may be on a faster disk."""
    (tmp_path / "fast-disk" / "0").mkdir(parents=True)
    (tmp_path / "fast-disk" / "0" / "1.delta").touch()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "state").symlink_to(tmp_path / "fast-disk")
    assert list(open_store(str(tmp_path / "job")).names("")) == ["state/0/1.delta"]


def test_links_in_a_circle_end_in_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    store = open_store(str(tmp_path))
    (name,) = store.names("")
    with pytest.raises(StoreUnavailable, match="Too many levels of symbolic links"):
        store.read(name)


def test_a_file_url_names_a_folder_and_is_kept(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    store.create("a", b"1")
    assert (store.url, (tmp_path / "a").read_bytes()) == (f"file://{tmp_path}", b"1")
    assert LocalObjectStore(tmp_path).url == str(tmp_path)


@pytest.mark.parametrize("tail", ["?x", "#x"])
def test_a_file_url_with_a_query_or_a_fragment_is_refused(tmp_path: Path, tail: str) -> None:
    with pytest.raises(SettingsInvalid, match="a '\\?' or a '#'"):
        open_store(f"file://{tmp_path}{tail}")


@pytest.mark.parametrize(
    "url", ["", "file://data/checkpoint", "file://localhost/data", "hdfs:/data"]
)
def test_an_address_that_names_no_folder_is_refused(url: str) -> None:
    """One without an address would be the working directory, and one with a host another folder."""
    with pytest.raises(SettingsInvalid, match="is empty, or has an unknown scheme, a host"):
        open_store(url)


def test_requests_to_s3_are_retried_as_long_as_the_caller_says_and_a_minute_for_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        s3_object_store, "S3Store", lambda bucket, **others: opened.append((bucket, others))
    )
    open_store("s3://b/p/", retry_timeout_s=7)
    assert open_checkpoint("s3://b/p/").url == "s3://b/p/"
    assert [(bucket, others["prefix"]) for bucket, others in opened] == [("b", "p")] * 2
    retries = [others["retry_config"] for _, others in opened]
    assert [one["retry_timeout"] for one in retries] == [timedelta(seconds=7), timedelta(minutes=1)]
    assert retries[0]["backoff"] == {
        "init_backoff": timedelta(seconds=0.1),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    }


def test_a_name_with_a_null_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid):
        LocalObjectStore(tmp_path).read("a\0b")


def test_an_error_of_the_disk_is_repeated_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnavailable) as caught:
        LocalObjectStore(tmp_path).read("folder")
    assert caught.value.what.endswith(f"Is a directory: '{tmp_path / 'folder'}'")


def test_hidden_files_are_no_entries(tmp_path: Path) -> None:
    """Files that are being written have such names."""
    (tmp_path / ".hidden").write_bytes(b"")
    (tmp_path / "seen").write_bytes(b"")
    assert list(LocalObjectStore(tmp_path).entries("")) == ["seen"]


def test_a_store_is_cleared_and_used_again(store: ObjectStore) -> None:
    store.create("a/b", b"1")
    store.create("c", b"1")
    store.clear()
    assert list(store.names("")) == []
    store.clear()
    assert store.create("c", b"2")


def test_a_folder_is_gone_with_its_last_object(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    store.create("a/b/c", b"1")
    store.create("a/d", b"1")
    store.delete("a/b/c")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["d"]
