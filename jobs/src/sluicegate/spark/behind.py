"""At most one apply behind the stream: epoch N reaches its sinks while N+1 is staged.

Not here: what an apply is, and that N+1 is decided only when N is in (`protocol.coordinator`).
Called by `driver`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Behind:
    """Runs work in one thread, one at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "sluicegate-apply")
        self._running: Future[int] | None = None
        self._last: int | None = None

    def start(self, work: Callable[[], int]) -> None:
        """Begin work that returns the epoch that it has applied; waits for what runs."""
        self.settled()
        self._running = self._pool.submit(work)

    def settled(self) -> int | None:
        """Wait until nothing runs; return the last epoch that was applied, None if none was.

        Raises:
            SluicegateError: what ended the work, once.
        """
        running, self._running = self._running, None
        if running is not None:
            self._last = running.result()
        return self._last

    def failed(self) -> bool:
        """Return whether the work has ended with an error that nobody was told of."""
        running = self._running
        return running is not None and running.done() and running.exception() is not None

    def close(self) -> None:
        """Let go of the thread once its work has ended."""
        self._pool.shutdown()
