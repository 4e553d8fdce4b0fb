"""Caches of what the operator watches: its three kinds, drivers' pods, and nodes.

One operator may serve the whole cluster or some namespaces; a cache hides which.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate_operator.api import labels
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.controllers.decode import DriverPod, driver_pod_of, node_of
from sluicegate_operator.controllers.resource import Resource, ResourceReader
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.informer import Informer
from sluicegate_operator.kube.resource import NODES, PODS, Json, Key, ResourceType
from sluicegate_operator.reconcile.observed import Node

_INSTALL_HINT = (
    "nothing is done with its resources; apply the CustomResourceDefinitions (operators/crds, or "
    "crds.install of the chart)"
)

T = TypeVar("T")
Spec = TypeVar("Spec")
Status = TypeVar("Status")

JobResource = Resource[StreamingJobSpec, StreamingJobStatus]
VolumeResource = Resource[CheckpointVolumeSpec, CheckpointVolumeStatus]
SavepointResource = Resource[SavepointSpec, SavepointStatus]

Listener = Callable[[Key, T | None, T | None], None]
"""Called with a key and its value before and after a change; None: it does not exist."""


@dataclass
class Cache(Generic[T]):
    """The objects of one kind in all served namespaces."""

    informers: dict[str, Informer[T]]
    listeners: list[Listener[T]] = field(default_factory=list)

    def get(self, key: Key) -> T | None:
        """Return an object, or None."""
        informer = self._informer(key[0])
        return None if informer is None else informer.get(key)

    def items(self) -> Iterator[tuple[Key, T]]:
        """Yield all keys and objects."""
        for informer in self.informers.values():
            yield from list(informer.items())

    def __iter__(self) -> Iterator[Key]:
        """Yield all keys."""
        return (key for key, _ in self.items())

    def put(self, body: Json) -> None:
        """Store an object that a write or read has returned, if it is newer than the cached one."""
        informer = self._informer(body["metadata"].get("namespace", ""))
        if informer is not None:
            informer.put(body)

    def listed_at(self, namespace: str) -> float:
        """Return when the cache was last complete for certain, in seconds since 1970; 0: never."""
        informer = self._informer(namespace)
        return (informer.listed_at if informer else None) or 0.0

    async def refresh(
        self, namespace: str, selector: str, matches: Callable[[Key, T], bool]
    ) -> float:
        """List some objects again (`Informer.refresh`); 0 if the namespace is not served."""
        informer = self._informer(namespace)
        return 0.0 if informer is None else await informer.refresh(namespace, selector, matches)

    @property
    def synced(self) -> bool:
        """Whether each list has succeeded once or is not permitted."""
        return all(i.listed_at is not None or i.list_error for i in self.informers.values())

    @property
    def list_error(self) -> str:
        """Why the objects may not be listed; empty if they may."""
        return next((i.list_error for i in self.informers.values() if i.list_error), "")

    def list_error_in(self, namespace: str) -> str:
        """Return why the objects of a namespace may not be listed; empty if they may."""
        informer = self._informer(namespace)
        return informer.list_error if informer else ""

    @property
    def silent_s(self) -> float:
        """Seconds since the API server last answered, for the namespace where that is longest ago."""
        return time.monotonic() - min(i.heard_at for i in self.informers.values())

    def _informer(self, namespace: str) -> Informer[T] | None:
        return self.informers.get("") or self.informers.get(namespace)


class Caches:
    """The caches of all kinds.

    Args:
        api: the API server.
        namespaces: which are served; none: all.
    """

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        served = tuple(namespaces) or ("",)
        self.jobs: Cache[JobResource] = _resource_cache(
            api,
            STREAMING_JOB.resource,
            served,
            ResourceReader(STREAMING_JOB.name, StreamingJobSpec, StreamingJobStatus),
        )
        self.volumes: Cache[VolumeResource] = _resource_cache(
            api,
            CHECKPOINT_VOLUME.resource,
            served,
            ResourceReader(CHECKPOINT_VOLUME.name, CheckpointVolumeSpec, CheckpointVolumeStatus),
        )
        self.savepoints: Cache[SavepointResource] = _resource_cache(
            api,
            SAVEPOINT.resource,
            served,
            ResourceReader(SAVEPOINT.name, SavepointSpec, SavepointStatus),
        )
        self.pods: Cache[DriverPod] = _cache(
            api, PODS, driver_pod_of, served, selector=f"{labels.ROLE}={labels.DRIVER}"
        )
        self.nodes: Cache[Node] = _cache(api, NODES, node_of, ("",))

    def all(self) -> tuple[Cache[object], ...]:
        """Return every cache."""
        return (self.jobs, self.volumes, self.savepoints, self.pods, self.nodes)  # type: ignore[return-value]

    def required(self) -> tuple[Cache[object], ...]:
        """Return the caches without which nothing is reconciled.

        Nodes are not required: without them a driver on a lost node is waited for.
        """
        return (self.jobs, self.volumes, self.savepoints, self.pods)  # type: ignore[return-value]

    def incomplete(self, namespace: str) -> bool:
        """Return whether a required kind may not be listed in a namespace."""
        return any(cache.list_error_in(namespace) for cache in self.required())

    @property
    def synced(self) -> bool:
        """Whether each list has succeeded once or is not permitted."""
        return all(cache.synced for cache in self.all())

    async def run(self) -> None:
        """Keep all caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.all():
                for informer in cache.informers.values():
                    group.create_task(informer.run())


def _resource_cache(
    api: Api,
    resource_type: ResourceType,
    namespaces: Sequence[str],
    reader: ResourceReader[Spec, Status],
) -> Cache[Resource[Spec, Status]]:
    cache = _cache(api, resource_type, reader.read, namespaces, install_hint=_INSTALL_HINT)

    def forget(
        _key: Key, old: Resource[Spec, Status] | None, new: Resource[Spec, Status] | None
    ) -> None:
        if new is None and old is not None:
            reader.forget(old.meta.uid)

    cache.listeners.append(forget)
    return cache


def _cache(
    api: Api,
    resource_type: ResourceType,
    convert: Callable[[Json], T],
    namespaces: Sequence[str],
    *,
    selector: str = "",
    install_hint: str = "",
) -> Cache[T]:
    cache: Cache[T] = Cache({})

    def changed(key: Key, old: T | None, new: T | None) -> None:
        for listener in cache.listeners:
            listener(key, old, new)

    for namespace in namespaces:
        cache.informers[namespace] = Informer(
            api, resource_type, convert, changed, namespace, selector, install_hint
        )
    return cache
