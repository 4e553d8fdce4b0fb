"""What the S3 server has acknowledged survives a power cut, and a local checkpoint goes on after one.

The folder is an ext4 image on a loop device. The image is copied while it is in use: what the file
system has not written to its device is not in the copy, as after a power cut.
"""

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import minio
import obstore
import pytest
from minio.commonconfig import CopySource
from minio.deleteobjects import DeleteObject
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError
from obstore.store import S3Store

from infra.local_services.s3 import S3Endpoint, S3Server
from infra.toolchain import go_programs
from sluicegate.storage.epoch_log import StoredOffsets
from sluicegate.storage.object_store import LocalObjectStore
from tests.integration.power_cuts import make_disk, mount_after_cut
from tests.robustness.failpoints.disk import cut, flush
from tests.unit.spark.test_ports import check_state

_BUCKET = "sluicegate"
_USERS = {"job": "s3://rights/job", "other": "s3://rights/other"}
_PART = 5 * 1024 * 1024  # the smallest part that S3 takes, but for the last


def _serve(folder: Path, stack: ExitStack) -> S3Server:
    server = S3Server(folder, users=_USERS)
    server.start()
    stack.callback(server.stop)
    return server


def _client(endpoint: S3Endpoint) -> minio.Minio:
    address = endpoint.endpoint.removeprefix("http://")
    return minio.Minio(address, endpoint.access_key, endpoint.secret_key, secure=False)


def _store(endpoint: S3Endpoint) -> S3Store:
    return S3Store(
        endpoint.bucket,
        endpoint=endpoint.endpoint,
        access_key_id=endpoint.access_key,
        secret_access_key=endpoint.secret_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )


def _put(client: minio.Minio, name: str, content: bytes, bucket: str = _BUCKET) -> None:
    client.put_object(bucket, name, io.BytesIO(content), len(content), part_size=_PART)


def _write(endpoint: S3Endpoint) -> None:
    """Make every kind of write that the library and the operator make, each acknowledged."""
    client, store = _client(endpoint), _store(endpoint)
    for number in range(20):
        obstore.put(store, f"job/epochs/{number}", b"decision", mode="create", use_multipart=False)
    _put(client, "job/staged/large", b"x" * (_PART + 1))  # in two parts
    _put(client, "job/replaced", b"new")
    source = CopySource(_BUCKET, "job/epochs/1")
    client.copy_object(_BUCKET, "savepoint/deep/folder/1", source)
    client.remove_object(_BUCKET, "old/deleted/alone")
    names = [DeleteObject("old/deleted/together")]
    assert not list(client.remove_objects(_BUCKET, names))
    client.make_bucket("made")
    _put(client, "first", b"1", bucket="made")


@pytest.fixture(scope="module")
def server_after_the_cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Yield a server on what the disk had when the last write was acknowledged."""
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    work = tmp_path_factory.mktemp("power")
    image = work / "disk.img"
    with ExitStack() as stack:
        disk = make_disk(image, work / "disk", stack)
        server = _serve(disk, stack)
        endpoint = server.endpoint
        for name in ("job/replaced", "old/deleted/alone", "old/deleted/together"):
            _put(_client(endpoint), name, b"old")
        flush(disk)
        _write(endpoint)
        server.make_buckets()
        obstore.put(_store(server.users["job"]), "job/epochs/1", b"decision", use_multipart=False)
        left = cut(image)
    with ExitStack() as stack:
        yield _serve(mount_after_cut(left, work / "cut", stack), stack)


@pytest.fixture(scope="module")
def after_the_cut(server_after_the_cut: S3Server) -> S3Endpoint:
    """Return the login of root on that server."""
    return server_after_the_cut.endpoint


def _names(endpoint: S3Endpoint, prefix: str, bucket: str = _BUCKET) -> list[str]:
    found = _client(endpoint).list_objects(bucket, prefix, recursive=True)
    return sorted(str(one.object_name) for one in found)


def _content(endpoint: S3Endpoint, name: str) -> bytes:
    return obstore.get(_store(endpoint), name).bytes().to_bytes()


def test_created_objects_are_there_and_cannot_be_created_again(after_the_cut: S3Endpoint) -> None:
    store = _store(after_the_cut)
    for number in range(20):
        assert _content(after_the_cut, f"job/epochs/{number}") == b"decision"
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, f"job/epochs/{number}", b"other", mode="create", use_multipart=False)


def test_a_multipart_upload_is_complete(after_the_cut: S3Endpoint) -> None:
    assert _content(after_the_cut, "job/staged/large") == b"x" * (_PART + 1)


def test_a_replaced_object_has_its_new_content(after_the_cut: S3Endpoint) -> None:
    assert _content(after_the_cut, "job/replaced") == b"new"


def test_a_copy_in_new_folders_is_there(after_the_cut: S3Endpoint) -> None:
    assert _content(after_the_cut, "savepoint/deep/folder/1") == b"decision"


def test_deleted_objects_do_not_come_back(after_the_cut: S3Endpoint) -> None:
    assert _names(after_the_cut, "old/") == []


def test_the_rights_of_users_are_there(server_after_the_cut: S3Server) -> None:
    job, other = (server_after_the_cut.users[name] for name in ("job", "other"))
    assert _content(job, "job/epochs/1") == b"decision"
    with pytest.raises(PermissionDeniedError):
        _content(other, "job/epochs/1")


def test_a_created_bucket_is_there_with_its_object(after_the_cut: S3Endpoint) -> None:
    assert _names(after_the_cut, "", bucket="made") == ["first"]


def test_a_key_whose_upload_was_cut_off_can_be_created(tmp_path: Path) -> None:
    """Attributes are stored before the object gets its name: alone they are no object."""
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    with ExitStack() as stack:
        endpoint = _serve(tmp_path, stack).endpoint
        _put(_client(endpoint), "epochs/7", b"cut off")
        (tmp_path / "s3" / "objects" / _BUCKET / "epochs" / "7").unlink()
        obstore.put(_store(endpoint), "epochs/7", b"7", mode="create", use_multipart=False)
        assert _content(endpoint, "epochs/7") == b"7"


def _write_as_spark(path: Path, content: bytes) -> None:
    """Write a file as LocalCheckpointFileManager creates one: nothing is synced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(content)
    path.hardlink_to(scratch)
    scratch.unlink()


def test_a_local_checkpoint_has_no_empty_log_file_when_spark_starts_after_the_cut(
    tmp_path: Path,
) -> None:
    """Spark refuses to start over one, and the commit of an epoch is written after its decision."""
    image = tmp_path / "disk.img"
    with ExitStack() as stack:
        root = make_disk(image, tmp_path / "disk", stack) / "checkpoint"
        store = LocalObjectStore(root)
        for epoch in range(3):
            _write_as_spark(root / f"offsets/{epoch}", b"v1")
            check_state(root, epoch)
            store.create(f"epochs/{epoch}", b"decision")
            _write_as_spark(root / f"commits/{epoch}", b"v1")
        _write_as_spark(root / "offsets/3", b"v1")
        store.put("epochs/2.report", [b"{}"])  # what makes names, but not contents, durable
        left = cut(image)
    with ExitStack() as stack:
        store = LocalObjectStore(mount_after_cut(left, tmp_path / "cut", stack) / "checkpoint")
        assert store.read("commits/2") == b"", "the cut spared what this test is about"
        StoredOffsets(store).remove_empty()
        names = [name for folder in ("commits/", "offsets/") for name in store.names(folder)]
        assert {name: store.read(name) for name in names} == dict.fromkeys(
            ["commits/0", "commits/1", "offsets/0", "offsets/1", "offsets/2"], b"v1"
        )
