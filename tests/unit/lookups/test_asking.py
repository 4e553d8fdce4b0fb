"""How a store is asked: once a key, so many keys at a time, so often, for so long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.lookups.asking import Asker, NoAnswer, pause_s
from sluicegate.lookups.client import AskEach, Key, LookupClient
from sluicegate.lookups.settings import Cache, LookupSettings, OnTimeout
from sluicegate.protocol.errors import AccessDenied, LookupUnanswered, SchemaMismatch
from tests.unit.lookups.stores import Store

CITIES: dict[Key, str] = {i: f"city {i}" for i in range(10)}

AWAY = ConnectionError("refused")

SETTINGS = LookupSettings("city", timeout_s=30.0)


class Pauses:
    """Waits for nothing, and remembers for how long it was asked to."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def asker(
    store: LookupClient, settings: LookupSettings = SETTINGS, **more: Callable[..., Any]
) -> Asker:
    given: dict[str, Any] = {"pause": Pauses(), **more}
    return Asker(store, settings, **given)


def test_a_key_is_asked_for_once_however_often_it_is_wanted() -> None:
    async def work() -> None:
        store = Store(CITIES)
        assert await asker(store).ask([1, 2, 1, 1, 2]) == {1: "city 1", 2: "city 2"}
        assert store.requests == [[1, 2]]

    run(work())


def test_keys_travel_in_requests_of_the_clients_size() -> None:
    async def work() -> None:
        store = Store(CITIES, keys_per_request=4)
        await asker(store).ask(range(10))
        assert store.requests == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    run(work())


def test_nothing_is_asked_for_no_key() -> None:
    async def work() -> None:
        store = Store(CITIES)
        assert await asker(store).ask([]) == {}
        assert store.requests == []

    run(work())


@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_no_more_requests_than_the_capacity_are_in_flight(capacity: int) -> None:
    """Over all callers together, and the capacity is used."""

    async def work() -> None:
        store = Store(keys_per_request=1)
        one = asker(store, replace(SETTINGS, capacity=capacity))
        await asyncio.gather(one.ask(range(20)), one.ask(range(100, 120)))
        assert len(store.requests) == 40
        assert store.most_in_flight == min(capacity, 40)

    run(work())


def test_a_key_that_is_not_there_is_none() -> None:
    async def work() -> None:
        assert await asker(Store(CITIES)).ask([1, 77]) == {1: "city 1", 77: None}

    run(work())


def test_a_store_that_is_away_is_asked_again_after_growing_pauses() -> None:
    async def work() -> None:
        store, pauses = Store(CITIES, failures=[AWAY, TimeoutError()]), Pauses()
        assert await asker(store, pause=pauses).ask([1]) == {1: "city 1"}
        assert len(store.requests) == 3
        assert len(pauses.asked) == 2

    run(work())


def test_pauses_grow_are_capped_and_have_full_jitter() -> None:
    longest = [pause_s(n, chance=lambda: 1.0) for n in range(1, 9)]
    assert longest == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert pause_s(5, chance=lambda: 0.0) == 0.0


def test_without_an_answer_in_any_try_the_epoch_fails() -> None:
    """The error may be mended by a restart, and says how often and how long was tried."""

    async def work() -> None:
        store = Store(CITIES, failures=[AWAY] * 3)
        with pytest.raises(LookupUnanswered, match=r"3 tries of 30 s.*refused.*first: 1") as raised:
            await asker(store).ask([1])
        assert raised.value.restartable
        assert len(store.requests) == 3

    run(work())


@pytest.mark.parametrize("on_timeout", ["null", "dead-letter"])
def test_without_an_answer_the_others_are_answered_all_the_same(on_timeout: OnTimeout) -> None:
    async def work() -> None:
        store = Store(CITIES, closed={3})
        settings = replace(SETTINGS, on_timeout=on_timeout, retries=0, timeout_s=0.05)
        answers = await asker(store, settings).ask([1, 2, 3, 4, 5, 6])
        assert isinstance(answers[3], NoAnswer)
        assert isinstance(answers[4], NoAnswer)  # of the same request
        assert "unanswered after 1 tries of 0.05 s (no answer in time)" in answers[3].reason
        assert [answers[i] for i in (1, 2, 5, 6)] == [CITIES[i] for i in (1, 2, 5, 6)]

    run(work())


def test_a_request_over_its_time_is_cancelled_and_repeated() -> None:
    async def work() -> None:
        store = Store(CITIES, closed={1})

        async def pause(_seconds: float) -> None:
            store.closed.clear()

        one = asker(store, replace(SETTINGS, timeout_s=0.05), pause=pause)
        assert await one.ask([1]) == {1: "city 1"}
        assert store.in_flight == 0

    run(work())


def test_a_pause_does_not_take_a_place_among_those_in_flight() -> None:
    """While one request waits to be repeated another has its turn, even at capacity 1."""

    async def work() -> None:
        other_asked = asyncio.Event()

        class Watched(Store):
            async def get_many(self, keys: Sequence[Key]) -> Sequence[object]:
                if 2 in keys:
                    other_asked.set()
                return await super().get_many(keys)

        async def pause(_seconds: float) -> None:
            await other_asked.wait()

        store = Watched(CITIES, failures=[AWAY], keys_per_request=1)
        one = asker(store, replace(SETTINGS, capacity=1), pause=pause)
        assert await one.ask([1, 2]) == {1: "city 1", 2: "city 2"}

    run(work())


def test_what_no_repeat_can_mend_is_raised_at_once() -> None:
    async def work() -> None:
        store = Store(CITIES, failures=[AccessDenied("wrong password")])
        with pytest.raises(AccessDenied):
            await asker(store, replace(SETTINGS, on_timeout="null")).ask([1])
        assert len(store.requests) == 1

    run(work())


def test_the_first_failure_ends_the_other_requests() -> None:
    async def work() -> None:
        store = Store(CITIES, failures=[ValueError("broken")], closed={3})
        with pytest.raises(ValueError, match="broken"):
            await asker(store).ask([1, 2, 3, 4])
        assert store.in_flight == 0

    run(work())


def test_too_few_answers_are_no_answers() -> None:
    async def work() -> None:
        class Short(Store):
            async def get_many(self, keys: Sequence[Key]) -> Sequence[object]:
                return (await super().get_many(keys))[:-1]

        with pytest.raises(SchemaMismatch, match="1 answers to 2 keys"):
            await asker(Short(CITIES)).ask([1, 2])

    run(work())


def test_a_client_is_opened_once_and_by_the_first_request() -> None:
    async def work() -> None:
        store = Store(CITIES, keys_per_request=1)
        one = asker(store)
        assert store.opened == 0
        await one.ask(range(5))
        await one.ask(range(5))
        assert store.opened == 1
        await one.close()
        await one.close()
        assert store.opened == 0

    run(work())


def test_a_client_that_cannot_be_opened_is_a_store_that_is_away() -> None:
    """It is opened again with the next try."""

    async def work() -> None:
        class Shy(Store):
            async def open(self) -> None:
                await super().open()
                if self.opened < 3:
                    raise AWAY

        store = Shy(CITIES)
        assert await asker(store).ask([1]) == {1: "city 1"}
        assert store.opened == 3

    run(work())


# --- the cache -------------------------------------------------------------------------------


def test_without_a_cache_every_call_asks() -> None:
    async def work() -> None:
        store = Store(dict(CITIES))
        one = asker(store)
        await one.ask([1])
        store.data[1] = "another"
        assert await one.ask([1]) == {1: "another"}

    run(work())


def test_the_cache_answers_also_that_there_is_nothing_until_it_forgets() -> None:
    async def work() -> None:
        now, store = [0.0], Store({1: "old"})
        one = asker(store, replace(SETTINGS, cache=Cache(10, 60.0)), clock=lambda: now[0])
        assert await one.ask([1, 2]) == {1: "old", 2: None}
        store.data = {1: "new", 2: "new"}
        now[0] = 59.0
        assert await one.ask([1, 2]) == {1: "old", 2: None}
        assert len(store.requests) == 1
        now[0] = 61.0
        assert await one.ask([1, 2]) == {1: "new", 2: "new"}

    run(work())


def test_the_cache_forgets_the_least_recently_used_first() -> None:
    async def work() -> None:
        store = Store(CITIES)
        one = asker(store, replace(SETTINGS, cache=Cache(2, 60.0)))
        for key in (1, 2, 1, 3):  # 2 has to go for 3
            await one.ask([key])
        store.requests.clear()
        await one.ask([1])
        assert store.requests == []
        await one.ask([2])
        assert store.requests == [[2]]

    run(work())


def test_what_was_not_answered_is_not_remembered() -> None:
    async def work() -> None:
        store = Store(CITIES, failures=[AWAY])
        one = asker(store, replace(SETTINGS, cache=Cache(), retries=0, on_timeout="null"))
        assert isinstance((await one.ask([1]))[1], NoAnswer)
        assert await one.ask([1]) == {1: "city 1"}

    run(work())


# --- plugging in -------------------------------------------------------------------------------


def test_an_async_function_is_a_client() -> None:
    async def work() -> None:
        async def squared(key: int) -> int:
            await asyncio.sleep(0)
            return key * key

        assert await asker(AskEach(squared, "bigint")).ask([2, 3]) == {2: 4, 3: 9}

    run(work())
