"""Caches of what the operator watches: its three kinds, drivers' pods, and nodes.

One operator may serve the whole cluster or some namespaces; a cache hides which.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, KINDS, SAVEPOINT, STREAMING_JOB, Kind
from sluicegate_operator.controllers.decode import driver_pod_of, node_of
from sluicegate_operator.controllers.resource import (
    JobResource,
    Resource,
    ResourceReader,
    SavepointResource,
    VolumeResource,
)
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.informer import Informer
from sluicegate_operator.kube.resource import NODES, PODS, Json, Key, ResourceType

_INSTALL_HINT = (
    "nothing is done with its resources; apply the CustomResourceDefinitions (operators/crds, or "
    "crds.install of the chart)"
)

T = TypeVar("T")
Value = TypeVar("Value", bound=Hashable)

Listener = Callable[[Key, T | None, T | None], None]
"""Called with a key and its value before and after a change; None: it does not exist."""


class Cache(Generic[T]):
    """The objects of one kind in all served namespaces; the parameters are those of `Informer`."""

    def __init__(
        self,
        api: Api,
        resource_type: ResourceType,
        convert: Callable[[Json], T],
        namespaces: Sequence[str],
        *,
        selector: str = "",
        install_hint: str = "",
    ) -> None:
        self.plural = resource_type.plural
        self.listeners: list[Listener[T]] = []
        what = (api, resource_type, convert, self._changed)
        self.informers = {
            namespace: Informer(*what, namespace, selector, install_hint)
            for namespace in namespaces
        }

    def get(self, key: Key) -> T | None:
        """Return an object, or None."""
        informer = self._informer(key[0])
        return None if informer is None else informer.get(key)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over all present keys."""
        # copied at once: metrics are read in another thread, while objects come and go
        return itertools.chain.from_iterable(list(i.entries) for i in self.informers.values())

    def by_name(self, namespace: str) -> dict[str, T]:
        """Return the objects of a namespace."""
        informer = self._informer(namespace)
        entries = informer.entries.items() if informer else ()
        return {key[1]: entry.value for key, entry in entries if key[0] == namespace}

    def put(self, body: Json) -> None:
        """Store an object that a write or read has returned, if it is newer than the cached one."""
        informer = self._informer(body["metadata"].get("namespace", ""))
        if informer is not None:
            informer.put(body)

    def listed_at(self, namespace: str) -> float:
        """Return when the cache was last complete for certain, in seconds since 1970; 0: never."""
        informer = self._informer(namespace)
        return (informer.complete_at() if informer else None) or 0.0

    async def refresh(
        self, namespace: str, selector: str = "", matches: Callable[[T], bool] = lambda _: True
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

    @property
    def errors(self) -> int:
        """How often a list or a watch failed since the start."""
        return sum(informer.errors for informer in self.informers.values())

    @property
    def unreadable(self) -> int:
        """The number of objects whose newest version cannot be read."""
        return sum(len(informer.unreadable) for informer in self.informers.values())

    def list_error_in(self, namespace: str) -> str:
        """Return why the objects of a namespace may not be listed; empty if they may."""
        informer = self._informer(namespace)
        return informer.list_error if informer else ""

    @property
    def silent_s(self) -> float:
        """Seconds since the API server last answered, for the namespace where that is longest ago."""
        return time.monotonic() - min(i.heard_at for i in self.informers.values())

    def _changed(self, key: Key, old: T | None, new: T | None) -> None:
        for listener in self.listeners:
            listener(key, old, new)

    def _informer(self, namespace: str) -> Informer[T] | None:
        return self.informers.get("") or self.informers.get(namespace)


class Index(Generic[T, Value]):
    """The keys of a cache's objects by a property that never changes; None: not known (yet)."""

    def __init__(self, cache: Cache[T], property_of: Callable[[T], Value | None]) -> None:
        self._property_of = property_of
        self._keys: dict[Value, set[Key]] = defaultdict(set)
        cache.listeners.append(self._changed)

    def keys(self, value: Value) -> list[Key]:
        """Return the keys of the objects that have this value, sorted."""
        return sorted(self._keys.get(value, ()))

    def _changed(self, key: Key, old: T | None, new: T | None) -> None:
        for one, gone in ((old, new is None), (new, False)):
            value = None if one is None else self._property_of(one)
            if value is None:
                continue
            (self._keys[value].discard if gone else self._keys[value].add)(key)
            if not self._keys[value]:
                del self._keys[value]


class Caches:
    """The caches of all kinds, in the namespaces that are served; none: all."""

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        served = tuple(namespaces) or ("",)
        self._by_kind = {kind.name: _resource_cache(api, kind, served) for kind in KINDS}
        self.jobs: Cache[JobResource] = self.of(STREAMING_JOB)
        self.volumes: Cache[VolumeResource] = self.of(CHECKPOINT_VOLUME)
        self.savepoints: Cache[SavepointResource] = self.of(SAVEPOINT)
        drivers = f"{labels.ROLE}={labels.DRIVER}"
        self.pods = Cache(api, PODS, driver_pod_of, served, selector=drivers)
        self.nodes = Cache(api, NODES, node_of, ("",))

    def of(self, kind: Kind) -> Cache[Any]:
        """Return the cache of one of the operator's own kinds."""
        return self._by_kind[kind.name]

    def all(self) -> tuple[Cache[object], ...]:
        """Return every cache."""
        return (*self.required(), self.nodes)  # type: ignore[arg-type]

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


def _resource_cache(api: Api, kind: Kind, namespaces: Sequence[str]) -> Cache[Resource[Any, Any]]:
    reader = ResourceReader(kind)
    cache = Cache(api, kind.resource, reader.read, namespaces, install_hint=_INSTALL_HINT)
    cache.listeners.append(reader.changed)
    return cache
