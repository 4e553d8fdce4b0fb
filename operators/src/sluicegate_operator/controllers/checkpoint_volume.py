"""The controller of CheckpointVolumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from sluicegate.errors import AccessDenied
from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME
from sluicegate_operator.api.locations import volume_address
from sluicegate_operator.controllers.credentials import read_access
from sluicegate_operator.controllers.limits import NotPermitted
from sluicegate_operator.controllers.resource import (
    JobResource,
    SavepointResource,
    VolumeResource,
    runnable_spec,
    volume_of,
)
from sluicegate_operator.controllers.storage import StorageController
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.reconcile import readiness
from sluicegate_operator.reconcile.checkpoint_volume import VolumeOutcome, reconcile_volume
from sluicegate_operator.reconcile.observed import (
    NOT_PERMITTED,
    OVERLAPS,
    SECRET_UNREADABLE,
    Volume,
    VolumeObserved,
)
from sluicegate_operator.reconcile.overlaps import overlapping

_FURTHER_JOB_S = 1.0
"""Delay of a volume's reconciliation after the creation of a further job on it."""


class VolumeController(StorageController):
    """Reconciles CheckpointVolumes."""

    KIND = CHECKPOINT_VOLUME
    FINALIZER = labels.VOLUME_FINALIZER

    def _register_listeners(self) -> None:
        super()._register_listeners()
        self.caches.jobs.listeners.append(self._job_changed)

    async def _decide_accepted(self, resource: VolumeResource, now: float) -> VolumeOutcome:
        volume = volume_of(resource)
        return reconcile_volume(volume, await self._observe(volume), now)

    async def _observe(self, volume: Volume) -> VolumeObserved:
        namespace, deleted = volume.namespace, volume.deleted_at is not None
        as_of = await self._refresh_users(namespace) if deleted else 0.0
        version, problem, reason = "", "", ""
        other = overlapping(volume, map(volume_of, self._valid_volumes()))
        try:
            version = (await read_access(self.api, namespace, volume.spec, self.limits)).versions
        except AccessDenied as error:
            problem = error.what
            reason = NOT_PERMITTED if isinstance(error, NotPermitted) else SECRET_UNREADABLE
        if other is not None:
            problem, reason = _overlap_problem(volume, other), OVERLAPS
        # a job with an invalid spec may use any volume, so it keeps a deleted one
        jobs = {
            name: job
            for name, job in self.caches.jobs.by_name(namespace).items()
            if _volume_of(job) == volume.name or (deleted and runnable_spec(job) is None)
        }
        savepoints = self.caches.savepoints.by_name(namespace)
        statuses = [one.status for one in savepoints.values()]
        return VolumeObserved(
            as_of=as_of,
            secret_version=version,
            access_problem=problem,
            access_reason=reason,
            jobs=tuple(sorted(jobs)),
            savepoints=tuple(
                sorted(
                    name
                    for name, one in savepoints.items()
                    if volume.name in _volumes_of(one, jobs)
                )
            ),
            referenced_savepoints=tuple(chain(*map(readiness.referenced_savepoints, statuses))),
            folders_in_progress=tuple(chain(*map(readiness.folders_in_progress, statuses))),
            unreadable=tuple(name for name, one in savepoints.items() if one.status_error),
            tasks=self.tasks.states(volume.uid),
        )

    def _valid_volumes(self) -> Iterator[VolumeResource]:
        """Yield the CheckpointVolumes of all served namespaces whose spec is valid."""
        for key in self.caches.volumes:
            found = self.caches.volumes.get(key)
            if found is not None and found.valid_spec is not None:
                yield found

    async def _refresh_users(self, namespace: str) -> float:
        """List jobs and savepoints again, so that no user of a deleted volume is missed."""
        jobs = await self.caches.jobs.refresh(namespace)
        return min(jobs, await self.caches.savepoints.refresh(namespace))

    def _job_changed(self, key: Key, old: JobResource | None, new: JobResource | None) -> None:
        """Queue the volume of a job that was created or has disappeared.

        The first job of a volume protects it from deletion. A thousand more that are created with it need one
        reconciliation for all of them, and not a thousand.
        """
        if (old is None) == (new is None):
            return
        name = _volume_of(new or old)
        volume = self.caches.volumes.get((key[0], name))
        if new is not None and volume is not None and self.FINALIZER in volume.meta.finalizers:
            self.queue.add_after((key[0], name), _FURTHER_JOB_S)
        elif name:
            self.queue.add((key[0], name))


def _overlap_problem(volume: Volume, other: Volume) -> str:
    return (
        f"{volume_address(volume.spec)} overlaps {volume_address(other.spec)}, which belongs to "
        f"CheckpointVolume {other.namespace}/{other.name}; nothing is read, written or deleted. Create the "
        "volume with a prefix of its own"
    )


def _volume_of(job: JobResource | None) -> str:
    spec = None if job is None else runnable_spec(job)
    return "" if spec is None else spec.checkpoint.volume


def _volumes_of(savepoint: SavepointResource, jobs: Mapping[str, JobResource]) -> set[str]:
    """Return the volumes of a Savepoint: the one it was stored on, and the one for its next savepoint."""
    spec = savepoint.valid_spec
    if spec is None:
        return set()
    return {savepoint.status.volume, spec.volume or _volume_of(jobs.get(spec.job))} - {""}
