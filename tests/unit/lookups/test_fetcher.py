"""`KeyFetcher`: requests, concurrency, retries, timeouts and cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import AccessDenied, LookupUnanswered, SchemaMismatch
from sluicegate.lookups.client import AskEach, Key, LookupClient
from sluicegate.lookups.fetcher import KeyFetcher, NoAnswer, jittered_backoff_s
from sluicegate.lookups.settings import Cache, LookupSettings, OnTimeout
from tests.unit.lookups.recording_stores import Store

CITIES: dict[Key, str] = {i: f"city {i}" for i in range(10)}

UNAVAILABLE = ConnectionError("refused")

SETTINGS = LookupSettings("city", timeout_s=30.0)


class Sleeps:
    """Does not wait, and records the requested seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def fetcher(
    store: LookupClient, settings: LookupSettings = SETTINGS, **more: Callable[..., Any]
) -> KeyFetcher:
    arguments: dict[str, Any] = {"sleep": Sleeps(), **more}
    return KeyFetcher(store, settings, **arguments)


def test_a_repeated_key_is_requested_once() -> None:
    async def work() -> None:
        store = Store(CITIES)
        assert await fetcher(store).fetch([1, 2, 1, 1, 2]) == {1: "city 1", 2: "city 2"}
        assert store.requests == [[1, 2]]

    run(work())


def test_keys_are_split_into_requests_of_the_clients_size() -> None:
    async def work() -> None:
        store = Store(CITIES, keys_per_request=4)
        await fetcher(store).fetch(range(10))
        assert store.requests == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    run(work())


def test_without_keys_no_request_is_made() -> None:
    async def work() -> None:
        store = Store(CITIES)
        assert await fetcher(store).fetch([]) == {}
        assert store.requests == []

    run(work())


@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_at_most_capacity_requests_are_in_flight(capacity: int) -> None:
    """All callers share the capacity, and it is used fully."""

    async def work() -> None:
        store = Store(keys_per_request=1)
        f = fetcher(store, replace(SETTINGS, capacity=capacity))
        await asyncio.gather(f.fetch(range(20)), f.fetch(range(100, 120)))
        assert len(store.requests) == 40
        assert store.max_in_flight == min(capacity, 40)

    run(work())


def test_a_missing_key_is_none() -> None:
    async def work() -> None:
        assert await fetcher(Store(CITIES)).fetch([1, 77]) == {1: "city 1", 77: None}

    run(work())


def test_an_unavailable_store_is_retried_after_a_backoff() -> None:
    async def work() -> None:
        store, sleeps = Store(CITIES, failures=[UNAVAILABLE, TimeoutError()]), Sleeps()
        assert await fetcher(store, sleep=sleeps).fetch([1]) == {1: "city 1"}
        assert len(store.requests) == 3
        assert len(sleeps.seconds) == 2

    run(work())


def test_the_backoff_is_exponential_capped_and_has_full_jitter() -> None:
    limits = [jittered_backoff_s(n, rng=lambda: 1.0) for n in range(1, 9)]
    assert limits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert jittered_backoff_s(5, rng=lambda: 0.0) == 0.0


def test_without_an_answer_in_any_attempt_the_epoch_fails() -> None:
    """The error is retryable and states the number of attempts and their timeout."""

    async def work() -> None:
        store = Store(CITIES, failures=[UNAVAILABLE] * 3)
        with pytest.raises(
            LookupUnanswered, match=r"3 attempts of 30 s.*refused.*first: 1"
        ) as raised:
            await fetcher(store).fetch([1])
        assert raised.value.retryable
        assert len(store.requests) == 3

    run(work())


@pytest.mark.parametrize("on_timeout", ["null", "dead-letter"])
def test_unanswered_keys_do_not_affect_other_requests(on_timeout: OnTimeout) -> None:
    async def work() -> None:
        store = Store(CITIES, blocked={3})
        settings = replace(SETTINGS, on_timeout=on_timeout, retries=0, timeout_s=0.05)
        answers = await fetcher(store, settings).fetch([1, 2, 3, 4, 5, 6])
        assert isinstance(answers[3], NoAnswer)
        assert isinstance(answers[4], NoAnswer)  # of the same request
        assert "unanswered after 1 attempts of 0.05 s (no answer in time)" in answers[3].reason
        assert [answers[i] for i in (1, 2, 5, 6)] == [CITIES[i] for i in (1, 2, 5, 6)]

    run(work())


def test_a_request_that_times_out_is_cancelled_and_retried() -> None:
    async def work() -> None:
        store = Store(CITIES, blocked={1})

        async def sleep(_seconds: float) -> None:
            store.blocked.clear()

        f = fetcher(store, replace(SETTINGS, timeout_s=0.05), sleep=sleep)
        assert await f.fetch([1]) == {1: "city 1"}
        assert store.in_flight == 0

    run(work())


def test_a_request_in_backoff_does_not_use_capacity() -> None:
    """While one request waits for its retry another one runs, even at capacity 1."""

    async def work() -> None:
        other_requested = asyncio.Event()

        class Watched(Store):
            async def get_many(self, keys: Sequence[Key]) -> Sequence[object]:
                if 2 in keys:
                    other_requested.set()
                return await super().get_many(keys)

        async def sleep(_seconds: float) -> None:
            await other_requested.wait()

        store = Watched(CITIES, failures=[UNAVAILABLE], keys_per_request=1)
        f = fetcher(store, replace(SETTINGS, capacity=1), sleep=sleep)
        assert await f.fetch([1, 2]) == {1: "city 1", 2: "city 2"}

    run(work())


def test_a_permanent_error_is_raised_at_once() -> None:
    async def work() -> None:
        store = Store(CITIES, failures=[AccessDenied("wrong password")])
        with pytest.raises(AccessDenied):
            await fetcher(store, replace(SETTINGS, on_timeout="null")).fetch([1])
        assert len(store.requests) == 1

    run(work())


def test_the_first_failure_cancels_the_other_requests() -> None:
    async def work() -> None:
        store = Store(CITIES, failures=[ValueError("broken")], blocked={3})
        with pytest.raises(ValueError, match="broken"):
            await fetcher(store).fetch([1, 2, 3, 4])
        assert store.in_flight == 0

    run(work())


def test_too_few_answers_are_an_error() -> None:
    async def work() -> None:
        class Short(Store):
            async def get_many(self, keys: Sequence[Key]) -> Sequence[object]:
                return (await super().get_many(keys))[:-1]

        with pytest.raises(SchemaMismatch, match="1 answers for 2 keys"):
            await fetcher(Short(CITIES)).fetch([1, 2])

    run(work())


def test_the_first_request_opens_the_client_once() -> None:
    async def work() -> None:
        store = Store(CITIES, keys_per_request=1)
        f = fetcher(store)
        assert store.opened == 0
        await f.fetch(range(5))
        await f.fetch(range(5))
        assert store.opened == 1
        await f.close()
        await f.close()
        assert store.opened == 0

    run(work())


def test_a_failed_open_is_retried() -> None:
    """The next attempt opens the client again."""

    async def work() -> None:
        class FailsToOpen(Store):
            async def open(self) -> None:
                await super().open()
                if self.opened < 3:
                    raise UNAVAILABLE

        store = FailsToOpen(CITIES)
        assert await fetcher(store).fetch([1]) == {1: "city 1"}
        assert store.opened == 3

    run(work())


# --- the cache -------------------------------------------------------------------------------


def test_without_a_cache_every_call_requests() -> None:
    async def work() -> None:
        store = Store(dict(CITIES))
        f = fetcher(store)
        await f.fetch([1])
        store.data[1] = "another"
        assert await f.fetch([1]) == {1: "another"}

    run(work())


def test_the_cache_also_keeps_missing_keys_until_they_expire() -> None:
    async def work() -> None:
        now, store = [0.0], Store({1: "old"})
        f = fetcher(store, replace(SETTINGS, cache=Cache(10, 60.0)), clock=lambda: now[0])
        assert await f.fetch([1, 2]) == {1: "old", 2: None}
        store.data = {1: "new", 2: "new"}
        now[0] = 59.0
        assert await f.fetch([1, 2]) == {1: "old", 2: None}
        assert len(store.requests) == 1
        now[0] = 61.0
        assert await f.fetch([1, 2]) == {1: "new", 2: "new"}

    run(work())


def test_the_cache_evicts_the_least_recently_used_key() -> None:
    async def work() -> None:
        store = Store(CITIES)
        f = fetcher(store, replace(SETTINGS, cache=Cache(2, 60.0)))
        for key in (1, 2, 1, 3):  # 3 evicts 2
            await f.fetch([key])
        store.requests.clear()
        await f.fetch([1])
        assert store.requests == []
        await f.fetch([2])
        assert store.requests == [[2]]

    run(work())


def test_missing_answers_are_not_cached() -> None:
    async def work() -> None:
        store = Store(CITIES, failures=[UNAVAILABLE])
        f = fetcher(store, replace(SETTINGS, cache=Cache(), retries=0, on_timeout="null"))
        assert isinstance((await f.fetch([1]))[1], NoAnswer)
        assert await f.fetch([1]) == {1: "city 1"}

    run(work())


# --- adapters ----------------------------------------------------------------------------------


def test_an_async_function_is_a_client() -> None:
    async def work() -> None:
        async def squared(key: int) -> int:
            await asyncio.sleep(0)
            return key * key

        assert await fetcher(AskEach(squared, "bigint")).fetch([2, 3]) == {2: 4, 3: 9}

    run(work())
