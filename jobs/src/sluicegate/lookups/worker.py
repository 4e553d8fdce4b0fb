"""The state that a Python worker process keeps between tasks: an event loop in a thread, and fetchers.

A Spark worker process runs one task at a time, so a fetcher's concurrency limit is that of a task.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

from sluicegate.lookups.fetcher import KeyFetcher

T = TypeVar("T")


class LoopThread:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="sluicegate-lookups", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class WorkerState:
    """The event loop of a process, and a fetcher for each lookup."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self._fetchers: dict[str, KeyFetcher] = {}

    def fetcher(self, identity: str, create: Callable[[], KeyFetcher]) -> KeyFetcher:
        """Return the fetcher of a lookup, created by its first task in this process."""
        if identity not in self._fetchers:
            self._fetchers[identity] = create()
        return self._fetchers[identity]


def worker_state() -> WorkerState:
    """Return the state of this process; a forked child gets its own, because a fork has no threads."""
    return _state_of(os.getpid())


@cache
def _state_of(_pid: int) -> WorkerState:
    return WorkerState()
