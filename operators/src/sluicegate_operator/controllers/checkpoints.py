"""Resolution of what a job refers to: its CheckpointVolume, its Savepoints, and their addresses."""

from __future__ import annotations

from sluicegate.errors import PreflightFailed, SettingsInvalid
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import checkpoint_address
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.controllers.caches import Caches, Index
from sluicegate_operator.controllers.resource import SavepointResource
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.pods.environment import CheckpointLocation
from sluicegate_operator.reconcile import readiness
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job, SavepointState


class CheckpointResolver:
    """Volumes and savepoints as a job sees them, by the caches."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._savepoints_by_job = Index(caches.savepoints, _job_of)

    def readiness(self, job: Job) -> tuple[bool, str]:
        """Return whether a driver may start on the job's volume, and the reason if it may not."""
        name = job.spec.checkpoint.volume
        volume = self._caches.volumes.get((job.namespace, name))
        if volume is None:
            return False, f"there is no CheckpointVolume {name}"
        if isinstance(volume.spec, SettingsInvalid):
            return False, f"the spec of CheckpointVolume {name} is invalid: {volume.spec.what}"
        if volume.meta.deleted:
            return False, f"CheckpointVolume {name} is being deleted"
        return readiness.readiness(volume.spec, volume.status)

    def volume_access(self, job: Job) -> str:
        """Return a digest of the endpoint and Secrets with which the job's volume passed its check."""
        volume = self._caches.volumes.get((job.namespace, job.spec.checkpoint.volume))
        return "" if volume is None else volume.status.checked_access

    def usable_for_apply(self, job: Job) -> bool:
        """Return whether a driver that only applies decided epochs may start on the job's volume."""
        volume = self._caches.volumes.get((job.namespace, job.spec.checkpoint.volume))
        if volume is None or isinstance(volume.spec, SettingsInvalid):
            return False
        return readiness.usable_for_apply(volume.spec, volume.status)

    def savepoints(self, job: Job) -> dict[str, SavepointState]:
        """Return the state of each Savepoint that belongs to this job, or that it refers to."""
        own = self.savepoints_of((job.namespace, job.name))
        names = {*own, *referenced_savepoints(job.spec, job.status)}
        found = {name: self._caches.savepoints.get((job.namespace, name)) for name in names}
        return {
            name: readiness.savepoint_state(one.status, deleted=one.meta.deleted)
            for name, one in found.items()
            if one
        }

    def savepoints_of(self, job: Key) -> tuple[str, ...]:
        """Return the names of a job's Savepoints."""
        return tuple(name for _, name in self._savepoints_by_job.keys(job))

    def location(self, job: Job, action: CreateDriver) -> CheckpointLocation:
        """Return where a new driver works.

        Raises:
            PreflightFailed: the volume has disappeared since it was observed to be ready, or the
                savepoint has that a checkpoint without an epoch starts from.
        """
        volume = self.volume(job.namespace, action.spec.checkpoint.volume)
        savepoint = self._caches.savepoints.get((job.namespace, action.restore_from))
        address = "" if savepoint is None else readiness.restore_address(savepoint.status)[0]
        if action.restore_from and not address and job.status.checkpoint.last_epoch is None:
            raise PreflightFailed(
                f"Savepoint {action.restore_from} does not exist or has not been taken",
                data="no driver was started: it would have started with an empty checkpoint",
                do="wait: the operator tries again; or create the Savepoint",
            )
        checkpoint = checkpoint_address(volume, job.name, action.spec, action.checkpoint_number)
        return CheckpointLocation(checkpoint, volume, address)

    def volume(self, namespace: str, name: str) -> CheckpointVolumeSpec:
        """Return the spec of a CheckpointVolume.

        Raises:
            PreflightFailed: it does not exist, or its spec is invalid.
        """
        volume = self._caches.volumes.get((namespace, name))
        if volume is None or isinstance(volume.spec, SettingsInvalid):
            raise PreflightFailed(
                f"CheckpointVolume {name} does not exist, or its spec is invalid",
                data="nothing was done on it",
                do="create or correct it; the operator keeps trying until then",
            )
        return volume.spec


def _job_of(savepoint: SavepointResource) -> Key | None:
    spec = savepoint.valid_spec
    return None if spec is None else (savepoint.meta.namespace, spec.job)


def referenced_savepoints(spec: StreamingJobSpec, status: StreamingJobStatus) -> frozenset[str]:
    """Return the names of the Savepoints on which the next steps of a job may depend."""
    checkpoints = [status.checkpoint]
    if status.last_stable_spec is not None:
        checkpoints.append(status.last_stable_spec.checkpoint)
    names = [spec.checkpoint.restore_from]
    if status.upgrade is not None:
        names.append(status.upgrade.savepoint)
    for checkpoint in checkpoints:
        names += [checkpoint.restored_from, *checkpoint.abandoned_savepoints]
    return frozenset(names) - {""}
