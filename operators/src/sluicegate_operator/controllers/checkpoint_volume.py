"""The controller of CheckpointVolumes."""

from __future__ import annotations

from collections.abc import Mapping

from sluicegate.errors import AccessDenied, SettingsInvalid
from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.controllers.caches import (
    Cache,
    JobResource,
    SavepointResource,
    VolumeResource,
)
from sluicegate_operator.controllers.credentials import read_access
from sluicegate_operator.controllers.storage import StorageController
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.reconcile import readiness
from sluicegate_operator.reconcile.checkpoint_volume import VolumeOutcome, reconcile_volume
from sluicegate_operator.reconcile.observed import Volume, VolumeObserved


class VolumeController(StorageController):
    """Reconciles CheckpointVolumes."""

    KIND = CHECKPOINT_VOLUME
    FINALIZER = labels.VOLUME_FINALIZER

    @property
    def _cache(self) -> Cache[VolumeResource]:
        return self.caches.volumes

    def _register_listeners(self) -> None:
        super()._register_listeners()
        self.caches.jobs.listeners.append(self._job_changed)

    async def _decide_accepted(self, resource: VolumeResource, now: float) -> VolumeOutcome:
        assert not isinstance(resource.spec, SettingsInvalid)
        meta = resource.meta
        volume = Volume(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            spec=resource.spec,
            status=resource.status,
            deleted_at=meta.deleted_at,
            has_finalizer=self.FINALIZER in meta.finalizers,
        )
        return reconcile_volume(volume, await self._observe(resource), now)

    async def _observe(self, resource: VolumeResource) -> VolumeObserved:
        assert not isinstance(resource.spec, SettingsInvalid)
        namespace, name = resource.key
        as_of = await self._refresh_users(namespace) if resource.meta.deleted else 0.0
        version, problem = "", ""
        try:
            version = (await read_access(self.api, namespace, resource.spec)).versions
        except AccessDenied as error:
            problem = error.what
        # a job with an invalid spec may use any volume, so it keeps a deleted one
        jobs = {
            key[1]: job
            for key, job in self.caches.jobs.items()
            if key[0] == namespace
            and (
                _volume_of(job) == name
                or (resource.meta.deleted and isinstance(job.spec, SettingsInvalid))
            )
        }
        savepoints = [s for key, s in self.caches.savepoints.items() if key[0] == namespace]
        stored_here = [
            one
            for one in savepoints
            if not isinstance(one.spec, SettingsInvalid)
            and name in _volumes_of(one, one.spec, jobs)
        ]
        return VolumeObserved(
            as_of=as_of,
            secret_version=version,
            secret_problem=problem,
            jobs=tuple(sorted(jobs)),
            savepoints=tuple(sorted(one.meta.name for one in stored_here)),
            referenced_savepoints=tuple(
                address
                for one in savepoints
                for address in readiness.referenced_savepoints(one.status)
            ),
            folders_in_progress=tuple(
                folder for one in savepoints for folder in readiness.folders_in_progress(one.status)
            ),
            tasks=self.tasks.states(resource.meta.uid),
        )

    async def _refresh_users(self, namespace: str) -> float:
        """List jobs and savepoints again, so that no user of a deleted volume is missed."""
        caches = self.caches
        return min(
            await caches.jobs.refresh(namespace, "", lambda key, _: key[0] == namespace),
            await caches.savepoints.refresh(namespace, "", lambda key, _: key[0] == namespace),
        )

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        """Queue the volume of a job that was created or has disappeared."""
        if (old is None) == (new is None):
            return
        name = _volume_of(new or old)
        if name:
            self.queue.add((key[0], name))


def _volume_of(job: JobResource | None) -> str:
    if job is None or isinstance(job.spec, SettingsInvalid):
        return ""
    return job.spec.checkpoint.volume


def _volumes_of(
    savepoint: SavepointResource, spec: SavepointSpec, jobs: Mapping[str, JobResource]
) -> set[str]:
    """Return the volumes of a Savepoint: the one it was stored on, and the one for its next savepoint."""
    job = jobs.get(spec.job)
    return {savepoint.status.volume, spec.volume or _volume_of(job)} - {""}
