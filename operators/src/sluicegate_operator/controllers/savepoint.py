"""The controller of Savepoints, and the creation of the Savepoint that an upgrade needs."""

from __future__ import annotations

from sluicegate.errors import PreflightFailed
from sluicegate_operator.api import labels
from sluicegate_operator.api.checkpoint_volume import DELETE
from sluicegate_operator.api.codec import render
from sluicegate_operator.api.crds import SAVEPOINT
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.controllers.checkpoints import referenced_savepoints
from sluicegate_operator.controllers.resource import (
    JobResource,
    SavepointResource,
    VolumeResource,
    job_of,
    runnable_spec,
    savepoint_of,
    volume_of,
)
from sluicegate_operator.controllers.storage import StorageController
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.resource import Json, Key, meta_of
from sluicegate_operator.kube.writes import create_or_get, delete_object
from sluicegate_operator.reconcile.actions import CreateSavepoint
from sluicegate_operator.reconcile.observed import Job, Savepoint, SavepointObserved
from sluicegate_operator.reconcile.readiness import needed_savepoints
from sluicegate_operator.reconcile.savepoint.reconciler import SavepointOutcome, reconcile_savepoint


class SavepointController(StorageController):
    """Reconciles Savepoints."""

    KIND = SAVEPOINT
    FINALIZER = labels.SAVEPOINT_FINALIZER

    def _register_listeners(self) -> None:
        super()._register_listeners()
        self.caches.jobs.listeners.append(self._job_changed)
        self.caches.volumes.listeners.append(self._volume_changed)

    async def _decide_accepted(self, resource: SavepointResource, now: float) -> SavepointOutcome:
        savepoint = savepoint_of(resource)
        return reconcile_savepoint(savepoint, self._observe(savepoint), now)

    def _observe(self, savepoint: Savepoint) -> SavepointObserved:
        volumes = self.caches.volumes.by_name(savepoint.namespace).items()
        resources = self.caches.jobs.by_name(savepoint.namespace)
        specs = {name: runnable_spec(one) for name, one in resources.items()}
        jobs = {
            name: job_of(resources[name], spec)
            for name, spec in specs.items()
            if spec is not None and resources[name].status_error is None
        }
        return SavepointObserved(
            job=jobs.get(savepoint.spec.job),
            volumes={name: volume_of(one) for name, one in volumes if one.valid_spec is not None},
            needed_by=tuple(
                name
                for name, resource in resources.items()
                if _needs(resource, specs[name], savepoint)
            ),
            tasks=self.tasks.states(savepoint.uid),
        )

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        """Queue the savepoints of a job that was created or deleted, or whose driver has changed."""
        if old is not None and new is not None and _driver_state(old) == _driver_state(new):
            return
        names = {*self.checkpoints.savepoints_of(key), *_referenced(old), *_referenced(new)}
        for name in names:
            if self.caches.savepoints.get((key[0], name)) is not None:
                self.queue.add((key[0], name))

    def _volume_changed(
        self, key: Key, old: VolumeResource | None, new: VolumeResource | None
    ) -> None:
        if old is not None and new is not None and old.status.phase == new.status.phase:
            return
        for savepoint in self.caches.savepoints.by_name(key[0]).values():
            if not savepoint.status.taken:
                self.queue.add(savepoint.key)


def _driver_state(job: JobResource) -> tuple[object, ...]:
    """Return the state of a job that a savepoint may wait for."""
    status = job.status
    return (
        status.phase,
        status.attempt,
        status.driver.state,
        status.checkpoint.last_epoch is None,
        status.checkpoint.number,
        status.last_stable_spec is None or status.last_stable_spec.checkpoint.last_epoch is None,
        job.meta.deleted,
        job.meta.generation,
    )


def _needs(job: JobResource, spec: StreamingJobSpec | None, savepoint: Savepoint) -> bool:
    """Return whether a job is or may be restored from a Savepoint."""
    if job.meta.deleted:
        return False
    if job.status_error is not None:  # what it was restored from is unknown
        return savepoint.spec.job == job.meta.name
    return spec is not None and savepoint.name in needed_savepoints(spec, job.status)


def _referenced(job: JobResource | None) -> frozenset[str]:
    """Return the names of the Savepoints that a job refers to."""
    spec = None if job is None else runnable_spec(job)
    return frozenset() if job is None or spec is None else referenced_savepoints(spec, job.status)


def upgrade_savepoint(job: Job, action: CreateSavepoint) -> Json:
    """Return the manifest of the Savepoint for an upgrade; its annotations bind it to job and driver."""
    return {
        **SAVEPOINT.resource.type_meta,
        "metadata": {
            "namespace": job.namespace,
            "name": action.name,
            "labels": {labels.JOB: job.name},
            "finalizers": [labels.SAVEPOINT_FINALIZER],
            "annotations": {labels.ATTEMPT: str(action.attempt), labels.JOB_UID: job.uid},
        },
        "spec": render(SavepointSpec(job=job.name, stop=True, reclaim_policy=DELETE)),
    }


async def delete_upgrade_savepoint(api: Api, job: Job, found: SavepointResource) -> None:
    """Delete a Savepoint, if an upgrade of this job created it.

    Raises:
        ApiError: the request was refused or not answered.
    """
    if found.meta.annotation(labels.JOB_UID) == job.uid:
        kind, meta = SAVEPOINT.resource, found.meta
        await delete_object(api, kind, meta.namespace, meta.name, meta.uid)


async def create_upgrade_savepoint(api: Api, job: Job, action: CreateSavepoint) -> Json:
    """Create the Savepoint for an upgrade and return it; an existing one of this job is left alone.

    Raises:
        PreflightFailed: a Savepoint of that name belongs to an older job of the same name.
        ApiError: the request was refused or not answered.
    """
    found = await create_or_get(api, SAVEPOINT.resource, upgrade_savepoint(job, action))
    if meta_of(found, labels.PREFIX).annotation(labels.JOB_UID) != job.uid:
        raise PreflightFailed(
            f"Savepoint {action.name} already exists and belongs to an older job of this name",
            data="the upgrade waits, and continues without a savepoint after its timeout",
            do="delete that Savepoint",
        )
    return found
