"""All that the operator keeps in view: our three kinds, drivers' pods, nodes.

One operator may serve the whole cluster or some namespaces; a view hides which. Not here: what is
done about a change. Called by `service.jobs` and its siblings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate_operator.cluster.client import Api, Json
from sluicegate_operator.cluster.informer import Informer, Key
from sluicegate_operator.cluster.objects import (
    Reader,
    Resource,
    SeenPod,
    node_of,
    pod_of,
)
from sluicegate_operator.reconcile.observed import Node
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus
from sluicegate_operator.resources.kinds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB
from sluicegate_operator.resources.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.resources.volume import CheckpointVolumeSpec, CheckpointVolumeStatus

T = TypeVar("T")
Spec = TypeVar("Spec")
Status = TypeVar("Status")

JobResource = Resource[StreamingJobSpec, StreamingJobStatus]
VolumeResource = Resource[CheckpointVolumeSpec, CheckpointVolumeStatus]
SavepointResource = Resource[SavepointSpec, SavepointStatus]

Changed = Callable[[Key, T | None, T | None], None]
"""Told of a key, its value before, and its value now."""


@dataclass
class View(Generic[T]):
    """The objects of one kind in all namespaces that are served."""

    informers: dict[str, Informer[T]]
    listeners: list[Changed[T]] = field(default_factory=list)

    def get(self, key: Key) -> T | None:
        """Return an object's value, or None."""
        informer = self._of(key[0])
        return None if informer is None else informer.get(key)

    def items(self) -> Iterator[tuple[Key, T]]:
        """Yield all that is in view."""
        for informer in self.informers.values():
            yield from list(informer.items())

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys of all that is in view."""
        return (key for key, _ in self.items())

    def take(self, thing: Json) -> None:
        """Take in what a write or a read has returned."""
        informer = self._of(thing["metadata"].get("namespace", ""))
        if informer is not None:
            informer.take(thing)

    def listed_at(self, namespace: str) -> float:
        """Return when the view was surely complete, in seconds since 1970; 0: it never was."""
        informer = self._of(namespace)
        return (informer.listed_at if informer else None) or 0.0

    async def refresh(
        self, namespace: str, selector: str, chosen: Callable[[Key, T], bool]
    ) -> float:
        """See `Informer.refresh`; 0 if the namespace is not served."""
        informer = self._of(namespace)
        return 0.0 if informer is None else await informer.refresh(namespace, selector, chosen)

    @property
    def synced(self) -> bool:
        """Whether each list was read once, or is refused."""
        return all(i.listed_at is not None or i.refused for i in self.informers.values())

    @property
    def refused(self) -> str:
        """Why one may not be read, or nothing."""
        return next((i.refused for i in self.informers.values() if i.refused), "")

    def refused_in(self, namespace: str) -> str:
        """Why the objects of a namespace may not be read, or nothing."""
        informer = self._of(namespace)
        return informer.refused if informer else ""

    @property
    def silent_s(self) -> float:
        """Seconds since the server was heard of, at the longest."""
        return time.monotonic() - min(i.heard_at for i in self.informers.values())

    def _of(self, namespace: str) -> Informer[T] | None:
        return self.informers.get("") or self.informers.get(namespace)


class Views:
    """The views of all kinds.

    Args:
        api: the API server.
        namespaces: those that are served; none: all.
    """

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        places = tuple(namespaces) or ("",)
        self.jobs: View[JobResource] = _resources(
            api,
            STREAMING_JOB.plural,
            places,
            Reader(STREAMING_JOB.name, StreamingJobSpec, StreamingJobStatus),
        )
        self.volumes: View[VolumeResource] = _resources(
            api,
            CHECKPOINT_VOLUME.plural,
            places,
            Reader(CHECKPOINT_VOLUME.name, CheckpointVolumeSpec, CheckpointVolumeStatus),
        )
        self.savepoints: View[SavepointResource] = _resources(
            api, SAVEPOINT.plural, places, Reader(SAVEPOINT.name, SavepointSpec, SavepointStatus)
        )
        self.pods: View[SeenPod] = _view(
            api, "pods", pod_of, places, selector=f"{marks.ROLE}={marks.DRIVER}"
        )
        self.nodes: View[Node] = _view(api, "nodes", node_of, ("",))

    def all(self) -> tuple[View[object], ...]:
        """Return every view."""
        return (self.jobs, self.volumes, self.savepoints, self.pods, self.nodes)  # type: ignore[return-value]

    def needed(self) -> tuple[View[object], ...]:
        """Return those without which nothing can be done; without nodes a lost one is waited for."""
        return (self.jobs, self.volumes, self.savepoints, self.pods)  # type: ignore[return-value]

    def lacking(self, namespace: str) -> bool:
        """Whether something without which nothing can be done may not be read in a namespace."""
        return any(view.refused_in(namespace) for view in self.needed())

    @property
    def synced(self) -> bool:
        """Whether everything was read once, or is refused."""
        return all(view.synced for view in self.all())

    async def run(self) -> None:
        """Keep all views until cancelled."""
        async with asyncio.TaskGroup() as group:
            for view in self.all():
                for informer in view.informers.values():
                    group.create_task(informer.run())


def _resources(
    api: Api, plural: str, places: Sequence[str], reader: Reader[Spec, Status]
) -> View[Resource[Spec, Status]]:
    view = _view(api, plural, reader.read, places)

    def forget(
        _key: Key, old: Resource[Spec, Status] | None, new: Resource[Spec, Status] | None
    ) -> None:
        if new is None and old is not None:
            reader.forget(old.meta.uid)

    view.listeners.append(forget)
    return view


def _view(
    api: Api,
    plural: str,
    convert: Callable[[Json], T],
    places: Sequence[str],
    *,
    selector: str = "",
) -> View[T]:
    view: View[T] = View({})

    def changed(key: Key, old: T | None, new: T | None) -> None:
        for listener in view.listeners:
            listener(key, old, new)

    for place in places:
        view.informers[place] = Informer(api, plural, convert, changed, place, selector)
    return view
