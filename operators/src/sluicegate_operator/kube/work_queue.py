"""A rate-limited work queue with the semantics of client-go's.

A key that is added several times is processed once. Only one worker at a time processes a key. A key that
is added while it is processed is processed again. A key whose processing fails is retried after a delay
that doubles.
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

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_FIRST_DELAY_S, _MAX_DELAY_S = 0.05, 30.0
"""Delay after the first failure, and the longest one."""


@dataclass
class WorkQueue(Generic[K]):
    """A queue of keys and its workers.

    Args:
        name: in metrics and logs.
        work: processes a key; an exception is a failure.
        workers: how many keys are processed at a time.
        expected_errors: failures of the environment, such as of the network; they are logged without
            a traceback.
    """

    name: str
    work: Callable[[K], Awaitable[None]]
    workers: int = 16
    expected_errors: tuple[type[Exception], ...] = ()
    _ready: deque[K] = field(default_factory=deque)
    _waiting: dict[K, float] = field(default_factory=dict)
    """Since when each ready key is ready."""
    _busy: dict[K, float] = field(default_factory=dict)
    """Since when each busy key is processed."""
    _again: set[K] = field(default_factory=set)
    """Keys that were added while they were processed."""
    _delayed: list[tuple[float, int, K]] = field(default_factory=list)
    _due: dict[K, float] = field(default_factory=dict)
    """When each delayed key is due; other entries of `_delayed` are obsolete."""
    _failures: dict[K, int] = field(default_factory=dict)
    _count: int = 0
    _stopped: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _timer: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def depth(self) -> int:
        """Number of keys that are ready and not being processed."""
        return len(self._ready)

    @property
    def oldest_age_s(self) -> float:
        """The longest time, in seconds, for which a key has been ready or processed."""
        now = time.monotonic()
        since = [*self._waiting.values(), *self._busy.values()]
        return now - min(since) if since else 0.0

    def add(self, key: K) -> None:
        """Process a key as soon as possible."""
        if self._stopped:
            return
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = time.monotonic()
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Process a key after a delay; of several delays the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = time.monotonic() + seconds
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._delayed, (due, self._count, key))
        self._timer.set()

    def forget(self, key: K) -> None:
        """Cancel a delayed key and reset its failures."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Process keys until cancelled. Call `drain` first to complete the keys in progress."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._delay_loop())
            for _ in range(self.workers):
                group.create_task(self._worker())

    async def drain(self, seconds: float) -> None:
        """Accept and start no more keys, and wait for those in progress, at most this long."""
        self._stopped = True
        self._ready.clear()
        self._waiting.clear()
        deadline = time.monotonic() + seconds
        while self._busy and time.monotonic() < deadline:  # noqa: ASYNC110 - only at a shutdown
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
            except Exception as error:  # noqa: BLE001 - it is logged, and the key is retried
                self._failed(key, error)
            finally:
                del self._busy[key]
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _failed(self, key: K, error: Exception) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(failures, 20))
        delay *= 0.5 + random.random()  # noqa: S311 - jitter
        log.warning(
            "%s %s: %s: %s; retry in %.2f s",
            self.name,
            key,
            type(error).__name__,
            error,
            delay,
            exc_info=not isinstance(error, self.expected_errors),
        )
        self.add_after(key, delay)

    async def _delay_loop(self) -> None:
        """Move delayed keys to the ready ones when they are due."""
        while True:
            self._timer.clear()
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                due, _, key = heapq.heappop(self._delayed)
                if self._due.get(key) == due:
                    del self._due[key]
                    self.add(key)
            pause = self._delayed[0][0] - time.monotonic() if self._delayed else 3600.0
            try:
                async with asyncio.timeout(max(0.0, pause)):
                    await self._timer.wait()
            except TimeoutError:
                continue
