"""The storage tasks of all resources: which are running, and how the others ended.

The queue lives in memory only. After a restart of the operator it is empty, and what is still due is
started again, which every task permits. It must be used on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sluicegate.errors import SluicegateError
from sluicegate_operator.reconcile.storage_tasks import (
    CheckVolume,
    Done,
    FailedTask,
    Running,
    TakeSavepoint,
    Task,
    TaskState,
)
from sluicegate_operator.storage_tasks.runner import TaskFailed, run

Environment = Callable[[], Awaitable[Mapping[str, str]]]
Runner = Callable[[Task, Mapping[str, str], float], Awaitable[Any]]


class FairSlots:
    """A number of slots, of which no namespace has the last one: its hanging stores delay its own tasks.

    Entries of namespaces that wait for nothing are dropped.
    """

    def __init__(self, count: int) -> None:
        self._all, self._share = asyncio.Semaphore(count), max(1, count - 1)
        self._shares: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot of a namespace, and occupy it."""
        share = self._shares.setdefault(namespace, asyncio.Semaphore(self._share))
        self._users[namespace] += 1
        try:
            # in this order: what waits for its namespace occupies no slot of the others
            async with share, self._all:
                yield
        finally:
            self._users[namespace] -= 1
            if not self._users[namespace]:
                del self._users[namespace], self._shares[namespace]


@dataclass(frozen=True)
class TaskSlots:
    """How many worker processes, of about 50 MB each, run at a time; all controllers share them.

    Checks have their own, because a copy that takes an hour must not delay the check of a volume.
    """

    checks: FairSlots = field(default_factory=lambda: FairSlots(2))
    others: FairSlots = field(default_factory=lambda: FairSlots(4))


class TaskQueue:
    """The tasks of resources, by uid.

    Args:
        on_change: called with a resource's uid when one of its tasks has started to take a savepoint, or
            any has ended, to reconcile it.
        slots: how many tasks run at a time. Further tasks wait; their timeout starts when they run.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        on_change: Callable[[str], None],
        *,
        slots: TaskSlots | None = None,
        clock: Callable[[], float] = time.time,
        runner: Runner = run,
    ) -> None:
        self._on_change, self._clock, self._runner = on_change, clock, runner
        self._slots = slots or TaskSlots()
        self._states: dict[str, dict[Task, TaskState]] = {}
        self._running: dict[tuple[str, Task], asyncio.Task[None]] = {}

    def start(
        self, uid: str, task: Task, environment: Environment, timeout_s: float, namespace: str = ""
    ) -> None:
        """Start a task of a resource, unless it is running or its result has not been forgotten.

        `environment` is called when the task runs; a `SluicegateError` that it raises fails the task. The
        worker process is killed after `timeout_s`.
        """
        states = self._states.setdefault(uid, {})
        if task in states:
            return
        states[task] = Running(self._clock())
        coroutine = self._run(uid, task, environment, timeout_s, namespace)
        running = asyncio.get_running_loop().create_task(coroutine)
        self._running[uid, task] = running
        running.add_done_callback(lambda ended: self._remove(uid, task, ended))

    def states(self, uid: str) -> Mapping[Task, TaskState]:
        """Return a resource's tasks and their states."""
        return dict(self._states.get(uid, {}))

    def forget(self, uid: str, task: Task) -> None:
        """Forget how a task ended; a running task is left alone."""
        states = self._states.get(uid, {})
        if not isinstance(states.get(task), Running):
            states.pop(task, None)
        if not states:
            self._states.pop(uid, None)

    def drop(self, uid: str) -> None:
        """Cancel and forget all tasks of a resource that no longer exists."""
        for (owner, _), running in list(self._running.items()):
            if owner == uid:
                running.cancel()
        self._states.pop(uid, None)

    def cancel(self) -> None:
        """Cancel all tasks, because another replica may run them now.

        A task counts as running until its worker process is dead, so that the same one cannot run twice here.
        """
        for running in self._running.values():
            running.cancel()

    async def close(self) -> None:
        """Cancel all tasks; their worker processes are dead when this returns."""
        running = list(self._running.values())
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._states.clear()

    def _remove(self, uid: str, task: Task, ended: asyncio.Task[None]) -> None:
        self._running.pop((uid, task), None)
        if ended.cancelled() and self._states.get(uid, {}).pop(task, None) is not None:
            self._on_change(uid)  # it may be started again

    async def _run(
        self, uid: str, task: Task, environment: Environment, timeout_s: float, namespace: str
    ) -> None:
        state: TaskState
        try:
            slots = self._slots.checks if isinstance(task, CheckVolume) else self._slots.others
            async with slots.slot(namespace):
                self._record_start(uid, task)
                result = await self._runner(task, await environment(), timeout_s)
            state = Done(self._clock(), result)
        except SluicegateError as error:
            kind = error.kind if isinstance(error, TaskFailed) else type(error).__name__
            state = FailedTask(self._clock(), kind, error.what, error.data, error.do)
        except Exception as error:  # noqa: BLE001 - it becomes the task's result, so nothing is lost
            kind = type(error).__name__
            state = FailedTask(self._clock(), kind, f"{kind}: {error}")
        if uid in self._states:
            self._states[uid][task] = state
            self._on_change(uid)

    def _record_start(self, uid: str, task: Task) -> None:
        """Record that a task has left the queue; the wait for a savepoint is limited from then on."""
        state = self._states.get(uid, {}).get(task)
        if isinstance(state, Running):
            self._states[uid][task] = Running(state.since, self._clock())
            if isinstance(task, TakeSavepoint):
                self._on_change(uid)
