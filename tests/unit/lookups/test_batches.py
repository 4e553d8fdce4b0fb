"""How answers get into Arrow batches: which row gets which, and in what order batches leave."""

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

from sluicegate.lookups import loop
from sluicegate.lookups.asking import Asker
from sluicegate.lookups.batches import BatchLookup, LookupOrder, answered_by
from sluicegate.lookups.client import Key
from sluicegate.lookups.loop import LoopThread
from sluicegate.lookups.settings import LookupSettings
from sluicegate.protocol.errors import SchemaMismatch
from tests.unit.lookups.stores import Store

CITIES: dict[Any, Any] = {i: f"city {i}" for i in range(100)}


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """Give a loop in a thread."""
    made = LoopThread()
    yield made
    made.close()


def order(settings: LookupSettings, **changes: object) -> LookupOrder:
    given: dict[str, Any] = {"key": "id", "answer": pa.string(), "refused": None, **changes}
    return LookupOrder(pickle.dumps(Store), settings, **given)


def batch(*ids: int | None) -> pa.RecordBatch:
    at = pa.array(range(len(ids)), pa.int32())
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "at": at})


def looked_up(
    thread: LoopThread, store: Store, batches: Sequence[pa.RecordBatch], **changes: object
) -> list[pa.RecordBatch]:
    own = {name: changes.pop(name) for name in ("refused", "answer") if name in changes}
    settings = LookupSettings("city", **{"timeout_s": 30.0, **changes})  # type: ignore[arg-type]
    asker = Asker(store, settings)
    return list(BatchLookup(order(settings, **own), asker, thread).run(batches))


def test_each_row_gets_the_answer_to_its_key_and_keeps_its_place(thread: LoopThread) -> None:
    """A key that is null or unknown gets null, and null is not asked for."""
    store = Store(CITIES)
    (done,) = looked_up(thread, store, [batch(3, None, 1, 3, 777)])
    assert done.column("city").to_pylist() == ["city 3", None, "city 1", "city 3", None]
    assert done.column("id").to_pylist() == [3, None, 1, 3, 777]
    assert done.schema.names == ["id", "at", "city"]
    assert sorted(itertools.chain(*store.requests)) == [1, 3, 777]


def test_batches_without_rows_or_keys_pass(thread: LoopThread) -> None:
    empty, nulls = looked_up(thread, Store(CITIES), [batch(), batch(None, None)])
    assert empty.column("city").to_pylist() == []
    assert nulls.column("city").to_pylist() == [None, None]


def first_ids(done: Iterator[pa.RecordBatch]) -> Iterator[int]:
    return (one.column("id")[0].as_py() for one in done)


def test_unordered_batches_leave_as_they_are_answered(thread: LoopThread) -> None:
    """Of three batches the first is answered last, so it leaves last."""
    store = Store(CITIES, closed={1})
    settings = LookupSettings("city", mode="unordered", timeout_s=30.0)
    work = BatchLookup(order(settings), Asker(store, settings), thread)
    leaving = first_ids(iter(work.run([batch(1), batch(2), batch(3)])))
    assert {next(leaving), next(leaving)} == {2, 3}
    thread.submit(_open(store)).result()
    assert list(leaving) == [1]


async def _open(store: Store) -> None:
    store.gate.set()


def test_ordered_batches_leave_in_order_and_are_asked_for_ahead(thread: LoopThread) -> None:
    """The first is answered last, when the others have long been asked for."""
    later = threading.Event()

    class Last(Store):
        async def get_many(self, keys: Sequence[Key]) -> Sequence[object]:
            if 4 in keys:
                self.gate.set()
                later.set()
            return await super().get_many(keys)

    store = Last(CITIES, closed={1})
    done = looked_up(thread, store, [batch(i) for i in (1, 2, 3, 4, 5, 6)])
    assert list(first_ids(iter(done))) == [1, 2, 3, 4, 5, 6]
    assert later.is_set()


def test_unanswered_rows_are_null(thread: LoopThread) -> None:
    store = Store(CITIES, closed={1}, keys_per_request=1)
    (done,) = looked_up(thread, store, [batch(1, 2)], on_timeout="null", timeout_s=0.05, retries=0)
    assert done.schema.names == ["id", "at", "city"]
    assert done.column("city").to_pylist() == [None, "city 2"]


def test_unanswered_rows_are_refused_with_the_reason(thread: LoopThread) -> None:
    """A missing key is not: the store has answered."""
    store = Store(CITIES, closed={1}, keys_per_request=1)
    (done,) = looked_up(
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


def test_a_row_that_was_refused_before_keeps_its_reason(thread: LoopThread) -> None:
    store = Store(CITIES, closed={1})
    given = batch(1, 1).append_column("why", pa.array(["before", None]))
    (done,) = looked_up(
        thread, store, [given], on_timeout="dead-letter", timeout_s=0.05, retries=0, refused="why"
    )
    before, own = done.column("why").to_pylist()
    assert before == "before"
    assert "unanswered" in own
    assert done.schema.names == ["id", "at", "why", "city"]


def test_an_answer_of_another_type_is_named(thread: LoopThread) -> None:
    with pytest.raises(SchemaMismatch, match="an answer is no int64"):
        looked_up(thread, Store(CITIES), [batch(1)], answer=pa.int64())


def test_a_task_that_fails_leaves_no_request_behind(thread: LoopThread) -> None:
    store = Store(CITIES, failures=[ValueError("broken")], closed={3})
    settings = LookupSettings("city", timeout_s=30.0)
    lookups = BatchLookup(order(settings), Asker(store, settings), thread)
    with pytest.raises(ValueError, match="broken"):
        list(lookups.run([batch(1), batch(3)]))
    thread.submit(_settled(store)).result(10)


async def _settled(store: Store) -> None:
    while store.in_flight:  # noqa: ASYNC110 - the store has no event for it
        await asyncio.sleep(0)


class Counted:
    """Counts how often it is opened, in all copies of it."""

    answer, keys_per_request = "string", 10
    opened = 0

    async def open(self) -> None:
        Counted.opened += 1

    async def get_many(self, keys: Sequence[Any]) -> list[str]:
        return [str(key) for key in keys]

    async def close(self) -> None:
        Counted.opened -= 1


def test_a_process_keeps_its_client_between_tasks() -> None:
    """As long as client and settings are the same; others get one of their own."""
    made = LookupOrder(pickle.dumps(Counted()), LookupSettings("city"), "id", pa.string(), None)
    other = LookupOrder(pickle.dumps(Counted()), LookupSettings("town"), "id", pa.string(), None)
    try:
        for task in (made, made, copy.deepcopy(made), other):
            (done,) = answered_by(task)([batch(1)])
            assert done.column(task.settings.into).to_pylist() == ["1"]
        assert Counted.opened == 2
    finally:
        loop.kept().close()
        loop._kept = None
    assert Counted.opened == 0
