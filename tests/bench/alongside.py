"""Runs something in a thread while a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def alongside(work: Callable[[Event], object]) -> Iterator[None]:
    """Run `work` in a thread until the block ends.

    Args:
        work: returns soon after the event is set, which is at the end of the block.
    """
    ended = Event()
    thread = Thread(target=work, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
