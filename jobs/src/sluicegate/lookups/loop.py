"""What a Python worker process keeps between tasks: one event loop in a thread, and the askers on it.

A Spark worker process runs one task at a time, so what an asker allows at once is what a task may
have in flight. Nothing here outlives the process, and nothing depends on being closed. Called by
`batches`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from sluicegate.lookups.asking import Asker

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread of its own."""

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


class Kept:
    """The loop of a process, and an asker for each lookup that it has been asked to do."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.pid = os.getpid()
        self._askers: dict[str, Asker] = {}

    def asker(self, identity: str, make: Callable[[], Asker]) -> Asker:
        """Return the asker of a lookup, made at its first task here."""
        if identity not in self._askers:
            self._askers[identity] = make()
        return self._askers[identity]

    def close(self) -> None:
        """Close the clients and the loop; only tests do, a worker process is simply ended."""
        for asker in self._askers.values():
            self.loop.submit(asker.close()).result()
        self.loop.close()


_kept: Kept | None = None


def kept() -> Kept:
    """Return what this process keeps; a forked child starts anew, as a thread is not forked."""
    global _kept  # noqa: PLW0603 - one a process is the point
    if _kept is None or _kept.pid != os.getpid():
        _kept = Kept()
    return _kept
