"""The loop that the controllers of all kinds share: read the cache, decide, write the status, act.

The status is written first, with the resourceVersion that was read. If that write is refused, no action
is performed.
"""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from sluicegate.errors import SettingsInvalid, SluicegateError
from sluicegate_operator.api import labels
from sluicegate_operator.api.codec import render
from sluicegate_operator.api.crds import Kind
from sluicegate_operator.controllers.caches import Cache, Caches
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.limits import Limits
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.resource import Resource
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.events import EventRecorder
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.kube.work_queue import Priority, WorkQueue
from sluicegate_operator.kube.writes import write_finalizers, write_status
from sluicegate_operator.reconcile.actions import AddFinalizer, EmitEvent, RemoveFinalizer
from sluicegate_operator.reconcile.context import Outcome, reject_spec
from sluicegate_operator.reconcile.pause import reconcile_pause
from sluicegate_operator.storage_tasks.queue import TaskSlots

RESYNC_S = 600.0
"""Each resource is reconciled at least this often, even if nothing changes."""

_INCOMPLETE_S = 1.0
"""Delay of a reconciliation that lacks a cache it needs."""


class NotLeader(Exception):
    """Another replica is the leader now."""


ResourceT = TypeVar("ResourceT", bound=Resource[Any, Any])


@dataclass
class Controller(ABC, Generic[ResourceT]):
    """Reconciles the resources of one kind.

    `is_leader` tells whether this replica may act now; `limits` says what the tenants may do; `clock`
    returns seconds since 1970.
    """

    api: Api
    caches: Caches
    is_leader: Callable[[], bool]
    recorder: EventRecorder
    checkpoints: CheckpointResolver
    metrics: Metrics
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    slots: TaskSlots = field(default_factory=TaskSlots)
    queue: WorkQueue[Key] = field(init=False)
    _unreadable: dict[Key, str] = field(default_factory=dict)
    """The versions of resources whose unreadable status was reported."""

    KIND: ClassVar[Kind]
    FINALIZER: ClassVar[str]
    WORKERS: ClassVar[int]
    MIN_REQUEUE_S: ClassVar[float]
    """Shortest delay until a resource is reconciled again without a change."""

    def __post_init__(self) -> None:
        """Create the queue and register the listeners that feed it."""
        self.queue = WorkQueue(
            self.KIND.name,
            self.reconcile,
            workers=self.WORKERS,
            expected_errors=(ApiError, NotLeader, SluicegateError),
        )
        self._register_listeners()

    def enqueue_all(self) -> None:
        """Queue every resource, after this replica became the leader."""
        for key in self._cache:
            self.queue.add(key, Priority.BULK)

    def cancel_tasks(self) -> None:
        """Cancel what runs in worker processes, after this replica stopped being the leader."""

    async def close(self) -> None:
        """Cancel what runs in worker processes, and wait until they are dead."""

    async def reconcile(self, key: Key) -> None:
        """Reconcile one resource.

        Raises:
            ApiError: a request was refused or not answered; the queue retries the resource.
        """
        if not self.is_leader():
            return
        if self.caches.incomplete(key[0]):
            # without the Savepoints in the cache, every savepoint on a store would look unreferenced
            self.queue.add_after(key, _INCOMPLETE_S)
            return
        resource = self._cache.get(key)
        if resource is None or resource.status_error is not None:
            await self._leave_alone(key, resource)
            return
        began, now = time.monotonic(), self.clock()
        try:
            outcome = _pause(resource, now) or await self._decide(resource, now)
        except SettingsInvalid as error:
            outcome = reject_spec(resource.status, resource.meta.generation, error, now)
        if outcome.status != resource.status:
            self._check_leader()
            status = render(outcome.status)
            self._cache.put(await write_status(self.api, self.KIND.resource, resource.meta, status))
            self._status_written(resource, outcome)
            resource = dataclasses.replace(resource, status=outcome.status)
        for action in outcome.actions:
            self._check_leader()
            match action:
                case EmitEvent():
                    await self._emit_event(key, action)
                case AddFinalizer() | RemoveFinalizer():
                    if not await self._set_finalizer(key, present=isinstance(action, AddFinalizer)):
                        return  # deleted meanwhile: without a finalizer nothing may follow
                case _:
                    await self._perform(resource, action)
        self.metrics.reconciled(self.KIND.name, time.monotonic() - began)
        now = self.clock()
        delay = RESYNC_S if outcome.requeue_at is None else outcome.requeue_at - now
        self.queue.add_after(key, min(RESYNC_S, max(self.MIN_REQUEUE_S, delay)))

    async def _leave_alone(self, key: Key, resource: ResourceT | None) -> None:
        """Forget a resource that is gone, or report one whose status cannot be parsed.

        Without its status nothing is known of a resource, so any action might repeat or undo something. It
        is reported once for each version.
        """
        if resource is None or resource.status_error is None:
            self.queue.forget(key)
            self._unreadable.pop(key, None)
            self._forget(key)
            return
        if self._unreadable.get(key) == resource.meta.version:
            return
        self._unreadable[key] = resource.meta.version
        message = (
            f"{resource.status_error.what}; nothing is done with this resource. Run the release of the "
            "operator that wrote it, or correct it with kubectl edit --subresource=status"
        )
        await self._emit_event(key, EmitEvent("StatusUnreadable", message, warning=True))

    @property
    def _cache(self) -> Cache[ResourceT]:
        return self.caches.of(self.KIND)

    @abstractmethod
    def _register_listeners(self) -> None:
        """Listen to changes of everything that the resources depend on."""

    @abstractmethod
    async def _decide(self, resource: ResourceT, now: float) -> Outcome[Any, Any]:
        """Return what to do about a resource; a `SettingsInvalid` is reported as an invalid spec."""

    @abstractmethod
    async def _perform(self, resource: ResourceT, action: Any) -> None:  # noqa: ANN401 - of the kind
        """Perform an action that only this kind has."""

    def _forget(self, key: Key) -> None:
        """Drop what is remembered of a resource that no longer exists."""

    def _status_written(self, resource: ResourceT, outcome: Outcome[Any, Any]) -> None:
        """Handle a status that was written."""

    def _check_leader(self) -> None:
        if not self.is_leader():
            raise NotLeader

    async def _emit_event(self, key: Key, event: EmitEvent) -> None:
        resource = self._cache.get(key)
        if resource is not None:
            kind, meta = self.KIND.resource, resource.meta
            await self.recorder.record(
                kind, meta, event.reason, event.message, warning=event.warning
            )

    async def _set_finalizer(self, key: Key, *, present: bool) -> bool:
        """Add or remove our finalizer, with the newest version that is known; False if it is gone."""
        resource = self._cache.get(key)
        if resource is None:
            return False
        kind, change = self.KIND.resource, {"add" if present else "remove": self.FINALIZER}
        self._cache.put(await write_finalizers(self.api, kind, resource.meta, **change))
        return True


def _pause(resource: Resource[Any, Any], now: float) -> Outcome[Any, Any] | None:
    """Return what is done with a resource that is or was paused; None: it is reconciled."""
    meta = resource.meta
    paused = meta.annotation(labels.PAUSED) == "true"
    return reconcile_pause(
        resource.status, meta.generation, now, paused=paused, deleted=meta.deleted
    )
