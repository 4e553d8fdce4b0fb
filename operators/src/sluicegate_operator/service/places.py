"""What a job needs of volumes and savepoints: are they ready, where are they, how are they reached.

Not here: volumes and savepoints themselves (`service.stored`). Called by `service.jobs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sluicegate.protocol.errors import PreflightFailed, SettingsInvalid
from sluicegate_operator.cluster.client import Api, ApiError, Json, path_of
from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.cluster.objects import meta_of
from sluicegate_operator.pods.checks import refused
from sluicegate_operator.pods.driver import driver_pod
from sluicegate_operator.pods.place import Place
from sluicegate_operator.reconcile.actions import CreateDriver, TakeSavepoint
from sluicegate_operator.reconcile.observed import Job, Taken
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.addresses import checkpoint_address, job_address
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus
from sluicegate_operator.resources.kinds import SAVEPOINT
from sluicegate_operator.resources.volume import CheckpointVolumeSpec
from sluicegate_operator.service.access import Access, read_access
from sluicegate_operator.service.views import SavepointResource, Views
from sluicegate_operator.store.running import run
from sluicegate_operator.volumes import reading
from sluicegate_operator.volumes.tasks import Delete
from sluicegate_operator.volumes.upgrade import savepoint_of_upgrade

_DELETE_S = 3600.0


class Places:
    """Volumes and savepoints as a job sees them."""

    def __init__(self, api: Api, views: Views) -> None:
        self._api, self._views = api, views
        self._of_job: dict[Key, set[str]] = defaultdict(set)
        views.savepoints.listeners.append(self._savepoint_changed)

    def readiness(self, job: Job) -> tuple[bool, str]:
        """Return whether a driver may start on the job's volume, and why not."""
        name = job.spec.checkpoint.volume
        found = self._views.volumes.get((job.namespace, name))
        if found is None:
            return False, f"there is no CheckpointVolume {name}"
        if isinstance(found.spec, SettingsInvalid):
            return False, f"CheckpointVolume {name} cannot be read: {found.spec.what}"
        if found.meta.deleted:
            return False, f"CheckpointVolume {name} is being deleted"
        return reading.readiness(found.spec, found.status)

    def usable(self, job: Job) -> bool:
        """Return whether a driver that only applies what is decided may start on the job's volume."""
        found = self._views.volumes.get((job.namespace, job.spec.checkpoint.volume))
        if found is None or isinstance(found.spec, SettingsInvalid):
            return False
        return reading.usable(found.spec, found.status)

    def taken(self, job: Job) -> dict[str, Taken]:
        """Return how the Savepoints are that are of this job, or that it begins with."""
        names = {*self.savepoints_of((job.namespace, job.name)), *named_by(job.spec, job.status)}
        found = {name: self._views.savepoints.get((job.namespace, name)) for name in names}
        return {name: reading.taken(one.status) for name, one in found.items() if one is not None}

    def savepoints_of(self, job: Key) -> tuple[str, ...]:
        """Return the names of a job's Savepoints."""
        return tuple(self._of_job.get(job, ()))

    def refuses(self, job: Job) -> SettingsInvalid | None:
        """Return why no driver can be made of a job, or None."""
        return refused(job.name, job.spec)

    def driver(self, job: Job, action: CreateDriver) -> Json:
        """Return the manifest of a driver's pod.

        Raises:
            PreflightFailed: its volume has gone since it was seen to be ready, or the savepoint
                that a checkpoint without an epoch begins with.
        """
        volume = self._volume(job.namespace, action.spec.checkpoint.volume)
        found = self._views.savepoints.get((job.namespace, action.restore_from))
        address = "" if found is None else reading.restore_address(found.status)[0]
        if action.restore_from and not address and job.status.last_epoch is None:
            raise PreflightFailed(
                f"Savepoint {action.restore_from} is not there, or is not taken",
                data="no driver was started: it would have begun with nothing",
                do="it is looked at again",
            )
        checkpoint = checkpoint_address(volume, job.name, action.spec, action.checkpoint_number)
        return driver_pod(job, action, Place(checkpoint, volume, address))

    async def take_savepoint(self, job: Job, action: TakeSavepoint) -> None:
        """Create the Savepoint of an upgrade; one that is there is left alone."""
        try:
            made = await self._api.request(
                "POST",
                path_of(SAVEPOINT.plural, job.namespace),
                savepoint_of_upgrade(job, action),
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            path = path_of(SAVEPOINT.plural, job.namespace, action.name)
            made = await self._api.request("GET", path)
            if meta_of(made).annotation(marks.JOB_UID) != job.uid:
                raise PreflightFailed(
                    f"Savepoint {action.name} is there, and is of an older job of this name",
                    data="the upgrade waits, and goes on without a savepoint when its time is up",
                    do="delete that Savepoint",
                ) from error
        self._views.savepoints.take(made)

    async def delete_checkpoint(self, job: Job) -> None:
        """Remove everything below the job's path.

        Raises:
            SluicegateError: it could not be done, or only in part.
        """
        volume = self._volume(job.namespace, job.spec.checkpoint.volume)
        task = Delete(job_address(volume, job.name, job.spec))
        await run(task, await self.environment(job.namespace, volume), _DELETE_S)

    async def environment(self, namespace: str, volume: CheckpointVolumeSpec) -> Mapping[str, str]:
        """Return the variables by which a volume is reached.

        Raises:
            AccessDenied: a Secret of it is not there, or lacks a key.
            ApiError: one could not be read.
        """
        return (await self.access(namespace, volume)).environment

    async def access(self, namespace: str, volume: CheckpointVolumeSpec) -> Access:
        """Return how a volume is reached; raises as `access.read_access`."""
        return await read_access(self._api, namespace, volume)

    def _volume(self, namespace: str, name: str) -> CheckpointVolumeSpec:
        found = self._views.volumes.get((namespace, name))
        if found is None or isinstance(found.spec, SettingsInvalid):
            raise PreflightFailed(
                f"CheckpointVolume {name} is not there, or cannot be read",
                data="nothing was done on it",
                do="create it again: this is tried until it is there",
            )
        return found.spec

    def _savepoint_changed(
        self, key: Key, old: SavepointResource | None, new: SavepointResource | None
    ) -> None:
        for one, gone in ((old, new is None), (new, False)):
            if one is None or isinstance(one.spec, SettingsInvalid):
                continue
            names = self._of_job[key[0], one.spec.job]
            (names.discard if gone else names.add)(key[1])


def named_by(spec: StreamingJobSpec, status: StreamingJobStatus) -> frozenset[str]:
    """Return the Savepoints that a job's next steps may depend on, by name."""
    names = [spec.checkpoint.restore_from, status.restored_from, *status.given_up]
    if status.good is not None:
        names += [status.good.restored_from, *status.good.given_up]
    return frozenset(names) - {""}
