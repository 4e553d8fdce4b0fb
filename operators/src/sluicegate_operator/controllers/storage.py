"""The controller of resources whose work is done on an object store by storage tasks.

A task ends later than the reconciliation that requested it; its end queues the resource again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.controllers.base import Controller
from sluicegate_operator.controllers.credentials import read_access
from sluicegate_operator.controllers.resource import Resource
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.reconcile.actions import ForgetTask, RunTask, StorageAction
from sluicegate_operator.reconcile.context import Outcome, reject_spec
from sluicegate_operator.storage_tasks.queue import TaskQueue

AnyResource = Resource[Any, Any]
AnyOutcome = Outcome[Any, StorageAction]


@dataclass
class StorageController(Controller[AnyResource]):
    """Reconciles CheckpointVolumes or Savepoints."""

    tasks: TaskQueue = field(init=False)
    _keys: dict[str, Key] = field(default_factory=dict)

    WORKERS = 4
    MIN_REQUEUE_S = 0.05

    def _register_listeners(self) -> None:
        self.tasks = TaskQueue(self._task_changed, clock=self.clock, slots=self.slots)
        self._cache.listeners.append(self._changed)

    def cancel_tasks(self) -> None:
        """Cancel all storage tasks."""
        self.tasks.cancel()

    async def close(self) -> None:
        """Cancel all storage tasks, and wait until their processes are dead."""
        await self.tasks.close()

    @abstractmethod
    async def _decide_accepted(self, resource: Any, now: float) -> AnyOutcome:  # noqa: ANN401 - of the kind
        """Return what to do about a resource with a valid spec."""

    async def _decide(self, resource: AnyResource, now: float) -> AnyOutcome:
        if isinstance(resource.spec, SettingsInvalid):
            return reject_spec(resource.status, resource.meta.generation, resource.spec, now)
        return await self._decide_accepted(resource, now)

    async def _perform(self, resource: AnyResource, action: StorageAction) -> None:
        key, uid = resource.key, resource.meta.uid
        match action:
            case RunTask():

                async def environment() -> Mapping[str, str]:
                    volume = self.checkpoints.volume(key[0], action.volume)
                    return (await read_access(self.api, key[0], volume, self.limits)).environment

                self.tasks.start(uid, action.task, environment, action.timeout_s, key[0])
            case ForgetTask():
                self.tasks.forget(uid, action.task)

    def _task_changed(self, uid: str) -> None:
        key = self._keys.get(uid)
        if key is not None:
            self.queue.add(key)

    def _changed(self, key: Key, old: AnyResource | None, new: AnyResource | None) -> None:
        if new is None:
            if old is not None:
                self._keys.pop(old.meta.uid, None)
                self.tasks.drop(old.meta.uid)
        else:
            self._keys[new.meta.uid] = key
        self.queue.add(key)
