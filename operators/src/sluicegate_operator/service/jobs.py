"""StreamingJobs: looked at when something about them changes, and at the time they asked for.

Each look (`controller`) is one pass of `reconcile`. Not here: any decision. Called by `service.operator`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.cluster.objects import SeenPod, job_of
from sluicegate_operator.cluster.performing import Pods
from sluicegate_operator.reconcile import actions as do
from sluicegate_operator.reconcile.job import Outcome, reconcile, refused
from sluicegate_operator.reconcile.observed import Job, Node
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.job import CheckpointSettings, StreamingJobSpec
from sluicegate_operator.resources.kinds import STREAMING_JOB
from sluicegate_operator.service.controller import Controller
from sluicegate_operator.service.observing import Observer
from sluicegate_operator.service.places import named_by
from sluicegate_operator.service.views import (
    JobResource,
    SavepointResource,
    View,
    VolumeResource,
)

_STAND_IN = StreamingJobSpec(image="", main_module="", checkpoint=CheckpointSettings(volume=""))
"""For a deleted job whose spec cannot be read: its drivers are stopped, and no driver is made of it."""


@dataclass
class JobController(Controller[JobResource, Outcome]):
    """Looks at StreamingJobs."""

    observer: Observer = field(init=False)
    _deleting: dict[Key, asyncio.Task[None]] = field(default_factory=dict)

    KIND = STREAMING_JOB
    FINALIZER = marks.JOB_FINALIZER
    WORKERS = 16
    SOONEST_S = 0.01

    @property
    def _view(self) -> View[JobResource]:
        return self.views.jobs

    def _listen(self) -> None:
        at = self.places
        self.observer = Observer(self.api, self.views, at.readiness, at.usable, at.taken)
        self.pods = Pods(self.api, self.views.pods.get, self.views.pods.take)
        self.views.jobs.listeners.append(self._job_changed)
        self.views.pods.listeners.append(self._pod_changed)
        self.views.nodes.listeners.append(self._node_changed)
        self.views.volumes.listeners.append(self._volume_changed)
        self.views.savepoints.listeners.append(self._savepoint_changed)

    async def _decide(self, found: JobResource, now: float) -> Outcome:
        if isinstance(found.spec, SettingsInvalid) and not found.meta.deleted:
            return refused(found.status, found.meta.generation, found.spec, now)
        job, unreadable = _job(found), ""
        if isinstance(found.spec, SettingsInvalid):
            unreadable = str(found.spec)
        elif not job.deleted:
            refusal = self.places.refuses(job)
            if refusal is not None:
                return refused(found.status, found.meta.generation, refusal, now)
        try:
            return reconcile(job, await self.observer.observe(job, now, unreadable), now)
        except SettingsInvalid as error:
            return refused(found.status, found.meta.generation, error, now)

    def _forget(self, key: Key) -> None:
        self.observer.forget(key)

    def _written(self, found: JobResource, outcome: Outcome) -> None:
        self.metrics.job_changed(found, outcome.status, outcome.failures)

    async def _perform(self, found: JobResource, action: do.Action) -> None:
        key, namespace, job = found.key, found.meta.namespace, _job(found)
        match action:
            case do.AddFinalizer():
                await self._hold(key, holds=True)
            case do.RemoveFinalizer():
                await self._hold(key, holds=False)
            case do.CreateDriver():
                await self.pods.create(self.places.driver(job, action))
                self.metrics.driver_created()
            case do.StopDriver():
                await self.pods.stop(namespace, action.name, action.uid, action.grace_s)
            case do.ReleasePod():
                await self.pods.release(namespace, action.name, action.uid)
            case do.DropPod():
                await self.pods.drop(namespace, action.name, action.uid)
            case do.TakeSavepoint():
                await self.places.take_savepoint(job, action)
            case do.DeleteCheckpoint():
                self._delete_checkpoint(key, job)

    def _delete_checkpoint(self, key: Key, job: Job) -> None:
        """Begin to remove a checkpoint, which may take long; the job is looked at when it is gone."""
        if key in self._deleting:
            return

        async def remove() -> None:
            try:
                await self.places.delete_checkpoint(job)
                self.observer.emptied(key, job.uid)
            except Exception as error:  # noqa: BLE001 - it is reported, and tried again
                await self._report(key, do.Report("DeleteFailed", str(error), warning=True))
                self.queue.add_after(key, 30.0)
            else:
                self.queue.add(key)
            finally:
                del self._deleting[key]

        self._deleting[key] = asyncio.create_task(remove())

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        self.metrics.job_seen(key, new)
        if old is None or new is None or old.meta.version != new.meta.version:
            self.queue.add(key)

    def _pod_changed(self, _key: Key, old: SeenPod | None, new: SeenPod | None) -> None:
        seen = new or old
        if seen is not None and seen.job[1]:
            self.queue.add(seen.job)

    def _volume_changed(
        self, key: Key, old: VolumeResource | None, new: VolumeResource | None
    ) -> None:
        """Look at the jobs of a volume that has become ready, or is not any more."""
        if old is not None and new is not None and _state_of(old) == _state_of(new):
            return
        for job, found in self.views.jobs.items():
            if job[0] != key[0] or isinstance(found.spec, SettingsInvalid):
                continue
            if found.spec.checkpoint.volume == key[1]:
                self.queue.add(job)

    def _savepoint_changed(
        self, key: Key, old: SavepointResource | None, new: SavepointResource | None
    ) -> None:
        """Look at the job of a savepoint, and at those that begin with it."""
        if old is not None and new is not None and old.status.phase == new.status.phase:
            return
        for job, found in self.views.jobs.items():
            if job[0] != key[0] or isinstance(found.spec, SettingsInvalid):
                continue
            if key[1] in named_by(found.spec, found.status) | {*self.places.savepoints_of(job)}:
                self.queue.add(job)

    def _node_changed(self, key: Key, _old: Node | None, _new: Node | None) -> None:
        for job in self.observer.jobs_on(key[1]):
            self.queue.add(job)


def _job(found: JobResource) -> Job:
    """Return a job as `reconcile` takes it; one that cannot be read has a stand-in for its spec."""
    unreadable = isinstance(found.spec, SettingsInvalid)
    return job_of(found, _STAND_IN if unreadable else found.spec)  # type: ignore[arg-type]


def _state_of(volume: VolumeResource) -> tuple[object, ...]:
    """Return what lets a driver start, or not."""
    return volume.status.phase, volume.status.checked_access, volume.meta.deleted, volume.spec
