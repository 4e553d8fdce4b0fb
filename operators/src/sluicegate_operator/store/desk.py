"""Keeps the tasks of all resources: which run, and how the others ended, until that is forgotten.

In memory only: after a start of the operator nothing is known, and what is still due is begun
again, which each task allows. Not here: which are due. Called by whoever performs `RunTask` and
`ForgetTask`, on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sluicegate.protocol.errors import SluicegateError
from sluicegate_operator.store.running import TaskFailed, run
from sluicegate_operator.volumes.tasks import (
    Broken,
    Done,
    Exists,
    Prepare,
    Running,
    Task,
    TaskState,
)

Environment = Callable[[], Awaitable[Mapping[str, str]]]
Run = Callable[[Task, Mapping[str, str], float], Awaitable[Any]]


class TaskDesk:
    """The tasks of resources, by uid.

    Args:
        on_end: told a resource's uid when a task of it has ended: a pass is due.
        at_once: child processes at a time, of quick tasks (Prepare, Exists) and again of all others,
            some 50 MB each; the rest wait for their turn, and their time begins with it.
        clock: seconds since 1970.
        runner: what runs a task; `running.run` but in tests.
    """

    def __init__(
        self,
        on_end: Callable[[str], None],
        *,
        at_once: int = 2,
        clock: Callable[[], float] = time.time,
        runner: Run = run,
    ) -> None:
        self._on_end, self._clock, self._run = on_end, clock, runner
        # a copy that takes an hour must not keep a volume from being checked
        self._quick, self._slow = asyncio.Semaphore(at_once), asyncio.Semaphore(at_once)
        self._states: dict[str, dict[Task, TaskState]] = {}
        self._running: dict[tuple[str, Task], asyncio.Task[None]] = {}

    def begin(self, uid: str, task: Task, environment: Environment, timeout_s: float) -> None:
        """Begin a task of a resource; one that runs, or whose end is not forgotten, is left alone.

        Args:
            uid: of the resource.
            task: what.
            environment: asked when its turn has come; a `SluicegateError` of it fails the task.
            timeout_s: its child is killed after so long.
        """
        states = self._states.setdefault(uid, {})
        if task in states:
            return
        states[task] = Running(self._clock())
        work = self._work(uid, task, environment, timeout_s)
        self._running[uid, task] = asyncio.get_running_loop().create_task(work)

    def of(self, uid: str) -> Mapping[Task, TaskState]:
        """Return how far a resource's tasks are."""
        return dict(self._states.get(uid, {}))

    def forget(self, uid: str, task: Task) -> None:
        """Forget how a task ended."""
        states = self._states.get(uid, {})
        if not isinstance(states.get(task), Running):
            states.pop(task, None)
        if not states:
            self._states.pop(uid, None)

    def drop(self, uid: str) -> None:
        """End all tasks of a resource that is gone, and forget them."""
        for (owner, _), work in list(self._running.items()):
            if owner == uid:
                work.cancel()
        self._states.pop(uid, None)

    async def close(self) -> None:
        """End all tasks: their child processes are dead when this returns."""
        works = list(self._running.values())
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        self._states.clear()

    async def _work(self, uid: str, task: Task, environment: Environment, timeout_s: float) -> None:
        state: TaskState
        try:
            async with self._quick if isinstance(task, Prepare | Exists) else self._slow:
                result = await self._run(task, await environment(), timeout_s)
            state = Done(self._clock(), result)
        except TaskFailed as error:
            state = Broken(self._clock(), error.kind, error.what, error.data, error.do)
        except SluicegateError as error:
            state = Broken(self._clock(), type(error).__name__, error.what, error.data, error.do)
        except Exception as error:  # noqa: BLE001 - it is told as the task's end: nothing is lost
            state = Broken(self._clock(), type(error).__name__, f"{type(error).__name__}: {error}")
        finally:
            self._running.pop((uid, task), None)
        if uid in self._states:
            self._states[uid][task] = state
            self._on_end(uid)
