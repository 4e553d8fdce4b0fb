"""A volume and its objects: checked, listed page by page with size and time, measured, deleted in bulk.

The library's own `ObjectStore` returns names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sluicegate.errors import SettingsInvalid, StoreUnavailable, TargetMissing
from sluicegate.storage.object_store import open_store
from sluicegate.storage.owner import OWNER, Owner, claim_owner, owned_by_another, read_owner
from sluicegate.storage.preflight import verify_conditional_create
from sluicegate.storage.s3_config import bucket_of, split_s3
from sluicegate.storage.s3_object_store import is_folder_marker
from sluicegate_operator.reconcile.storage_tasks import (
    CheckVolume,
    Delete,
    Deleted,
    Measure,
    Measured,
    VolumeChecked,
)

_PAGE = 1000
"""Objects of a page and of a bulk deletion: the limit of S3."""

_MAX_PASSES = 10
"""A process that keeps writing there cannot be outrun."""

_RETRY_TIMEOUT_S = 60.0

_EPOCH_RECORD = re.compile(r"(?:.*/)?epochs/\d+")


def check_volume(task: CheckVolume) -> VolumeChecked:
    """Verify that a volume is usable, and create its bucket if that is allowed.

    Raises:
        TargetMissing: the bucket does not exist and must not be created again.
        OwnedByAnother: another resource owns the volume's address.
        AccessDenied, StoreUnsafe, PreflightFailed, StoreUnavailable: see `verify_conditional_create`.
    """
    created = _ensure_bucket(task)
    if task.owner:
        claim_owner(open_store(task.volume), Owner(*task.owner))
    return VolumeChecked(bucket_created=created)


def _ensure_bucket(task: CheckVolume) -> bool:
    """Verify the store, and create the bucket if that is allowed; return whether it was created."""
    try:
        verify_conditional_create(task.volume)
    except TargetMissing as error:
        if not task.make_bucket:
            raise TargetMissing(
                f"{error.what}; it existed before",
                data="the checkpoints and savepoints in it may be lost; no driver is started",
                do="restore the bucket, or create an empty one if everything in it may be given up",
            ) from error
    else:
        return False
    # imported only when needed: creating a bucket needs another client
    from sluicegate_operator.storage_tasks.worker.buckets import create_bucket  # noqa: PLC0415

    created = create_bucket(bucket_of(task.volume), task.region)
    verify_conditional_create(task.volume)
    return created


def measure(task: Measure) -> Measured:
    """Count bytes and objects, and find the newest epoch of any job, with one page in memory.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    size, count, newest = 0, 0, None
    for page in pages(task.volume):
        for entry in page:
            size, count = size + entry["size"], count + 1
            if _EPOCH_RECORD.fullmatch(entry["path"]):
                at = entry["last_modified"].timestamp()
                newest = at if newest is None else max(newest, at)
    return Measured(size, count, newest)


def delete(task: Delete) -> Deleted:
    """Delete everything below an address that `pages` yields.

    Raises:
        SettingsInvalid: the address is a whole bucket.
        OwnedByAnother: another resource owns the address or a folder below it.
        StoreUnavailable: the store did not answer, or something keeps writing there.
    """
    if not split_s3(task.address)[1]:
        raise SettingsInvalid(
            f"{task.address} is a whole bucket",
            data="nothing was deleted",
            do="give a prefix below the bucket",
        )
    _check_owners(task)
    removed = 0
    for _ in range(_MAX_PASSES):
        before = removed
        for page in pages(task.address):
            names = [entry["path"] for entry in page]
            if names:
                remove(task.address, names)
            removed += len(names)
        if removed == before:
            return Deleted(removed)
    raise StoreUnavailable(
        f"{task.address} was not empty after {_MAX_PASSES} passes: something keeps writing there",
        data=f"{removed} objects were deleted",
        do="stop the writer; the operator keeps trying",
    )


def _check_owners(task: Delete) -> None:
    """Raise OwnedByAnother if anything below the address belongs to another resource."""
    folder, deleting = open_store(task.address), Owner(*(task.owner or ("nobody", "", "")))
    for page in pages(task.address):
        for name in (entry["path"] for entry in page):
            if name.rpartition("/")[2] != OWNER:
                continue
            found = read_owner(folder, name)
            if found is not None and not found.is_same(deleting) and not _contains(deleting, found):
                url = f"{task.address}/{name}".removesuffix(f"/{OWNER}")
                raise owned_by_another(url, found, deleting)


def _contains(volume: Owner, job: Owner) -> bool:
    """Return whether the first is a CheckpointVolume, which is deleted after the jobs of its namespace."""
    kinds = (volume.kind, job.kind) == ("CheckpointVolume", "StreamingJob")
    return kinds and volume.namespace == job.namespace


def pages(address: str) -> Iterator[Sequence[obstore.ObjectMeta]]:
    """Yield the objects below an address in pages; their names are relative to it.

    Markers of folders are left out: see `is_folder_marker`.

    Raises:
        StoreUnavailable: the store did not answer, or refused.
    """
    try:
        store = _open(address)
        for page in obstore.list(store, chunk_size=_PAGE):
            yield [entry for entry in page if not is_folder_marker(store, entry)]
    except (BaseError, FileNotFoundError) as error:  # FileNotFoundError: the bucket does not exist
        raise _unavailable(f"list {address}", error) from error


def remove(address: str, names: Sequence[str]) -> None:
    """Delete objects below an address; an object that does not exist is no error.

    Raises:
        StoreUnavailable: some objects may be left.
    """
    try:
        obstore.delete(_open(address), list(names))
    except (BaseError, OSError) as error:
        raise _unavailable(f"delete {len(names)} objects below {address}", error) from error


def _open(address: str) -> S3Store:
    """Open the store at an address, configured by the AWS_* variables."""
    bucket, prefix = split_s3(address)
    return S3Store(
        bucket,
        prefix=prefix or None,
        retry_config={"retry_timeout": timedelta(seconds=_RETRY_TIMEOUT_S)},
    )


def _unavailable(what: str, error: Exception) -> StoreUnavailable:
    # the answer's text is not repeated: the endpoint is the tenant's choice, and may be any server that only
    # the operator reaches
    code = re.search("<Code>([A-Za-z]{1,64})</Code>", str(error))
    reason = f"{type(error).__name__}{f' ({code[1]})' if code else ''}"
    return StoreUnavailable(
        f"the store did not {what}: {reason}",
        data="a part of it may be done; a retry does the rest",
        do="check the store (keys, permissions, network); the operator keeps trying",
    )
