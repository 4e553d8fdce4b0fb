"""The priorities of the work queue: which keys go first, and none waits without end."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate_operator.kube.work_queue import BULK_EVERY_S, LOW_S, Priority, WorkQueue
from tests.unit.operator.clocks import Clock
from tests.unit.operator.kube.played_queue import play, process, take_a_second, take_two_seconds


def in_bulk_first(queue: WorkQueue[str]) -> None:
    """Add two keys in bulk, and then another one."""
    for key in "ab":
        queue.add(key, Priority.BULK)
    queue.add("c")


def test_a_key_is_processed_before_those_that_were_added_in_bulk(clock: Clock) -> None:
    assert process(clock, in_bulk_first) == [("c", 0), ("a", 0), ("b", 0)]


def test_keys_added_in_bulk_do_not_starve(clock: Clock) -> None:
    """Each has its place in time, and goes before keys that are added after it."""

    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("busy")
        for key in "abc":
            queue.add(key, Priority.BULK)
        await asyncio.sleep(LOW_S)
        for number in range(4):  # faster than keys are processed
            await asyncio.sleep(0.8 * BULK_EVERY_S)
            queue.add(str(number))
        await asyncio.sleep(100)

    started = "".join(key for key, _ in play(clock, scene, take_two_seconds, workers=1))
    assert started == "busy0a1b2c3"


def test_keys_that_are_added_within_a_second_go_before_a_key_of_low_priority(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("busy")
        queue.add("low", Priority.LOW)
        await asyncio.sleep(0.9 * LOW_S)
        queue.add("a")
        await asyncio.sleep(0.2 * LOW_S)
        queue.add("b")
        await asyncio.sleep(100)

    started = [key for key, _ in play(clock, scene, take_two_seconds, workers=1)]
    assert started == ["busy", "a", "low", "b"]


def test_a_key_of_low_priority_goes_before_those_that_were_added_in_bulk(clock: Clock) -> None:
    """It is a step of an upgrade that is under way, they are jobs that may have to wait for theirs."""

    def feed(queue: WorkQueue[str]) -> None:
        for key in "ab":
            queue.add(key, Priority.BULK)
        queue.add("low", Priority.LOW)

    assert process(clock, feed) == [("low", 0), ("a", 0), ("b", 0)]


def test_keys_added_in_bulk_to_an_empty_queue_do_not_wait_for_the_places_of_former_ones(
    clock: Clock,
) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        for number in range(50):
            queue.add(f"former {number}", Priority.BULK)
        await asyncio.sleep(1)
        queue.add("busy")
        queue.add("a", Priority.BULK)
        await asyncio.sleep(LOW_S + 2 * BULK_EVERY_S)
        queue.add("b")
        await asyncio.sleep(100)

    async def work(key: str) -> None:
        await asyncio.sleep(2 * LOW_S if key == "busy" else 0)

    order = [key for key, _ in play(clock, scene, work, workers=1)]
    assert order.index("a") < order.index("b")


def test_a_key_added_in_bulk_and_then_otherwise_is_moved_forward_and_processed_once(
    clock: Clock,
) -> None:
    def feed(queue: WorkQueue[str]) -> None:
        in_bulk_first(queue)
        queue.add("b")
        assert queue.depth == 3

    assert process(clock, feed) == [("c", 0), ("b", 0), ("a", 0)]


@pytest.mark.parametrize(("also_otherwise", "expected"), [(False, "acba"), (True, "acab")])
def test_a_key_added_in_bulk_while_it_is_processed_waits_unless_it_is_also_added_otherwise(
    clock: Clock,
    also_otherwise: bool,  # noqa: FBT001 - a table
    expected: str,
) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.5)
        queue.add("c")
        queue.add("a", Priority.BULK)
        if also_otherwise:
            queue.add("a")
            queue.add("a", Priority.BULK)
        await asyncio.sleep(0.5 + BULK_EVERY_S / 2)
        queue.add("b")
        await asyncio.sleep(10)

    assert "".join(key for key, _ in play(clock, scene, take_a_second, workers=1)) == expected
