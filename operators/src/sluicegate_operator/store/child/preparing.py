"""A volume is made fit: its bucket is there, lets us in, and creates an object once.

Not here: making a bucket (`buckets`). Called by `store.__main__`.
"""

from __future__ import annotations

from sluicegate.checkpoint.preflight import require_create_once
from sluicegate.protocol.errors import (
    TargetMissing,
)
from sluicegate.storage.s3 import bucket_of
from sluicegate_operator.volumes.tasks import Prepare, Prepared


def prepare(task: Prepare) -> Prepared:
    """See that a volume is fit, and make its bucket if that is allowed.

    Raises:
        TargetMissing: there is no bucket, and none is made any more.
        AccessDenied, StoreUnfit, PreflightFailed, StoreUnavailable: see `require_create_once`.
    """
    try:
        require_create_once(task.volume)
    except TargetMissing as error:
        if not task.make_bucket:
            raise TargetMissing(
                f"{error.what}; it was there before",
                data="the checkpoints and savepoints in it may be gone; no driver is started",
                do="restore the bucket; or make it, if all in it may be given up",
            ) from error
    else:
        return Prepared(made=False)
    from sluicegate_operator.store.child.buckets import make  # noqa: PLC0415 - rarely needed

    made = make(bucket_of(task.volume), task.region)
    require_create_once(task.volume)
    return Prepared(made=made)
