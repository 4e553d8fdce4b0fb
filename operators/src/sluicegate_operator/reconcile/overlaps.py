"""Folders that two resources in view would share: the older one has the folder.

`sluicegate.storage.owner` protects a folder against resources that the operator does not see.
"""

from __future__ import annotations

from collections.abc import Iterable

from sluicegate_operator.api.locations import volume_address
from sluicegate_operator.api.paths import overlaps
from sluicegate_operator.reconcile.observed import Job, Volume


def overlapping(volume: Volume, others: Iterable[Volume]) -> Volume | None:
    """Return another volume that has a folder of a volume's data, or contains it, or None.

    A volume that is not being deleted counts only older ones: else both would wait for each other. The
    deletion of data waits for all. Endpoints are compared as texts.
    """
    for other in others:
        if other.uid == volume.uid or not _share_data(volume, other):
            continue
        if volume.deleted_at is not None or _is_older(other, volume):
            return other
    return None


def _share_data(one: Volume, other: Volume) -> bool:
    same_store = one.spec.endpoint.rstrip("/") == other.spec.endpoint.rstrip("/")
    return same_store and overlaps(volume_address(one.spec), volume_address(other.spec))


def _is_older(one: Volume | Job, other: Volume | Job) -> bool:
    return _rank(one) < _rank(other)


def _rank(resource: Volume | Job) -> tuple[bool, float, str]:
    """Return what orders resources: who has used its folder comes first; creation times are in seconds."""
    used = resource.status.attempt if isinstance(resource, Job) else resource.status.checked_time
    return not used, resource.created_at, resource.uid


def job_with_path(job: Job, others: Iterable[Job]) -> Job | None:
    """Return an older job of the same namespace whose path overlaps the one of a job, or None.

    Only jobs on the same volume are compared: no two volumes overlap.
    """
    path = _path(job)
    for other in others:
        same_volume = other.spec.checkpoint.volume == job.spec.checkpoint.volume
        shared = other.uid != job.uid and same_volume and overlaps(path, _path(other))
        if shared and (job.deleted or _is_older(other, job)):
            return other
    return None


def _path(job: Job) -> str:
    return job.spec.checkpoint.path.strip("/") or job.name
