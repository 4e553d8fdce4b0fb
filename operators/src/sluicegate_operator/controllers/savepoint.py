"""The controller of Savepoints, and the creation of the Savepoint that an upgrade needs."""

from __future__ import annotations

from sluicegate.errors import PreflightFailed, SettingsInvalid
from sluicegate_operator.api import labels
from sluicegate_operator.api.codec import render
from sluicegate_operator.api.crds import SAVEPOINT
from sluicegate_operator.api.fields import GROUP, VERSION
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.controllers.caches import (
    Cache,
    JobResource,
    SavepointResource,
    VolumeResource,
)
from sluicegate_operator.controllers.storage import StorageController
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import Json, Key, meta_of
from sluicegate_operator.reconcile import readiness
from sluicegate_operator.reconcile.actions import CreateSavepoint
from sluicegate_operator.reconcile.observed import (
    Job,
    JobView,
    Savepoint,
    SavepointObserved,
    VolumeView,
)
from sluicegate_operator.reconcile.savepoint.reconciler import (
    SavepointOutcome,
    reconcile_savepoint,
)


class SavepointController(StorageController):
    """Reconciles Savepoints."""

    KIND = SAVEPOINT
    FINALIZER = labels.SAVEPOINT_FINALIZER

    @property
    def _cache(self) -> Cache[SavepointResource]:
        return self.caches.savepoints

    def _register_listeners(self) -> None:
        super()._register_listeners()
        self.caches.jobs.listeners.append(self._job_changed)
        self.caches.volumes.listeners.append(self._volume_changed)

    async def _decide_accepted(self, resource: SavepointResource, now: float) -> SavepointOutcome:
        assert not isinstance(resource.spec, SettingsInvalid)
        meta = resource.meta
        attempt = meta.annotation(labels.ATTEMPT)
        savepoint = Savepoint(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created_at=meta.created_at,
            spec=resource.spec,
            status=resource.status,
            deleted=meta.deleted,
            has_finalizer=self.FINALIZER in meta.finalizers,
            attempt=int(attempt) if attempt.isdigit() else None,
            job_uid=meta.annotation(labels.JOB_UID),
            force=meta.annotation(labels.FORCE_DISPOSE) == "true",
        )
        return reconcile_savepoint(savepoint, self._observe(resource, resource.spec), now)

    def _observe(self, resource: SavepointResource, spec: SavepointSpec) -> SavepointObserved:
        namespace, name = resource.key
        job = self.caches.jobs.get((namespace, spec.job))
        view = None
        if job is not None and not isinstance(job.spec, SettingsInvalid):
            view = JobView(job.meta.name, job.meta.uid, job.spec, job.status, job.meta.deleted)
        needed_by = [
            key[1]
            for key, other in self.caches.jobs.items()
            if key[0] == namespace
            and not isinstance(other.spec, SettingsInvalid)
            and other.spec.checkpoint.restore_from == name
            and other.status.checkpoint.last_epoch is None
        ]
        volumes = {}
        for key, volume in self.caches.volumes.items():
            if key[0] == namespace and not isinstance(volume.spec, SettingsInvalid):
                ready, message = readiness.readiness(volume.spec, volume.status)
                volumes[key[1]] = VolumeView(key[1], volume.spec, ready, message)
        return SavepointObserved(
            job=view,
            volumes=volumes,
            needed_by=tuple(needed_by),
            tasks=self.tasks.states(resource.meta.uid),
        )

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        """Queue the savepoints of a job that was created or deleted, or whose driver has changed."""
        if old is not None and new is not None and _driver_state(old) == _driver_state(new):
            return
        for name in self.checkpoints.savepoints_of(key):
            self.queue.add((key[0], name))

    def _volume_changed(
        self, key: Key, old: VolumeResource | None, new: VolumeResource | None
    ) -> None:
        if old is not None and new is not None and old.status.phase == new.status.phase:
            return
        for savepoint_key, savepoint in self.caches.savepoints.items():
            if savepoint_key[0] == key[0] and not savepoint.status.taken:
                self.queue.add(savepoint_key)


def _driver_state(job: JobResource) -> tuple[object, ...]:
    """Return the state of a job that a savepoint may wait for."""
    status = job.status
    return (
        status.phase,
        status.attempt,
        status.driver.state,
        status.checkpoint.last_epoch is None,
        job.meta.deleted,
        job.meta.generation,
    )


def upgrade_savepoint(job: Job, action: CreateSavepoint) -> Json:
    """Return the manifest of the Savepoint for an upgrade; its annotations bind it to job and driver."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Savepoint",
        "metadata": {
            "namespace": job.namespace,
            "name": action.name,
            "labels": {labels.JOB: job.name},
            "annotations": {labels.ATTEMPT: str(action.attempt), labels.JOB_UID: job.uid},
        },
        "spec": render(SavepointSpec(job=job.name, stop=True)),
    }


async def create_upgrade_savepoint(api: Api, job: Job, action: CreateSavepoint) -> Json:
    """Create the Savepoint for an upgrade and return it; an existing one of this job is left alone.

    Raises:
        PreflightFailed: a Savepoint of that name belongs to an older job of the same name.
        ApiError: the request was refused or not answered.
    """
    body = upgrade_savepoint(job, action)
    try:
        return await api.request("POST", SAVEPOINT.resource.path(job.namespace), body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        path = SAVEPOINT.resource.path(job.namespace, action.name)
        existing = await api.request("GET", path)
        if meta_of(existing, labels.PREFIX).annotation(labels.JOB_UID) != job.uid:
            raise PreflightFailed(
                f"Savepoint {action.name} already exists and belongs to an older job of this name",
                data="the upgrade waits, and continues without a savepoint after its timeout",
                do="delete that Savepoint",
            ) from error
        return existing
