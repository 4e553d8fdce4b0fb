"""StreamingJobs: looked at when something about them changes, and at the time they asked for.

Each look is one pass of `reconcile`; its status is written first, under the version that was read,
and nothing is done when that is refused. Not here: any decision. Called by `service.operator`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.cluster.client import Api
from sluicegate_operator.cluster.events import Recorder
from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.cluster.objects import JOB_FINALIZER, SeenPod, job_of
from sluicegate_operator.cluster.performing import Pods
from sluicegate_operator.cluster.writing import write_finalizers, write_status
from sluicegate_operator.reconcile import actions as do
from sluicegate_operator.reconcile.job import Outcome, reconcile, refused
from sluicegate_operator.reconcile.observed import Job, Node
from sluicegate_operator.resources.kinds import STREAMING_JOB
from sluicegate_operator.service.metrics import Metrics
from sluicegate_operator.service.observing import Observer
from sluicegate_operator.service.places import Places, named_by
from sluicegate_operator.service.views import (
    JobResource,
    SavepointResource,
    Views,
    VolumeResource,
)
from sluicegate_operator.service.workqueue import WorkQueue

log = logging.getLogger(__name__)

_AGAIN_S = 600.0
"""A job is looked at this often also when nothing happens."""


class NotLeading(Exception):
    """Another operator acts now."""

    expected = True


@dataclass
class JobController:
    """Looks at StreamingJobs.

    Args:
        api: the API server.
        views: what is kept in view.
        leads: whether we may act now.
        recorder: writes events.
        places: where checkpoints are, and what has to be done there.
        metrics: what is counted.
        clock: seconds since 1970.
    """

    api: Api
    views: Views
    leads: Callable[[], bool]
    recorder: Recorder
    places: Places
    metrics: Metrics
    clock: Callable[[], float] = time.time
    queue: WorkQueue[Key] = field(init=False)
    observer: Observer = field(init=False)
    _deleting: dict[Key, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Listen to everything that a job depends on."""
        self.queue = WorkQueue("StreamingJob", self.work)
        self.observer = Observer(self.api, self.views, self.places.readiness, self.places.taken)
        self.pods = Pods(self.api, self.views.pods.get, self.views.pods.take)
        self.views.jobs.listeners.append(self._job_changed)
        self.views.pods.listeners.append(self._pod_changed)
        self.views.nodes.listeners.append(self._node_changed)
        self.views.volumes.listeners.append(self._volume_changed)
        self.views.savepoints.listeners.append(self._savepoint_changed)

    def look_at_all(self) -> None:
        """Look at every job: we have begun to lead."""
        for key in self.views.jobs:
            self.queue.add(key)

    async def work(self, key: Key) -> None:
        """Look at one job.

        Raises:
            ApiError: something was refused, or not answered; the job is looked at again.
        """
        if not self.leads():
            return
        found = self.views.jobs.get(key)
        if found is None:
            self.queue.forget(key)
            self.observer.forget(key)
            return
        began = time.monotonic()
        outcome, job = await self._decide(found)
        if outcome.status != found.status:
            self._check_leading()
            self.views.jobs.take(
                await write_status(
                    self.api, STREAMING_JOB.name, STREAMING_JOB.plural, found.meta, outcome.status
                )
            )
            self.metrics.job_changed(found, outcome.status)
        for action in outcome.actions:
            self._check_leading()
            if job is not None:
                await self._perform(key, job, action)
        self.metrics.reconciled("StreamingJob", time.monotonic() - began)
        wake = self.clock() + _AGAIN_S if outcome.wake_at is None else outcome.wake_at
        self.queue.add_after(key, min(_AGAIN_S, max(0.01, wake - self.clock())))

    async def _decide(self, found: JobResource) -> tuple[Outcome, Job | None]:
        now = self.clock()
        if isinstance(found.spec, SettingsInvalid):
            return refused(found.status, found.meta.generation, found.spec, now), None
        job = job_of(found, found.spec)
        refusal = self.places.refuses(job)
        if refusal is not None and not job.deleted:
            return refused(found.status, found.meta.generation, refusal, now), None
        try:
            return reconcile(job, await self.observer.observe(job, now), now), job
        except SettingsInvalid as error:
            return refused(found.status, found.meta.generation, error, now), None

    def _check_leading(self) -> None:
        if not self.leads():
            raise NotLeading

    async def _perform(self, key: Key, job: Job, action: do.Action) -> None:
        """Do one thing."""
        namespace = key[0]
        match action:
            case do.AddFinalizer():
                await self._hold(key, add=JOB_FINALIZER)
            case do.RemoveFinalizer():
                await self._hold(key, remove=JOB_FINALIZER)
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
            case do.Report():
                await self._report(key, action.reason, action.message, warning=action.warning)

    async def _report(self, key: Key, reason: str, message: str, *, warning: bool) -> None:
        found = self.views.jobs.get(key)
        if found is not None:
            await self.recorder.record(
                STREAMING_JOB.name, found.meta, reason, message, warning=warning
            )

    async def _hold(self, key: Key, *, add: str = "", remove: str = "") -> None:
        """Change our finalizer, under the newest version that is known."""
        found = self.views.jobs.get(key)
        if found is not None:
            self.views.jobs.take(
                await write_finalizers(
                    self.api, STREAMING_JOB.plural, found.meta, add=add, remove=remove
                )
            )

    def _delete_checkpoint(self, key: Key, job: Job) -> None:
        """Begin to remove a checkpoint, which may take long; the job is looked at when it is gone."""
        if key in self._deleting:
            return

        async def remove() -> None:
            try:
                await self.places.delete_checkpoint(job)
                self.observer.emptied(key, job.uid)
            except Exception as error:  # noqa: BLE001 - it is reported, and tried again
                await self._report(key, "DeleteFailed", str(error), warning=True)
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


def _state_of(volume: VolumeResource) -> tuple[object, ...]:
    """Return what lets a driver start, or not."""
    return volume.status.phase, volume.status.checked_access, volume.meta.deleted, volume.spec
