"""The controller of StreamingJobs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from sluicegate.errors import SettingsInvalid, SluicegateError
from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.api.locations import checkpoint_address, console_page, job_address
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.controllers.base import Controller
from sluicegate_operator.controllers.checkpoint_deletions import CheckpointDeletions
from sluicegate_operator.controllers.checkpoints import referenced_savepoints
from sluicegate_operator.controllers.credentials import read_access
from sluicegate_operator.controllers.decode import DriverPod
from sluicegate_operator.controllers.driver_checks import DriverChecks
from sluicegate_operator.controllers.fleet_upgrades import (
    FleetUpgrades,
    priority_of_change,
    priority_of_step,
)
from sluicegate_operator.controllers.observer import Observer
from sluicegate_operator.controllers.refusal import NAME_TAKEN, refusal_of
from sluicegate_operator.controllers.resource import (
    JobResource,
    SavepointResource,
    VolumeResource,
    job_of,
    runnable_spec,
)
from sluicegate_operator.controllers.savepoint import (
    create_upgrade_savepoint,
    delete_upgrade_savepoint,
)
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.events import MAX_LENGTH
from sluicegate_operator.kube.resource import NETWORK_POLICIES, PODS, Json, Key
from sluicegate_operator.kube.work_queue import Priority
from sluicegate_operator.kube.writes import (
    create_or_get,
    create_unless_exists,
    delete_object,
    delete_version,
    patch_object,
    remove_finalizer,
)
from sluicegate_operator.pods.driver import driver_pod, validate
from sluicegate_operator.pods.network import network_policy
from sluicegate_operator.reconcile import actions as do
from sluicegate_operator.reconcile.context import reject_spec
from sluicegate_operator.reconcile.observed import Job, Node, Observed, Refusal
from sluicegate_operator.reconcile.schedule import validate_schedule
from sluicegate_operator.reconcile.storage_tasks import Delete
from sluicegate_operator.reconcile.streaming_job.acceptance import accepted_spec
from sluicegate_operator.reconcile.streaming_job.reconciler import JobOutcome, reconcile_job
from sluicegate_operator.storage_tasks.runner import run

_PLACEHOLDER = StreamingJobSpec(image="", main_module="", checkpoint=CheckpointSettings(volume=""))
"""Spec of a deleted job that has no valid one, not even an accepted one: its drivers are stopped, and none
is started with it."""

_DELETE_TIMEOUT_S = 3600.0

_ACCOUNT_RETRY_S = 30.0
"""How often an account that is not marked for drivers is read again: accounts are not watched."""


@dataclass
class JobController(Controller[JobResource]):
    """Reconciles StreamingJobs. Warnings link to the console at `console_url`, unless it is empty."""

    console_url: str = ""
    observer: Observer = field(init=False)
    upgrades: FleetUpgrades = field(init=False)
    deletions: CheckpointDeletions = field(init=False)
    checks: DriverChecks = field(init=False)

    KIND = STREAMING_JOB
    FINALIZER = labels.JOB_FINALIZER
    WORKERS = 16
    MIN_REQUEUE_S = 0.01

    def _register_listeners(self) -> None:
        self.observer = Observer(self.api, self.caches, self.checkpoints)
        self.upgrades = FleetUpgrades(
            self.limits.upgrades, partial(self.queue.add, priority=Priority.LOW)
        )
        self.deletions = CheckpointDeletions(
            self._delete_checkpoint,
            self.observer.checkpoint_deleted,
            self._emit_event,
            self.queue,
            self.slots,
        )
        self.checks = DriverChecks(self.api, self.caches, self.limits.account)
        self.caches.jobs.listeners.append(self._job_changed)
        self.caches.jobs.listeners.append(self.upgrades.job_changed)
        self.caches.pods.listeners.append(self._pod_changed)
        self.caches.nodes.listeners.append(self._node_changed)
        self.caches.volumes.listeners.append(self._volume_changed)
        self.caches.savepoints.listeners.append(self._savepoint_changed)

    def enqueue_all(self) -> None:
        """Queue every job, and the former jobs of all pods."""
        super().enqueue_all()
        for key in self.caches.pods:
            pod = self.caches.pods.get(key)
            if pod is not None and pod.job[1]:
                self.queue.add(pod.job, Priority.BULK)

    def cancel_tasks(self) -> None:
        """Cancel all deletions of checkpoints."""
        self.deletions.cancel()

    async def close(self) -> None:
        """Cancel all deletions of checkpoints, and wait until their processes are dead."""
        await self.deletions.close()

    async def reconcile(self, key: Key) -> None:
        """Reconcile one job, after its name's pods of earlier jobs were released."""
        if self.is_leader() and not self.caches.incomplete(key[0]):
            await self._release_orphans(key)
        try:
            await super().reconcile(key)
        finally:
            self.upgrades.release_reservation(key)

    async def _release_orphans(self, key: Key) -> None:
        """Remove our finalizer from ending pods whose job is gone, for example deleted by force.

        The cache of jobs may be older than that of pods, so this reads the job from the API server.
        """
        resource = self._cache.get(key)
        owner = "" if resource is None else resource.meta.uid
        orphans = self.observer.held_orphans(key, owner)
        if not orphans:
            return
        try:
            path = self.KIND.resource.path(*key)
            owner = (await self.api.request("GET", path))["metadata"]["uid"]
        except ApiError as error:
            if not error.missing:
                raise
            owner = ""
        for orphan in orphans:
            if orphan.owner != owner:
                self._check_leader()
                await self._release_pod(key[0], orphan.pod.name, orphan.pod.uid)

    async def _emit_event(self, key: Key, event: do.EmitEvent) -> None:
        page = self._page_of(key) if event.warning else ""
        if page:
            link = f"; console: {page}"
            # what is too long is cut off at the end, and the link must be whole
            message = event.message[: MAX_LENGTH - len(link)] + link
            event = dataclasses.replace(event, message=message)
        await super()._emit_event(key, event)

    def _page_of(self, key: Key) -> str:
        """Return the console's page about a job, empty without a console or before the first driver."""
        resource = self._cache.get(key)
        if not self.console_url or resource is None or resource.status_error is not None:
            return ""
        spec, status = runnable_spec(resource), resource.status
        volume = spec and self.caches.volumes.get((key[0], spec.checkpoint.volume))
        if not spec or not volume or not volume.valid_spec or not status.attempt:
            return ""
        at = checkpoint_address(volume.valid_spec, key[1], spec, status.checkpoint.number)
        return console_page(self.console_url, at)

    async def _decide(self, resource: JobResource, now: float) -> JobOutcome:
        job, error = _job(resource), _spec_error(resource)
        accepted = _accepted(resource, error)
        if not job.deleted:
            refused = self.limits.check_namespace(job.namespace)
            refused = refused or (error if accepted is None else None)
            if refused is not None:
                return reject_spec(resource.status, job.generation, refused, now)
        if accepted is not None:
            job = dataclasses.replace(job, spec=accepted)
        observed = await self.observer.observe(job, now)
        if error is not None:
            observed = dataclasses.replace(
                observed, spec_error=str(error), spec_missing=accepted is None
            )
        # nothing is awaited from here until the slot is reserved: 16 workers share the slots
        queued = self.upgrades.wait_reason((job.namespace, job.name), now)
        outcome = reconcile_job(job, dataclasses.replace(observed, upgrade_queued=queued), now)
        if resource.status.upgrade is None and outcome.status.upgrade is not None:
            self.upgrades.reserve((job.namespace, job.name))
        return await self._checked(job, observed, outcome, now)

    async def _checked(
        self, job: Job, observed: Observed, outcome: JobOutcome, now: float
    ) -> JobOutcome:
        """Return an outcome without the drivers that are refused."""
        for action in outcome.actions:
            if not isinstance(action, do.CreateDriver):
                continue
            error = await self.checks.problem(job, action.spec)
            if error is not None and action.standby:
                return self._without_standby(job, outcome, action, error)
            retry_at = now + _ACCOUNT_RETRY_S
            if error is not None and job.deleted:  # the conditions say how it goes without a driver
                observed = dataclasses.replace(observed, spec_error=str(error), spec_missing=True)
                return dataclasses.replace(reconcile_job(job, observed, now), requeue_at=retry_at)
            if error is not None:  # nothing of the outcome is kept: no attempt was begun
                return reject_spec(job.status, job.generation, error, now, retry_at)
        return outcome

    def _without_standby(
        self, job: Job, outcome: JobOutcome, standby: do.CreateDriver, why: SettingsInvalid
    ) -> JobOutcome:
        """Return an outcome without a standby, which is refused like a pod: its driver is supervised on."""
        self._refuse(job, Refusal(standby.attempt, standby.request, "SpecRefused", str(why)))
        kept = (action for action in outcome.actions if action is not standby)
        return dataclasses.replace(outcome, actions=tuple(kept))

    def _forget(self, key: Key) -> None:
        self.observer.forget(key)
        self.deletions.cancel_of(key)

    def _status_written(self, resource: JobResource, outcome: JobOutcome) -> None:
        self.metrics.job_changed(resource, outcome.status, outcome.failures)

    async def _perform(self, resource: JobResource, action: do.JobAction) -> None:
        key, namespace, job = resource.key, resource.meta.namespace, _job(resource)
        match action:
            case do.CreateDriver():
                await self._create_driver(job, action)
            case do.PromoteStandby() | do.StopDriver() | do.RemovePodFinalizer() | do.DeletePod():
                await self._change_pod(namespace, action)
            case do.CreateSavepoint():
                created = await create_upgrade_savepoint(self.api, job, action)
                self.caches.savepoints.put(created)
            case do.DeleteSavepoint():
                found = self.caches.savepoints.get((namespace, action.name))
                if found is not None:
                    await delete_upgrade_savepoint(self.api, job, found)
            case do.DeleteCheckpoint():
                self.deletions.start(key, job)
            case do.DeleteJob():
                await self._delete_expired(resource)

    async def _change_pod(self, namespace: str, action: do.PodAction) -> None:
        """Change or delete a pod that still has the action's UID."""
        pod = (namespace, action.name, action.uid)
        match action:
            case do.PromoteStandby():
                await self._promote(*pod)
            case do.StopDriver():
                await delete_object(self.api, PODS, *pod, action.grace_s)
            case do.RemovePodFinalizer():
                await self._release_pod(*pod)
            case do.DeletePod():
                await delete_object(self.api, PODS, *pod)
                await self._release_pod(*pod)

    async def _delete_expired(self, resource: JobResource) -> None:
        """Delete a job that has expired; one that was edited since it was read is reconciled first."""
        if await delete_version(self.api, self.KIND.resource, resource.meta):
            ttl_s = _job(resource).spec.ttl_seconds_after_finished
            message = f"deleted: it ended ttlSecondsAfterFinished ({ttl_s}) ago"
            await self._emit_event(resource.key, do.EmitEvent("Expired", message))

    async def _create_driver(self, job: Job, action: do.CreateDriver) -> None:
        """Create a driver's pod; if that is refused, the next reconciliation observes why.

        Raises:
            ApiError: the API server did not answer, or is overloaded; the queue retries the job.
        """
        key = (job.namespace, job.name)
        try:
            location = self.checkpoints.location(job, action)
            await self.deletions.end_of_another(key, job.uid)
            await self._create_pod(job, driver_pod(job, action, location))
        except (ApiError, SluicegateError) as error:
            refusal = refusal_of(error, action.attempt, action.request)
            if refusal is None:
                raise
            self._refuse(job, refusal)
        else:
            self.metrics.driver_created()

    def _refuse(self, job: Job, refusal: Refusal) -> None:
        """Remember why a pod is not created; the next reconciliation observes it."""
        key = (job.namespace, job.name)
        self.observer.pod_refused(key, job.uid, refusal)
        self.queue.add(key)

    async def _create_pod(self, job: Job, pod: Json) -> None:
        """Create a driver's pod, after its NetworkPolicy; existing ones of the same job are left alone.

        Raises:
            ApiError: the request was refused, or a pod of that name belongs to another job.
        """
        if self.limits.job_network_policies:
            await create_unless_exists(self.api, NETWORK_POLICIES, network_policy(job))
        created = await create_or_get(self.api, PODS, pod)
        meta, owners = created["metadata"], created["metadata"].get("ownerReferences") or []
        if not any(one["uid"] == job.uid for one in owners):
            name = f"{meta['namespace']}/{meta['name']}"
            message = f"pod {name} already exists and belongs to another job; delete it"
            raise ApiError(HTTPStatus.CONFLICT, NAME_TAKEN, message)
        self.caches.pods.put(created)

    async def _promote(self, namespace: str, name: str, uid: str) -> None:
        """Promote a standby, whose driver watches its pod; a pod that is gone is observed later."""
        change: Json = {
            "labels": {labels.STANDBY: None},
            "annotations": {labels.PROMOTED: "true"},
        }
        promoted = await patch_object(self.api, PODS, namespace, name, uid, change)
        if promoted is not None:
            self.caches.pods.put(promoted)
            self.metrics.standby_promoted()

    async def _release_pod(self, namespace: str, name: str, uid: str) -> None:
        """Remove our finalizer from a pod."""
        cached = self.caches.pods.get((namespace, name))
        if cached is None or cached.pod.uid != uid or not cached.pod.has_finalizer:
            return
        after = await remove_finalizer(
            self.api, PODS, namespace, name, cached.finalizers, labels.DRIVER_FINALIZER
        )
        if after is not None:
            self.caches.pods.put(after)

    async def _delete_checkpoint(self, job: Job) -> None:
        """Delete everything below the job's path.

        Raises:
            SluicegateError: it failed, possibly after a part was deleted.
        """
        problem = self.checks.path_problem(job)
        if problem is not None:
            raise problem
        volume = self.checkpoints.volume(job.namespace, job.spec.checkpoint.volume)
        access = await read_access(self.api, job.namespace, volume, self.limits)
        task = Delete(
            job_address(volume, job.name, job.spec),
            (STREAMING_JOB.name, job.namespace, job.name, job.uid),
        )
        await run(task, access.environment, _DELETE_TIMEOUT_S)

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        self.metrics.job_observed(key, new)
        if old is None or new is None:
            self.queue.add(key)
        elif old.meta.version != new.meta.version:
            self.queue.add(key, priority_of_change(old, new))

    def _pod_changed(self, _key: Key, old: DriverPod | None, new: DriverPod | None) -> None:
        pod = new or old
        if pod is not None and pod.job[1]:
            self.queue.add(pod.job, priority_of_step(self.caches.jobs.get(pod.job)))

    def _volume_changed(
        self, key: Key, old: VolumeResource | None, new: VolumeResource | None
    ) -> None:
        """Queue the jobs on a volume whose readiness may have changed."""
        if old is not None and new is not None and _readiness_inputs(old) == _readiness_inputs(new):
            return
        for job in self.caches.jobs.by_name(key[0]).values():
            spec = runnable_spec(job)
            if spec is not None and spec.checkpoint.volume == key[1]:
                self.queue.add(job.key)

    def _savepoint_changed(
        self, key: Key, old: SavepointResource | None, new: SavepointResource | None
    ) -> None:
        """Queue the job of a savepoint, and the jobs that start from it."""
        if old is not None and new is not None and _progress(old) == _progress(new):
            return
        for job in self.caches.jobs.by_name(key[0]).values():
            spec, own = runnable_spec(job), self.checkpoints.savepoints_of(job.key)
            if spec is not None and key[1] in referenced_savepoints(spec, job.status) | {*own}:
                self.queue.add(job.key)

    def _node_changed(self, key: Key, _old: Node | None, _new: Node | None) -> None:
        for job_key in self.observer.jobs_on(key[1]):
            self.queue.add(job_key)


def _job(resource: JobResource) -> Job:
    """Return a job for `reconcile_job`, with the placeholder if there is no spec that it could run."""
    return job_of(resource, runnable_spec(resource) or _PLACEHOLDER)


def _spec_error(resource: JobResource) -> SettingsInvalid | None:
    """Return why a job's own spec cannot be run, or None."""
    spec = resource.spec
    if isinstance(spec, SettingsInvalid):
        return spec
    return validate(resource.meta.name, spec) or validate_schedule(spec.schedule)


def _accepted(resource: JobResource, error: SettingsInvalid | None) -> StreamingJobSpec | None:
    """Return the spec to run: the job's own or, if it has an error, the accepted one; None without any."""
    spec = resource.spec
    if isinstance(spec, SettingsInvalid):
        return runnable_spec(resource)
    if error is None:
        return spec
    accepted = accepted_spec(resource.status)
    return accepted and dataclasses.replace(accepted, suspend=spec.suspend)


def _progress(savepoint: SavepointResource) -> tuple[object, ...]:
    return savepoint.status.phase, savepoint.status.start_time, savepoint.meta.deleted


def _readiness_inputs(volume: VolumeResource) -> tuple[object, ...]:
    return volume.status.phase, volume.status.checked_access, volume.meta.deleted, volume.spec
