"""Builders of CheckpointVolumes, their statuses and tasks, and what is observed of them."""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.locations import store_access_digest
from sluicegate_operator.reconcile.observed import Volume, VolumeObserved
from sluicegate_operator.reconcile.storage_tasks import CheckVolume, FailedTask
from tests.unit.operator.builders import NOW

URL = "s3://data/sluice"


def spec(**changes: Any) -> CheckpointVolumeSpec:
    """Return the spec of a volume with an endpoint of its own."""
    given = {"endpoint": "http://s3:7070", "bucket": "data", "prefix": "sluice", **changes}
    return CheckpointVolumeSpec(**given)


def access_digest(volume_spec: CheckpointVolumeSpec | None = None, version: str = "") -> str:
    """Return the access digest of a volume."""
    return f"{store_access_digest(volume_spec or spec())}/{version}"


def healthy(**changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a volume that was checked, measured and pruned 100 s ago."""
    given: dict[str, Any] = {
        "phase": "Ready",
        "observed_generation": 1,
        "checked_time": NOW - 100,
        "checked_access": access_digest(),
        "measured_time": NOW - 100,
        "pruned_time": NOW - 100,
        **changes,
    }
    return CheckpointVolumeStatus(**given)


OWNER = ("CheckpointVolume", "shop", "store", "u-vol")
"""The volume as the owner of its address, in storage tasks."""


def failing(count: int = 1, **changes: Any) -> CheckpointVolumeStatus:
    """Return the status of a volume whose last check has just failed."""
    given: dict[str, Any] = {
        "phase": "Failed",
        "failures": count,
        "failure_reason": "AccessDenied",
        "last_error": "no",
        "failed_time": NOW - 1,
        "failed_access": access_digest(),
        "next_retry_time": NOW + 4,
        **changes,
    }
    return CheckpointVolumeStatus(**given)


def volume(
    volume_spec: CheckpointVolumeSpec | None = None,
    status: CheckpointVolumeStatus | None = None,
    **changes: Any,
) -> Volume:
    """Return a CheckpointVolume."""
    given = {"namespace": "shop", "name": "store", "uid": "u-vol", "generation": 1, **changes}
    return Volume(spec=volume_spec or spec(), status=status or CheckpointVolumeStatus(), **given)


def observed(**changes: Any) -> VolumeObserved:
    """Return an observation that is current."""
    return VolumeObserved(**{"as_of": NOW, **changes})


def check_task(make_bucket: bool = False, access: str = "") -> CheckVolume:  # noqa: FBT001, FBT002 - as short as a row
    """Return the task that checks the volume."""
    return CheckVolume(URL, make_bucket, "us-east-1", access or access_digest(), OWNER)


def failed_state(kind: str = "AccessDenied", at: float = NOW) -> FailedTask:
    """Return a task state that failed."""
    return FailedTask(at, kind, "no", "nothing", "mend it")


OWNING = spec(reclaim_policy="Delete")
DELETED: dict[str, Any] = {"deleted_at": NOW - 100, "has_finalizer": True}
