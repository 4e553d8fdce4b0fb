"""CheckpointVolumes and Savepoints: looked at when something about them changes, as jobs are.

What is done on an object store is done by tasks (`store.desk`), which end later; then their resource
is looked at again. Not here: any decision (`volumes`). Called by `service.operator`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluicegate.protocol.errors import AccessDenied, SettingsInvalid
from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.cluster.objects import Resource
from sluicegate_operator.reconcile.actions import AddFinalizer, RemoveFinalizer
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.kinds import CHECKPOINT_VOLUME, SAVEPOINT
from sluicegate_operator.resources.savepoint import SavepointSpec
from sluicegate_operator.service.controller import Controller
from sluicegate_operator.service.views import (
    JobResource,
    SavepointResource,
    View,
    VolumeResource,
)
from sluicegate_operator.store.desk import TaskDesk
from sluicegate_operator.volumes import reading
from sluicegate_operator.volumes.actions import Action, ForgetTask, RunTask
from sluicegate_operator.volumes.observed import (
    JobView,
    Savepoint,
    SavepointObserved,
    Volume,
    VolumeObserved,
    VolumeView,
)
from sluicegate_operator.volumes.passes import Outcome, refused
from sluicegate_operator.volumes.savepoint import reconcile_savepoint
from sluicegate_operator.volumes.volume import reconcile_volume


@dataclass
class StoredController(Controller[Any, Outcome[Any]]):
    """Looks at resources of one kind whose work is on an object store."""

    desk: TaskDesk = field(init=False)
    _keys: dict[str, Key] = field(default_factory=dict)

    WORKERS = 4
    SOONEST_S = 0.05

    def _listen(self) -> None:
        self.desk = TaskDesk(self._task_ended, clock=self.clock)
        self._view.listeners.append(self._changed)

    async def close(self) -> None:
        """End all tasks."""
        await self.desk.close()

    @abstractmethod
    async def _judge(self, found: Any, now: float) -> Outcome[Any]:  # noqa: ANN401 - of the kind
        """Return what to do about a resource that can be read."""

    async def _decide(self, found: Resource[Any, Any], now: float) -> Outcome[Any]:
        if isinstance(found.spec, SettingsInvalid):
            return refused(found.status, found.meta.generation, found.spec, now)
        try:
            return await self._judge(found, now)
        except SettingsInvalid as error:
            return refused(found.status, found.meta.generation, error, now)

    async def _perform(self, found: Resource[Any, Any], action: Action) -> None:
        key, meta = found.key, found.meta
        match action:
            case AddFinalizer():
                await self._hold(key, holds=True)
            case RemoveFinalizer():
                await self._hold(key, holds=False)
            case RunTask():

                async def environment() -> Mapping[str, str]:
                    volume = self.views.volumes.get((key[0], action.volume))
                    if volume is None or isinstance(volume.spec, SettingsInvalid):
                        raise AccessDenied(
                            f"CheckpointVolume {action.volume} is not there, or cannot be read",
                            data="nothing was done on it",
                            do="create it again",
                        )
                    return await self.places.environment(key[0], volume.spec)

                self.desk.begin(meta.uid, action.task, environment, action.timeout_s)
            case ForgetTask():
                self.desk.forget(meta.uid, action.task)

    def _task_ended(self, uid: str) -> None:
        key = self._keys.get(uid)
        if key is not None:
            self.queue.add(key)

    def _changed(
        self, key: Key, old: Resource[Any, Any] | None, new: Resource[Any, Any] | None
    ) -> None:
        if new is None:
            if old is not None:
                self._keys.pop(old.meta.uid, None)
                self.desk.drop(old.meta.uid)
        else:
            self._keys[new.meta.uid] = key
        self.queue.add(key)


class VolumeController(StoredController):
    """Looks at CheckpointVolumes."""

    KIND = CHECKPOINT_VOLUME
    FINALIZER = marks.VOLUME_FINALIZER

    @property
    def _view(self) -> View[VolumeResource]:
        return self.views.volumes

    def _listen(self) -> None:
        super()._listen()
        self.views.jobs.listeners.append(self._job_changed)

    async def _judge(self, found: VolumeResource, now: float) -> Outcome[Any]:
        assert not isinstance(found.spec, SettingsInvalid)
        meta = found.meta
        volume = Volume(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            spec=found.spec,
            status=found.status,
            deleted_at=meta.deleted_at,
            held=self.FINALIZER in meta.finalizers,
        )
        return reconcile_volume(volume, await self._observe(found), now)

    async def _observe(self, found: VolumeResource) -> VolumeObserved:
        assert not isinstance(found.spec, SettingsInvalid)
        namespace, name = found.key
        as_of = 0.0
        if found.meta.deleted:  # what is in use must not be missed
            as_of = min(
                await self.views.jobs.refresh(namespace, "", lambda key, _: key[0] == namespace),
                await self.views.savepoints.refresh(
                    namespace, "", lambda key, _: key[0] == namespace
                ),
            )
        version, problem = "", ""
        try:
            version = (await self.places.access(namespace, found.spec)).versions
        except AccessDenied as error:
            problem = error.what
        jobs = {
            key[1]: job
            for key, job in self.views.jobs.items()
            if key[0] == namespace
            and (_volume_of(job) == name or (found.meta.deleted and _unreadable(job)))
        }
        savepoints = [s for key, s in self.views.savepoints.items() if key[0] == namespace]
        mine = [
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
            savepoints=tuple(sorted(one.meta.name for one in mine)),
            named=tuple(a for one in savepoints for a in reading.named(one.status)),
            busy=tuple(a for one in savepoints for a in reading.busy(one.status)),
            tasks=self.desk.of(found.meta.uid),
        )

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        """Look at a volume that a job has begun or ceased to use."""
        if (old is None) == (new is None):
            return
        name = _volume_of(new or old)
        if name:
            self.queue.add((key[0], name))


class SavepointController(StoredController):
    """Looks at Savepoints."""

    KIND = SAVEPOINT
    FINALIZER = marks.SAVEPOINT_FINALIZER

    @property
    def _view(self) -> View[SavepointResource]:
        return self.views.savepoints

    def _listen(self) -> None:
        super()._listen()
        self.views.jobs.listeners.append(self._job_changed)
        self.views.volumes.listeners.append(self._volume_changed)

    async def _judge(self, found: SavepointResource, now: float) -> Outcome[Any]:
        assert not isinstance(found.spec, SettingsInvalid)
        meta = found.meta
        attempt = meta.annotation(marks.ATTEMPT)
        savepoint = Savepoint(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created_at=meta.created_at,
            spec=found.spec,
            status=found.status,
            deleted=meta.deleted,
            held=self.FINALIZER in meta.finalizers,
            attempt=int(attempt) if attempt.isdigit() else None,
            job_uid=meta.annotation(marks.JOB_UID),
            force=meta.annotation(marks.FORCE_DISPOSE) == "true",
        )
        return reconcile_savepoint(savepoint, self._observe(found), now)

    def _observe(self, found: SavepointResource) -> SavepointObserved:
        assert not isinstance(found.spec, SettingsInvalid)
        namespace, name = found.key
        job = self.views.jobs.get((namespace, found.spec.job))
        seen = None
        if job is not None and not isinstance(job.spec, SettingsInvalid):
            seen = JobView(job.meta.name, job.meta.uid, job.spec, job.status, job.meta.deleted)
        needed = [
            key[1]
            for key, other in self.views.jobs.items()
            if key[0] == namespace
            and not isinstance(other.spec, SettingsInvalid)
            and other.spec.checkpoint.restore_from == name
            and other.status.last_epoch is None
        ]
        volumes = {}
        for key, volume in self.views.volumes.items():
            if key[0] == namespace and not isinstance(volume.spec, SettingsInvalid):
                ready, message = reading.readiness(volume.spec, volume.status)
                volumes[key[1]] = VolumeView(key[1], volume.spec, ready, message)
        return SavepointObserved(
            job=seen,
            volumes=volumes,
            needed_by=tuple(needed),
            tasks=self.desk.of(found.meta.uid),
        )

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        """Look at the savepoints of a job whose driver, or very being, has changed."""
        if old is not None and new is not None and _stance(old) == _stance(new):
            return
        for name in self.places.savepoints_of(key):
            self.queue.add((key[0], name))

    def _volume_changed(
        self, key: Key, old: VolumeResource | None, new: VolumeResource | None
    ) -> None:
        if old is not None and new is not None and old.status.phase == new.status.phase:
            return
        for found, savepoint in self.views.savepoints.items():
            if found[0] == key[0] and not savepoint.status.taken:
                self.queue.add(found)


def _volumes_of(
    found: SavepointResource, spec: SavepointSpec, jobs: Mapping[str, JobResource]
) -> set[str]:
    """Return the volumes that a savepoint is on: those that it has been on, and its next one's."""
    job = jobs.get(spec.job)
    return {found.status.volume, spec.volume or _volume_of(job)} - {""}


def _unreadable(job: JobResource) -> bool:
    """Return whether a job's spec cannot be read: nobody knows then which volume it is on."""
    return isinstance(job.spec, SettingsInvalid)


def _volume_of(job: JobResource | None) -> str:
    if job is None or isinstance(job.spec, SettingsInvalid):
        return ""
    return job.spec.checkpoint.volume


def _stance(job: JobResource) -> tuple[object, ...]:
    """Return what a savepoint may wait for."""
    status = job.status
    return (
        status.phase,
        status.attempt,
        status.driver.state,
        status.last_epoch is None,
        job.meta.deleted,
        job.meta.generation,
    )
