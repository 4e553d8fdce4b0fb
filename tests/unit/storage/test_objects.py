"""Create-once objects on a local disk and on S3."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.embedded import S3Endpoint
from sluicegate.protocol.errors import SettingsInvalid, StoreUnavailable
from sluicegate.storage.objects import LocalObjects, Objects, open_objects


@pytest.fixture(params=["local", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "local":
        return open_objects(str(tmp_path))
    bucket: S3Endpoint = request.getfixturevalue("bucket")
    return open_objects(f"{bucket.url}/{uuid.uuid4().hex}")


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
