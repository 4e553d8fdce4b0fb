"""Ctrl-C in a job that was started with `python job.py`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def first_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT has arrived; a second SIGINT acts as before.

    Spark's handler cancels all its jobs and raises KeyboardInterrupt inside a call to the JVM, which
    then fails with a Py4JError. A handler that the user installed stays, and outside the main
    thread Python allows no handler.
    """
    previous = signal.getsignal(signal.SIGINT)
    arrived = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        arrived.set()

    ours = threading.current_thread() is threading.main_thread() and _is_default(previous)
    if ours:
        signal.signal(signal.SIGINT, handle)
    try:
        yield arrived.is_set
    finally:
        if ours and signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, previous)


def _is_default(handler: object) -> bool:
    """Return whether a handler is Python's or Spark's."""
    module = getattr(handler, "__module__", None) or ""
    return handler is signal.default_int_handler or module.partition(".")[0] == "pyspark"
