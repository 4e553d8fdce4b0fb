"""A rate-limited work queue with the semantics of client-go's.

A key that is added several times is processed once. Only one worker at a time processes a key. A key that
is added while it is processed is processed again. A key whose processing fails is retried after a delay
that doubles.

Keys of a lower priority, such as all jobs of a fleet whose image changes, let those that are added later go
first, as in controller-runtime's priority queue. Unlike there no key starves: each has its place in time, as
in fair queueing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Generic, NamedTuple, TypeVar

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_FIRST_DELAY_S, _MAX_DELAY_S = 0.1, 30.0
"""Delay after the first failure, and the longest one; jitter shortens each by up to half."""

BULK_EVERY_S = 0.05
"""How much earlier than the next one a key that was added in bulk goes before keys that are added later."""

LOW_S = 1.0
"""Keys that are added within this time go before a key of low priority, and before those in bulk."""


class Priority(IntEnum):
    """Which keys that are added later go before a key; the smallest counts if it is added several times."""

    NORMAL = 0
    """None."""
    LOW = 1
    """Those that are added within `LOW_S`."""
    BULK = 2
    """Those that are added before its place, which is `BULK_EVERY_S` after that of the last such key."""


class _Ready(NamedTuple, Generic[K]):
    """A ready key; workers take the smallest, so the number ends ties in the order of the additions."""

    place_s: float
    number: int
    key: K
    since_s: float


@dataclass
class WorkQueue(Generic[K]):
    """A queue of keys and its workers.

    Args:
        work: processes a key; an exception is a failure.
        workers: how many keys are processed at a time.
        expected_errors: failures of the environment, such as of the network; they are logged without
            a traceback.
    """

    name: str
    work: Callable[[K], Awaitable[None]]
    workers: int = 16
    expected_errors: tuple[type[Exception], ...] = ()
    _ready: asyncio.PriorityQueue[_Ready[K]] = field(default_factory=asyncio.PriorityQueue)
    _waiting: dict[K, _Ready[K]] = field(default_factory=dict)
    """The valid entry of each ready key: one that was moved forward has another in the queue."""
    _numbers: Iterator[int] = field(default_factory=count)
    _bulk_s: float = 0.0
    """The place of the last ready key that was added in bulk."""
    _busy: dict[K, float] = field(default_factory=dict)
    """Since when each busy key is processed."""
    _again: dict[K, Priority] = field(default_factory=dict)
    """Keys that were added while they were processed."""
    _delayed: dict[K, asyncio.TimerHandle] = field(default_factory=dict)
    _failures: dict[K, int] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    """How often processing failed since the start, by the class of the error."""
    _stopped: bool = False

    @property
    def depth(self) -> int:
        """Number of keys that are ready and not being processed."""
        return len(self._waiting)

    @property
    def oldest_age_s(self) -> float:
        """The longest time, in seconds, for which a key has been ready or processed."""
        now = time.monotonic()
        # copied at once: metrics are read in another thread, while the queue changes
        waiting = [*self._waiting.values()]
        since = [*(ready.since_s for ready in waiting), *self._busy.values()]
        return now - min(since) if since else 0.0

    @property
    def busy_age_s(self) -> float:
        """The longest time, in seconds, for which a key has been processed."""
        return time.monotonic() - min([*self._busy.values()]) if self._busy else 0.0

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Process a key as soon as its priority allows."""
        if self._stopped:
            return
        if key in self._busy:
            self._again[key] = min(priority, self._again.get(key, priority))
            return
        now, known = time.monotonic(), self._waiting.get(key)
        place_s = self._place_s(now, priority)
        if known is None or place_s < known.place_s:
            if priority is Priority.BULK:
                self._bulk_s = place_s
            since_s = now if known is None else known.since_s
            self._waiting[key] = _Ready(place_s, next(self._numbers), key, since_s)
            self._ready.put_nowait(self._waiting[key])

    def _place_s(self, now: float, priority: Priority) -> float:
        match priority:
            case Priority.NORMAL:
                return now
            case Priority.LOW:
                return now + LOW_S
            case Priority.BULK:
                return max(now + LOW_S, self._bulk_s) + BULK_EVERY_S

    def add_after(self, key: K, seconds: float) -> None:
        """Process a key after a delay; of several delays the earliest counts."""
        if self._stopped:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        known = self._delayed.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._delayed[key] = loop.call_later(seconds, self._add_delayed, key)

    def forget(self, key: K) -> None:
        """Cancel a delayed key and reset its failures."""
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed.cancel()
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Process keys until cancelled. Call `drain` first to complete the keys in progress."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.workers):
                group.create_task(self._worker())

    async def drain(self, seconds: float) -> None:
        """Accept and start no more keys, and wait for those in progress, at most this long."""
        self._stopped = True
        for delayed in self._delayed.values():
            delayed.cancel()
        self._delayed.clear()
        while not self._ready.empty():
            self._ready.get_nowait()
        self._waiting.clear()
        deadline = time.monotonic() + seconds
        while self._busy and time.monotonic() < deadline:  # noqa: ASYNC110 - only at a shutdown
            await asyncio.sleep(0.02)

    async def _worker(self) -> None:
        while True:
            ready = await self._ready.get()
            key = ready.key
            if self._waiting.get(key) is not ready:
                continue  # it was moved forward, and was processed then
            self._busy[key] = time.monotonic()
            del self._waiting[key]
            if not self._waiting:
                self._bulk_s = 0.0
            try:
                await self.work(key)
                self._failures.pop(key, None)
            except asyncio.CancelledError as error:
                if self._being_cancelled():
                    raise
                self._failed(key, error)  # it waited for a task that was cancelled
            except Exception as error:  # noqa: BLE001 - it is logged, and the key is retried
                self._failed(key, error)
            finally:
                del self._busy[key]
                if key in self._again:
                    self.add(key, self._again.pop(key))
            # Work that finds nothing to do waits for nothing: without this, the keys of a fleet would be
            # processed in one go, and the Lease would expire meanwhile.
            await asyncio.sleep(0)

    def _add_delayed(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)

    def _being_cancelled(self) -> bool:
        worker = asyncio.current_task()
        return worker is not None and worker.cancelling() > 0

    def _failed(self, key: K, error: BaseException) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        self.errors[type(error).__name__] += 1
        delay = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(failures - 1, 20))
        delay *= (1 + random.random()) / 2  # noqa: S311 - jitter
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
