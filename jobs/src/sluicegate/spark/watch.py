"""Ends a driver that hangs: in an epoch, in what Spark does between two epochs, or in the start of a thread.

Where a process can have no more memory, a new thread may fail as it begins, and then Thread.start never
returns (CPython issue 140746). So one thread watches, and no limit needs a thread of its own.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from sluicegate.deployment import termination
from sluicegate.errors import EpochTimeout, OutOfMemory, SluicegateError

log = logging.getLogger("sluicegate.epoch")

_POLL_S = 0.2
_BEGIN_POLLS = 50
"""How often a thread may be found that has not begun; polls, because a process that was stopped has none."""

_DATA = (
    "an undecided epoch runs again, a decided one is applied at the next start; nothing is lost, "
    "unless the delivery is at-most-once, or repeated, unless it is at-least-once"
)


class _Watcher:
    """The thread that watches, and the checks that it makes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._not_begun: dict[threading.Thread, int] = {}  # how often it was found

    def add(self, check: Callable[[], None]) -> None:
        """Make a check until it is removed."""
        with self._lock:
            self._checks.append(check)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
                self._thread.start()

    def remove(self, check: Callable[[], None]) -> None:
        """Make a check no longer."""
        with self._lock:
            self._checks.remove(check)

    def _run(self) -> None:
        while True:
            # what this thread needs next may be there later
            with suppress(MemoryError):
                time.sleep(_POLL_S)
                with self._lock:
                    checks = tuple(self._checks)
                for check in checks:
                    check()
                self._check_threads()

    def _check_threads(self) -> None:
        """End the process if a thread has failed as it began."""
        waiting = [thread for thread in threading.enumerate() if not thread.is_alive()]
        self._not_begun = {thread: self._not_begun.get(thread, 0) + 1 for thread in waiting}
        for thread, polls in self._not_begun.items():
            if polls >= _BEGIN_POLLS:
                _end_process(
                    OutOfMemory(
                        f"the thread {thread.name} has not begun, for lack of memory; the process ends",
                        data=_DATA,
                        do="restart the driver; if this continues, give it more memory",
                    )
                )


_WATCHER = _Watcher()


@contextmanager
def _watched(check: Callable[[], None]) -> Iterator[None]:
    _WATCHER.add(check)
    try:
        yield
    finally:
        _WATCHER.remove(check)


@contextmanager
def deadline(epoch: int, timeout_s: float) -> Iterator[None]:
    """End the process if the block takes longer; a callback of Spark cannot be canceled (rule 18).

    A timeout of 0 is no limit.
    """
    if not timeout_s:
        yield
        return
    end_s = time.monotonic() + timeout_s

    def check() -> None:
        if time.monotonic() >= end_s:
            _end_process(
                EpochTimeout(
                    f"epoch {epoch} took longer than its timeout of {timeout_s:g} s; the process ends",
                    data=_DATA,
                    do="restart the driver; if this continues, raise timeout-s; a lower limit of records "
                    "makes only later epochs smaller",
                )
            )

    with _watched(check):
        yield


class ProgressLimit:
    """How long a query may be neither in an epoch, which has a limit of its own, nor idle.

    Spark plans between two epochs, asks its sources and writes its logs. It waits without limit for an
    answer of Python, which may have no thread for it.

    Args:
        limit_s: the limit in seconds; 0 for none.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s or math.inf
        self._last_s = time.monotonic()
        self._in_epoch = False

    @contextmanager
    def watched(self, is_idle: Callable[[], bool]) -> Iterator[Callable[[], None]]:
        """End the process if the limit is exceeded during the block.

        Args:
            is_idle: returns whether the query waits for input.

        Yields:
            Must be called every few seconds, by a thread that may wait for Spark.
        """

        def note() -> None:
            if self._left_s() < self._limit_s / 2 and is_idle():
                self._last_s = time.monotonic()

        self._last_s = time.monotonic()
        with _watched(self._check):
            yield note

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Run an epoch."""
        self._in_epoch = True
        try:
            yield
        finally:
            self._last_s, self._in_epoch = time.monotonic(), False

    def _left_s(self) -> float:
        return self._last_s + self._limit_s - time.monotonic()

    def _check(self) -> None:
        if not self._in_epoch and self._left_s() <= 0:
            _end_process(
                EpochTimeout(
                    f"Spark began no epoch for {self._limit_s:g} s, although it was not idle; the process "
                    "ends",
                    data=_DATA,
                    do="restart the driver; if this continues, the threads that were printed show what it "
                    "waits for; raise progress-timeout-s if Spark needs longer to plan an epoch",
                )
            )


def _end_process(error: SluicegateError) -> NoReturn:
    try:
        log.critical("%s", error)
        termination.write(error)
        logging.shutdown()
        faulthandler.dump_traceback()
    finally:
        os._exit(error.exit_code)
