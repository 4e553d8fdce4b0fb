"""The work queue: each key once, one worker per key, and delays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sluicegate_operator.kube.work_queue import WorkQueue


def process(
    feed: Callable[[WorkQueue[str]], None], work: Callable[[str], Awaitable[None]] | None = None
) -> list[str]:
    """Return the keys that a queue has processed after 0.2 s, in order."""
    done: list[str] = []

    async def record(key: str) -> None:
        done.append(key)
        if work is not None:
            await work(key)

    async def run() -> None:
        queue: WorkQueue[str] = WorkQueue("test", record)
        running = asyncio.create_task(queue.run())
        feed(queue)
        await asyncio.sleep(0.2)
        await queue.drain(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert queue.depth == 0

    asyncio.run(run())
    return done


def test_a_key_that_is_added_twice_is_processed_once() -> None:
    def feed(queue: WorkQueue[str]) -> None:
        for key in "aba":
            queue.add(key)

    assert process(feed) == ["a", "b"]


def test_a_key_that_is_added_while_it_is_processed_is_processed_again() -> None:
    queues: list[WorkQueue[str]] = []

    def feed(queue: WorkQueue[str]) -> None:
        queues.append(queue)
        queue.add("a")

    async def work(_key: str) -> None:
        if queues:
            queues.pop().add("a")

    assert process(feed, work) == ["a", "a"]


def test_a_key_whose_processing_fails_is_retried() -> None:
    failures = iter([True])

    async def work(_key: str) -> None:
        if next(failures, False):
            raise OSError

    assert process(lambda queue: queue.add("a"), work) == ["a", "a"]


def test_of_several_delays_the_earliest_counts() -> None:
    def feed(queue: WorkQueue[str]) -> None:
        queue.add_after("later", 60.0)
        for seconds in (60.0, 0.05, 30.0):
            queue.add_after("sooner", seconds)
        queue.add("now")

    assert process(feed) == ["now", "sooner"]


def test_a_forgotten_key_is_not_processed_after_its_delay() -> None:
    def feed(queue: WorkQueue[str]) -> None:
        queue.add_after("a", 0.01)
        queue.forget("a")

    assert process(feed) == []


def test_a_drained_queue_starts_no_more_keys() -> None:
    done: list[str] = []

    async def work(key: str) -> None:
        done.append(key)
        await asyncio.sleep(0.05)

    async def run() -> None:
        queue: WorkQueue[str] = WorkQueue("test", work, workers=1)
        running = asyncio.create_task(queue.run())
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(0.01)
        await queue.drain(1.0)
        queue.add("c")
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert done == ["a"]
