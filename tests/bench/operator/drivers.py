"""Drivers of the operator's benchmark: their pods start, report progress and end, as with kubelets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Coroutine
from types import TracebackType
from typing import Any, Final, Self

from sluicegate_operator.api.labels import PROGRESS
from sluicegate_operator.controllers.decode import DriverPod
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.resource import PODS, Key
from tests.bench.operator.scenario import NAMESPACE, BenchCluster

REPORT_S: Final = 60.0
"""How often a driver reports progress, with the default progress deadline."""


class Drivers:
    """Starts each pod of some jobs at once and ends it once it is deleted, in an `async with` block.

    Attributes:
        up: the attempt of each job's driver that runs.
        most_down: the largest number of jobs without such a driver since the last `reset`.
    """

    def __init__(self, cluster: BenchCluster, names: Collection[str]) -> None:
        self._cluster, self._names = cluster, frozenset(names)
        self._requested: set[tuple[str, int, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.up: dict[str, int] = {}
        self.most_down = 0

    async def __aenter__(self) -> Self:
        """Begin with the pods that exist."""
        self._cluster.listeners.append(self._changed)
        for key, entry in list(self._cluster.pods.entries.items()):
            self._changed(key, None, entry.value)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave all pods as they are."""
        self._cluster.listeners.remove(self._changed)
        await asyncio.gather(*self._tasks)

    @property
    def all_up(self) -> bool:
        """Whether a driver of each job runs."""
        return len(self.up) == len(self._names)

    def reset(self) -> None:
        """Count `most_down` from now."""
        self.most_down = 0

    async def report_for(self, seconds: float) -> None:
        """Report progress for each job each minute, evenly distributed."""
        began, names = time.monotonic(), sorted(self._names)
        for number in range(int(len(names) * seconds / REPORT_S)):
            due = began + number * REPORT_S / len(names)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._start(self._report(names[number % len(names)], number))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))

    async def _report(self, name: str, epoch: int) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        report = json.dumps({"epoch": epoch, "at": at})
        path = PODS.path(NAMESPACE, f"{name}-{self.up[name]}-driver")
        await self._cluster.api.patch(path, {"metadata": {"annotations": {PROGRESS: report}}})

    def _changed(self, _key: Key, old: DriverPod | None, new: DriverPod | None) -> None:
        one = new or old
        if one is None or one.job[1] not in self._names:
            return
        name, attempt = one.job[1], one.pod.attempt
        gone = new is None or new.pod.terminating
        if new is not None and new.pod.phase == "Running" and not gone:
            self.up[name] = attempt
        elif self.up.get(name) == attempt:
            del self.up[name]
        self.most_down = max(self.most_down, len(self._names) - len(self.up))
        if new is not None and new.pod.phase == "Pending" and not gone:
            self._set(name, attempt, "Running")
        elif new is not None and new.pod.phase == "Running" and gone:
            self._set(name, attempt, "Succeeded")

    def _set(self, name: str, attempt: int, phase: str) -> None:
        if (name, attempt, phase) not in self._requested:
            self._requested.add((name, attempt, phase))
            self._start(self._set_phase(name, attempt, phase))

    async def _set_phase(self, name: str, attempt: int, phase: str) -> None:
        try:
            await self._cluster.set_driver_phase(name, attempt, phase)
        except ApiError as error:
            if not error.missing:  # it was deleted before it started
                raise

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(
            lambda ended: self._tasks.discard(ended) if _succeeded(ended) else None
        )


def _succeeded(task: asyncio.Task[None]) -> bool:
    """Return whether a task has no error; one that has is raised at the end of the block."""
    return not task.cancelled() and task.exception() is None
