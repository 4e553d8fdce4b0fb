"""Clocks that move when a test says so, and an event loop that skips the time for which it would wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class _SkippingSelector(selectors.DefaultSelector):
    """Moves a clock instead of waiting. Only for loops without sockets, processes and threads."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits for something that will never happen")
        self.clock.now += max(0.0, timeout)
        return super().select(0)


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        super().__init__(_SkippingSelector(clock))

    def time(self) -> float:
        return self.clock.now


def run_in_skipped_time(clock: Clock, scene: Coroutine[Any, Any, T]) -> T:
    """Run a scene whose pauses take no time; the clock moves by them."""
    with asyncio.Runner(loop_factory=lambda: _SkippingLoop(clock)) as runner:
        return runner.run(scene)
