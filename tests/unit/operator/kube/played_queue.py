"""Runs a work queue in skipped time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sluicegate_operator.kube.work_queue import WorkQueue
from tests.unit.operator.clocks import Clock, run_in_skipped_time

Feed = Callable[[WorkQueue[str]], None]
Work = Callable[[str], Awaitable[None]]
Scene = Callable[[WorkQueue[str]], Awaitable[None]]


async def succeed(_key: str) -> None:
    """Process a key."""


async def fail(_key: str) -> None:
    """Fail to process a key."""
    raise OSError


async def take_a_second(_key: str) -> None:
    """Process a key for a second."""
    await asyncio.sleep(1)


async def take_two_seconds(_key: str) -> None:
    """Process a key for two seconds."""
    await asyncio.sleep(2)


def play(
    clock: Clock, scene: Scene, work: Work = succeed, workers: int = 16
) -> list[tuple[str, float]]:
    """Run a scene with a queue; return the keys that it began to process, and after how many seconds."""
    began, started = clock.now, list[tuple[str, float]]()

    async def record(key: str) -> None:
        started.append((key, round(clock.now - began, 3)))
        await work(key)

    async def run() -> None:
        queue: WorkQueue[str] = WorkQueue("test", record, workers)
        running = asyncio.create_task(queue.run())
        await scene(queue)
        assert not running.done()  # all workers are alive
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_in_skipped_time(clock, run())
    return started


def process(
    clock: Clock, feed: Feed, work: Work = succeed, seconds: float = 100
) -> list[tuple[str, float]]:
    """Return the keys that a queue begins to process within so many seconds, and when."""

    async def scene(queue: WorkQueue[str]) -> None:
        feed(queue)
        await asyncio.sleep(seconds)

    return play(clock, scene, work)
