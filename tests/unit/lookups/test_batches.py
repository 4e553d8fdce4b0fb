"""Answers in Arrow batches: each row gets its own, and batches keep or lose their order."""

from __future__ import annotations

import asyncio
import copy
import itertools
import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.errors import SchemaMismatch
from sluicegate.lookups import worker
from sluicegate.lookups.batches import BatchLookup, LookupPlan, lookup_function
from sluicegate.lookups.client import Key
from sluicegate.lookups.fetcher import KeyFetcher
from sluicegate.lookups.settings import LookupSettings
from sluicegate.lookups.worker import LoopThread
from tests.unit.lookups.recording_stores import Store

CITIES: dict[Any, Any] = {i: f"city {i}" for i in range(100)}


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """Start an event loop in a thread."""
    loop = LoopThread()
    yield loop
    loop.close()


def plan(settings: LookupSettings, **changes: object) -> LookupPlan:
    arguments: dict[str, Any] = {"key": "id", "answer": pa.string(), "refused": None, **changes}
    return LookupPlan(pickle.dumps(Store), settings, **arguments)


def batch(*ids: int | None) -> pa.RecordBatch:
    numbers = pa.array(range(len(ids)), pa.int32())
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "at": numbers})


def look_up(
    thread: LoopThread, store: Store, batches: Sequence[pa.RecordBatch], **changes: object
) -> list[pa.RecordBatch]:
    plan_changes = {name: changes.pop(name) for name in ("refused", "answer") if name in changes}
    settings = LookupSettings("city", **{"timeout_s": 30.0, **changes})  # type: ignore[arg-type]
    fetcher = KeyFetcher(store, settings)
    return list(BatchLookup(plan(settings, **plan_changes), fetcher, thread).run(batches))


def test_each_row_gets_the_answer_to_its_key_in_order(thread: LoopThread) -> None:
    """A null or unknown key gets null, and null is not requested."""
    store = Store(CITIES)
    (done,) = look_up(thread, store, [batch(3, None, 1, 3, 777)])
    assert done.column("city").to_pylist() == ["city 3", None, "city 1", "city 3", None]
    assert done.column("id").to_pylist() == [3, None, 1, 3, 777]
    assert done.schema.names == ["id", "at", "city"]
    assert sorted(itertools.chain(*store.requests)) == [1, 3, 777]


def test_batches_without_rows_or_keys_are_passed_on(thread: LoopThread) -> None:
    empty, nulls = look_up(thread, Store(CITIES), [batch(), batch(None, None)])
    assert empty.column("city").to_pylist() == []
    assert nulls.column("city").to_pylist() == [None, None]


def first_ids(done: Iterator[pa.RecordBatch]) -> Iterator[int]:
    return (one.column("id")[0].as_py() for one in done)


def test_unordered_batches_are_yielded_as_they_are_answered(thread: LoopThread) -> None:
    """Of three batches the first is answered last, so it is yielded last."""
    store = Store(CITIES, blocked={1})
    settings = LookupSettings("city", mode="unordered", timeout_s=30.0)
    work = BatchLookup(plan(settings), KeyFetcher(store, settings), thread)
    yielded = first_ids(iter(work.run([batch(1), batch(2), batch(3)])))
    assert {next(yielded), next(yielded)} == {2, 3}
    thread.submit(_open(store)).result()
    assert list(yielded) == [1]


async def _open(store: Store) -> None:
    store.gate.set()


def test_ordered_batches_are_yielded_in_order_and_requested_ahead(thread: LoopThread) -> None:
    """The first is answered last, after the others were requested."""
    requested_ahead = threading.Event()

    class OpensGate(Store):
        async def get_many(self, keys: Sequence[Key]) -> Sequence[object]:
            if 4 in keys:
                self.gate.set()
                requested_ahead.set()
            return await super().get_many(keys)

    store = OpensGate(CITIES, blocked={1})
    done = look_up(thread, store, [batch(i) for i in (1, 2, 3, 4, 5, 6)])
    assert list(first_ids(iter(done))) == [1, 2, 3, 4, 5, 6]
    assert requested_ahead.is_set()


def test_unanswered_rows_are_null(thread: LoopThread) -> None:
    store = Store(CITIES, blocked={1}, keys_per_request=1)
    (done,) = look_up(thread, store, [batch(1, 2)], on_timeout="null", timeout_s=0.05, retries=0)
    assert done.schema.names == ["id", "at", "city"]
    assert done.column("city").to_pylist() == [None, "city 2"]


def test_unanswered_rows_are_refused_with_the_reason(thread: LoopThread) -> None:
    """Rows with a missing key are not refused: the store has answered."""
    store = Store(CITIES, blocked={1}, keys_per_request=1)
    (done,) = look_up(
        thread,
        store,
        [batch(1, 2, 777)],
        on_timeout="dead-letter",
        timeout_s=0.05,
        retries=0,
        refused="why",
    )
    assert done.column("city").to_pylist() == [None, "city 2", None]
    reason, *others = done.column("why").to_pylist()
    assert "unanswered" in reason
    assert others == [None, None]


def test_a_row_that_was_already_refused_keeps_its_reason(thread: LoopThread) -> None:
    store = Store(CITIES, blocked={1})
    refused = batch(1, 1).append_column("why", pa.array(["before", None]))
    (done,) = look_up(
        thread, store, [refused], on_timeout="dead-letter", timeout_s=0.05, retries=0, refused="why"
    )
    before, own = done.column("why").to_pylist()
    assert before == "before"
    assert "unanswered" in own
    assert done.schema.names == ["id", "at", "why", "city"]


def test_an_answer_of_another_type_is_an_error(thread: LoopThread) -> None:
    with pytest.raises(SchemaMismatch, match="an answer is not of type int64"):
        look_up(thread, Store(CITIES), [batch(1)], answer=pa.int64())


def test_a_failing_task_cancels_its_requests(thread: LoopThread) -> None:
    store = Store(CITIES, failures=[ValueError("broken")], blocked={3})
    settings = LookupSettings("city", timeout_s=30.0)
    lookups = BatchLookup(plan(settings), KeyFetcher(store, settings), thread)
    with pytest.raises(ValueError, match="broken"):
        list(lookups.run([batch(1), batch(3)]))
    thread.submit(_wait_until_idle(store)).result(10)


async def _wait_until_idle(store: Store) -> None:
    while store.in_flight:  # noqa: ASYNC110 - the store has no event for it
        await asyncio.sleep(0)


class Counted:
    """Counts the open copies of it."""

    answer, keys_per_request = "string", 10
    opened = 0

    async def open(self) -> None:
        Counted.opened += 1

    async def get_many(self, keys: Sequence[Any]) -> list[str]:
        return [str(key) for key in keys]

    async def close(self) -> None:
        Counted.opened -= 1


def test_a_process_reuses_its_client_between_tasks() -> None:
    """If client and settings are equal; another lookup gets its own client."""
    first = LookupPlan(pickle.dumps(Counted()), LookupSettings("city"), "id", pa.string(), None)
    other = LookupPlan(pickle.dumps(Counted()), LookupSettings("town"), "id", pa.string(), None)
    try:
        for task in (first, first, copy.deepcopy(first), other):
            (done,) = lookup_function(task)([batch(1)])
            assert done.column(task.settings.into).to_pylist() == ["1"]
        assert Counted.opened == 2
    finally:
        state = worker.worker_state()
        for fetcher in state._fetchers.values():
            state.loop.submit(fetcher.close()).result()
        state.loop.close()
        worker._state_of.cache_clear()
    assert Counted.opened == 0


def test_a_key_that_is_not_utf_8_gets_no_answer_and_the_reason(thread: LoopThread) -> None:
    """The store gets no request for it; the other keys of the batch get theirs."""
    store = Store({"ok": "a city"})
    keys = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    (done,) = look_up(
        thread, store, [pa.record_batch({"id": keys})], refused="why", on_timeout="dead-letter"
    )
    assert done.column("city").to_pylist() == ["a city", None]
    assert done.column("why")[0].as_py() is None
    assert "the key is not a valid string" in done.column("why")[1].as_py()
