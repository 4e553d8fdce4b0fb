"""The work queue: each key once, one worker per key, delays, retries and the shutdown.

These are the cases of client-go's own tests of its work queue (`util/workqueue`), where they apply:

| client-go | here |
|---|---|
| Len, Collapse | `test_a_key_that_is_added_twice_is_processed_once` |
| Reinsert, AddWhileProcessing | `test_a_key_that_is_added_while_it_is_processed_is_processed_again` |
| CollapseWhileProcessing | `test_a_key_added_twice_while_it_is_processed_is_processed_once_more` |
| Basic | `test_no_key_is_processed_twice_at_a_time_and_each_after_its_last_addition` |
| SimpleQueue | `test_a_delayed_key_is_processed_once_and_not_early` |
| Deduping | `test_of_several_delays_the_earliest_counts` |
| AddTwoFireEarly, CopyShifting | `test_delayed_keys_are_processed_in_the_order_of_their_times` |
| RateLimitingQueue, ItemExponentialFailure | `test_delays_of_retries_double_and_keys_fail_independently` |
| ItemExponentialFailure...OverFlow | `test_the_longest_delay_is_kept_however_often_a_key_fails` |
| Forget | `test_a_key_that_succeeds_or_is_forgotten_starts_again_with_the_first_delay` |
| QueueDrainageUsingShutDownWithDrain | `test_a_drain_waits_for_keys_in_progress` |
| ForceQueueShutdownUsingShutDown | `test_a_drain_ends_at_its_deadline` |
| NoQueueDrainageUsingShutDown | `test_a_queue_that_is_cancelled_does_not_wait_for_keys_in_progress` |
| QueueDrainage...WithDirtyItem | `test_a_drained_queue_starts_no_more_keys`; unlike there, also no dirty one |
| GarbageCollection | `test_nothing_is_remembered_of_a_key_that_was_processed` |
| Metrics | `test_depth_and_ages_are_those_of_the_keys_in_the_queue` |

A drain drops a key that was added while it was processed (dirty), because the next leader reconciles
every resource. Not applicable: the limiters ItemFastSlow, MaxOf and WithMaxWait (there is one limiter),
Touch (`add` moves a key), ParallelizeUntil, and MetricShutdown (no thread updates the metrics).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

from sluicegate_operator.kube import work_queue
from sluicegate_operator.kube.work_queue import WorkQueue
from tests.unit.operator.clocks import Clock
from tests.unit.operator.kube.played_queue import (
    fail,
    play,
    process,
    take_a_second,
)


def delays(started: list[tuple[str, float]], key: str) -> list[float]:
    """Return the times between the attempts to process a key."""
    times = [at for one, at in started if one == key]
    return [round(later - sooner, 3) for sooner, later in pairwise(times)]


def test_a_key_that_is_added_twice_is_processed_once(clock: Clock) -> None:
    def feed(queue: WorkQueue[str]) -> None:
        for key in "aba":
            queue.add(key)
        assert queue.depth == 2

    assert process(clock, feed) == [("a", 0), ("b", 0)]


def test_other_tasks_run_between_keys_that_wait_for_nothing(clock: Clock) -> None:
    """A reconciliation that changes nothing waits for nothing: a lease must be renewed meanwhile."""
    keys = [str(number) for number in range(100)]
    processed, seen = list[str](), set[int]()

    async def scene(queue: WorkQueue[str]) -> None:
        for key in keys:
            queue.add(key)
        while len(processed) < len(keys):
            seen.add(len(processed))
            await asyncio.sleep(0)

    async def note(key: str) -> None:
        processed.append(key)

    play(clock, scene, note, workers=1)
    assert len(seen) >= len(keys)


def test_a_key_that_is_added_while_it_is_processed_is_processed_again(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.5)
        queue.add("a")
        await asyncio.sleep(10)

    assert play(clock, scene, take_a_second) == [("a", 0), ("a", 1)]


def test_a_key_added_twice_while_it_is_processed_is_processed_once_more(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.5)
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(10)

    assert play(clock, scene, take_a_second) == [("a", 0), ("a", 1)]


def test_no_key_is_processed_twice_at_a_time_and_each_after_its_last_addition(clock: Clock) -> None:
    keys, chance = [f"k{number}" for number in range(50)], random.Random(7)
    added: dict[str, float] = {}
    busy: Counter[str] = Counter()

    async def work(key: str) -> None:
        busy[key] += 1
        assert busy[key] == 1
        await asyncio.sleep(0.003)
        busy[key] -= 1

    async def scene(queue: WorkQueue[str]) -> None:
        for _ in range(2500):
            key = chance.choice(keys)
            added[key] = clock.now - 1000
            queue.add(key)
            await asyncio.sleep(0.0005)
        await asyncio.sleep(1)
        assert not queue.errors
        assert queue.depth == 0

    last = dict(play(clock, scene, work, workers=10))
    assert last.keys() == set(keys)
    assert all(round(added[key], 3) <= last[key] for key in keys)


def test_a_delayed_key_is_processed_once_and_not_early(clock: Clock) -> None:
    assert process(clock, lambda queue: queue.add_after("a", 0.05)) == [("a", 0.05)]


def test_of_several_delays_the_earliest_counts(clock: Clock) -> None:
    def feed(queue: WorkQueue[str]) -> None:
        for seconds in (60.0, 0.05, 30.0):
            queue.add_after("a", seconds)

    assert process(clock, feed) == [("a", 0.05)]


def test_delayed_keys_are_processed_in_the_order_of_their_times(clock: Clock) -> None:
    def feed(queue: WorkQueue[str]) -> None:
        for key, seconds in (("c", 2.0), ("b", 0.5), ("a", 0.25), ("now", 0.0)):
            queue.add_after(key, seconds)

    assert process(clock, feed) == [("now", 0), ("a", 0.25), ("b", 0.5), ("c", 2)]


def test_delays_of_retries_double_and_keys_fail_independently(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("b")
        await asyncio.sleep(1)

    started = play(clock, scene, fail)
    assert delays(started, "a") == [0.1, 0.2, 0.4, 0.8]
    assert delays(started, "b") == [0.1, 0.2, 0.4]


def test_the_longest_delay_is_kept_however_often_a_key_fails(clock: Clock) -> None:
    started = process(clock, lambda queue: queue.add("a"), fail, seconds=60_000)
    assert len(started) > 2000
    assert set(delays(started, "a")[9:]) == {30.0}


def test_jitter_shortens_a_delay_by_up_to_half(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that failed together, as when the API server was away, must not come back together."""
    monkeypatch.setattr(work_queue, "random", SimpleNamespace(random=lambda: 0.0))
    started = process(clock, lambda queue: queue.add("a"), fail, seconds=200)
    assert delays(started, "a")[0] == 0.05
    assert delays(started, "a")[-1] == 15


def test_a_key_that_succeeds_or_is_forgotten_starts_again_with_the_first_delay(
    clock: Clock,
) -> None:
    outcomes = iter([OSError(), OSError(), None, OSError()])

    async def work(_key: str) -> None:
        error = next(outcomes, None)
        if error is not None:
            raise error

    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("succeeds")
        await asyncio.sleep(10)
        queue.add("succeeds")
        await asyncio.sleep(10)

    assert delays(play(clock, scene, work), "succeeds") == [0.1, 0.2, 9.7, 0.1]

    async def forget(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.2)  # two attempts; the third is due at 0.3 s
        queue.forget("a")
        await asyncio.sleep(0.8)
        queue.add("a")
        await asyncio.sleep(0.15)

    assert delays(play(clock, forget, fail), "a") == [0.1, 0.9, 0.1]


def test_a_forgotten_key_is_not_processed_after_its_delay(clock: Clock) -> None:
    def feed(queue: WorkQueue[str]) -> None:
        queue.add_after("a", 0.01)
        queue.forget("a")

    assert process(clock, feed) == []


def test_a_worker_survives_a_key_that_waited_for_something_cancelled(clock: Clock) -> None:
    """A cancelled task or future raises CancelledError in the one that waits for it; that is no shutdown."""
    outcomes = iter([True])

    async def work(_key: str) -> None:
        if next(outcomes, False):
            waited = asyncio.get_running_loop().create_future()
            waited.cancel()
            await waited

    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(1)
        assert queue.errors == {"CancelledError": 1}

    assert play(clock, scene, work, workers=1) == [("a", 0), ("a", 0.1)]


def test_a_drain_waits_for_keys_in_progress(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.25)
        began = clock.now
        await queue.drain(20.0)
        assert clock.now - began == pytest.approx(0.75, abs=0.05)

    assert play(clock, scene, take_a_second) == [("a", 0)]


def test_a_drain_ends_at_its_deadline(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.25)
        began = clock.now
        await queue.drain(0.5)
        assert clock.now - began == pytest.approx(0.5, abs=0.05)

    play(clock, scene, take_a_second)


def test_a_queue_that_is_cancelled_does_not_wait_for_keys_in_progress(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.25)

    play(clock, scene, take_a_second)
    assert clock.now == pytest.approx(1000.25)


def test_a_drained_queue_starts_no_more_keys(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("in progress")
        queue.add("ready")
        queue.add_after("delayed", 1.5)
        await asyncio.sleep(0.25)
        queue.add("in progress")
        await queue.drain(20.0)
        queue.add("later")
        queue.add_after("delayed later", 0.5)
        assert not queue._delayed
        await asyncio.sleep(10)

    assert play(clock, scene, take_a_second, workers=1) == [("in progress", 0)]


def test_nothing_is_remembered_of_a_key_that_was_processed(clock: Clock) -> None:
    outcomes = iter([OSError()])

    async def work(_key: str) -> None:
        error = next(outcomes, None)
        if error is not None:
            raise error

    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(10)
        kept = (queue._waiting, queue._busy, queue._again, queue._delayed, queue._failures)
        assert not any(kept)

    assert len(play(clock, scene, work)) == 3


def test_depth_and_ages_are_those_of_the_keys_in_the_queue(clock: Clock) -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(1.5)  # a is done, b is in progress, c is ready
        assert queue.depth == 1
        assert (queue.busy_age_s, queue.oldest_age_s) == pytest.approx((0.5, 1.5))
        await asyncio.sleep(10)
        assert (queue.depth, queue.busy_age_s, queue.oldest_age_s) == (0, 0, 0)

    play(clock, scene, take_a_second, workers=1)
