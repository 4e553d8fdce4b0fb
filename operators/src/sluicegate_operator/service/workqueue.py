"""Keys that are to be looked at: each once, by one worker at a time, some of them later.

The semantics of client-go's rate-limited work queue: a key that is added while it is worked on is
worked on again; a key that fails comes back after a delay that doubles. Not here: the work. Called
by `service.jobs` and `service.stored`.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate.protocol.errors import SluicegateError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_FIRST_S, _LONGEST_S = 0.05, 30.0
"""Delay after a first failure, and the longest."""


@dataclass
class WorkQueue(Generic[K]):
    """Keys to work on.

    Args:
        name: in metrics and logs.
        work: called with a key; an exception is a failure.
        workers: how many keys are worked on at a time.
    """

    name: str
    work: Callable[[K], Awaitable[None]]
    workers: int = 16
    _ready: deque[K] = field(default_factory=deque)
    _waiting: dict[K, float] = field(default_factory=dict)
    """Keys that are ready, by when they became it."""
    _busy: dict[K, float] = field(default_factory=dict)
    _again: set[K] = field(default_factory=set)
    _later: list[tuple[float, int, K]] = field(default_factory=list)
    _due: dict[K, float] = field(default_factory=dict)
    _failures: dict[K, int] = field(default_factory=dict)
    _count: int = 0
    _stopped: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _timer: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def depth(self) -> int:
        """Keys that are ready and not being worked on."""
        return len(self._ready)

    @property
    def oldest_s(self) -> float:
        """Seconds for which a key has been ready, or worked on, at the longest."""
        now = time.monotonic()
        since = [*self._waiting.values(), *self._busy.values()]
        return now - min(since) if since else 0.0

    def add(self, key: K) -> None:
        """Have a key worked on as soon as possible."""
        if self._stopped:
            return
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = time.monotonic()
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have a key worked on later; of several times the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = time.monotonic() + seconds
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._later, (due, self._count, key))
        self._timer.set()

    def forget(self, key: K) -> None:
        """Let go of a key that is gone: it is not looked at later."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled; a key that is being worked on is finished by `drain`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._timekeeper())
            for _ in range(self.workers):
                group.create_task(self._worker())

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, and wait for what was begun."""
        self._stopped = True
        self._ready.clear()
        self._waiting.clear()
        deadline = time.monotonic() + seconds
        while self._busy and time.monotonic() < deadline:  # noqa: ASYNC110 - at a shutdown only
            await asyncio.sleep(0.02)

    async def _worker(self) -> None:
        while True:
            while not self._ready:
                self._wake.clear()
                await self._wake.wait()
            key = self._ready.popleft()
            self._busy[key] = time.monotonic()
            del self._waiting[key]
            try:
                await self.work(key)
                self._failures.pop(key, None)
            except Exception as error:  # noqa: BLE001 - it is logged, and the key comes back
                self._failed(key, error)
            finally:
                del self._busy[key]
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _failed(self, key: K, error: Exception) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        pause = min(_LONGEST_S, _FIRST_S * 2.0 ** min(failures, 20)) * (0.5 + random.random())  # noqa: S311 - a pause
        log.warning(
            "%s %s: %s: %s; again in %.2f s",
            self.name, key, type(error).__name__, error, pause,
            exc_info=not (isinstance(error, SluicegateError) or getattr(error, "expected", False)),
        )  # fmt: skip
        self.add_after(key, pause)

    async def _timekeeper(self) -> None:
        """Move keys from later to ready when their time has come."""
        while True:
            self._timer.clear()
            while self._later and self._later[0][0] <= time.monotonic():
                due, _, key = heapq.heappop(self._later)
                if self._due.get(key) == due:
                    del self._due[key]
                    self.add(key)
            pause = self._later[0][0] - time.monotonic() if self._later else 3600.0
            try:
                async with asyncio.timeout(max(0.0, pause)):
                    await self._timer.wait()
            except TimeoutError:
                continue
