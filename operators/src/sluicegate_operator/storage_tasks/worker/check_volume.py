"""Check of a volume: its bucket exists, grants access, and creates each object only once.

Creating a bucket is a module of its own (`buckets`), because that needs another client.
"""

from __future__ import annotations

from sluicegate.errors import TargetMissing
from sluicegate.storage.preflight import verify_conditional_create
from sluicegate.storage.s3_config import bucket_of
from sluicegate_operator.reconcile.storage_tasks import CheckVolume, VolumeChecked


def check_volume(task: CheckVolume) -> VolumeChecked:
    """Verify that a volume is usable, and create its bucket if that is allowed.

    Raises:
        TargetMissing: the bucket does not exist and must not be created again.
        AccessDenied, StoreUnsafe, PreflightFailed, StoreUnavailable: see `verify_conditional_create`.
    """
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
        return VolumeChecked(bucket_created=False)
    # imported only when needed: it loads another client of object stores
    from sluicegate_operator.storage_tasks.worker.buckets import create_bucket  # noqa: PLC0415

    created = create_bucket(bucket_of(task.volume), task.region)
    verify_conditional_create(task.volume)
    return VolumeChecked(bucket_created=created)
