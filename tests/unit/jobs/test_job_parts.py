"""Pure parts of the packaged jobs: the reduce of two_sinks, its failing sink, generated input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sluicegate.protocol.errors import SinkRejected
from sluicegate.protocol.markers import GENESIS, Marker
from sluicegate.sinks.contract import BoundSink, PartDecision
from sluicegate.sinks.memory import MemorySink
from sluicegate_jobs import failing, generating
from sluicegate_jobs.access_lines import LineReader
from sluicegate_jobs.failing import APPLY, STAGE, FailingSink, Thrown
from sluicegate_jobs.generating import Message
from sluicegate_jobs.orders_answer import Order, read_order
from sluicegate_jobs.restart_demo import SourceFailure
from sluicegate_jobs.restart_demo import failing as failing_source
from sluicegate_jobs.two_sinks import KEYS, reduced
from sluicegate_jobs.two_sinks_verify import read_row

AT = datetime(2026, 1, 7, 12, tzinfo=UTC)


def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
    columns = {"slot_time": pa.array([AT] * len(rows), pa.timestamp("us", "UTC"))}
    keys = pa.array([key for key, _ in rows], pa.string())
    columns |= dict.fromkeys(("key1", "key2", "key3"), keys)
    columns["indicate"] = pa.array([n for _, n in rows], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def test_the_reduce_sums_a_key_over_all_batches_of_a_task() -> None:
    made = pa.Table.from_batches(reduced([batch(("a", 1), ("b", 2)), batch(("a", 5)), batch()]))
    assert made.column_names == ["id", *KEYS, "indicate"]
    sums = {row["key1"]: row["indicate"] for row in made.to_pylist()}
    assert sums == {"a": 6, "b": 2}


def test_the_reduce_gives_another_uuid_each_time() -> None:
    runs = [pa.Table.from_batches(reduced([batch(("a", 1))])) for _ in range(2)]
    assert runs[0].column("id") != runs[1].column("id")
    assert runs[0].drop(["id"]) == runs[1].drop(["id"])


def test_the_reduce_of_nothing_is_nothing() -> None:
    assert list(reduced([])) == []
    assert list(reduced([batch()])) == []


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a failing sink count from nothing."""
    monkeypatch.setattr(failing, "_seen", {STAGE: 0, APPLY: 0})


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": pa.array(range(count), pa.int64())})


@pytest.mark.usefixtures("forgotten")
def test_a_sink_that_fails_in_phase_one_takes_ten_rows() -> None:
    bound = bind(STAGE)
    assert bound.refusals(rows(10)) is None
    with pytest.raises(Thrown, match="row 11 while staging"):
        bound.refusals(rows(1))


@pytest.mark.usefixtures("forgotten")
def test_a_sink_that_fails_in_phase_two_leaves_nothing_behind() -> None:
    """Its rows are rolled back with the marker; the sink itself then takes all of them."""
    bound = bind(APPLY)
    assert bound.refusals(rows(50)) is None
    decision = PartDecision("l", Marker(0, "a"), GENESIS)
    writer = bound.open(0)
    with pytest.raises(SinkRejected, match="row 11 while applying"):
        writer.apply(decision, [rows(12)])
    assert writer.marker() in (None, GENESIS)


def bind(phase: str) -> BoundSink:
    inner = MemorySink("m")
    bound = FailingSink(inner, phase, 10).bind(rows(1).schema, lineage="l", apply_timeout_s=5)
    assert bound.id == inner.id
    return bound


def test_every_fifth_record_fails_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("demo"))
    records = pa.RecordBatch.from_pydict(
        {"partition": pa.array([0] * 10, pa.int32()), "offset": pa.array(range(10), pa.int64())}
    )
    step = failing_source(folder, "once")
    for offset in (4, 9):
        with pytest.raises(SourceFailure, match=f"0@{offset}"):
            list(step([records]))
    assert list(step([records])) == [records]
    with pytest.raises(SourceFailure, match="0@4"):
        list(failing_source(folder, "always")([records]))


@pytest.mark.parametrize(
    "make",
    [
        generating.access_lines,
        generating.text_lines,
        generating.keyed_messages,
        generating.indicators,
        generating.orders,
    ],
)
def test_generated_input_is_the_same_for_the_same_seed(
    make: Callable[[int, int], Iterable[Message]],
) -> None:
    assert list(make(100, 7)) == list(make(100, 7)) != list(make(100, 8))


def test_one_in_fifty_is_broken() -> None:
    orders = [read_order(message.value) for message in generating.orders(100, 7)]
    assert [i for i, o in enumerate(orders) if not isinstance(o, Order)] == [49, 99]
    sums = [read_row(message.value) for message in generating.indicators(100, 7)]
    assert [i for i, row in enumerate(sums) if isinstance(row, str)] == [49, 99]
    hits = [LineReader().read(message.value) for message in generating.access_lines(100, 7)]
    assert [i for i, hit in enumerate(hits) if isinstance(hit, str)] == [49, 99]


def test_generated_orders_are_json_of_four_fields() -> None:
    first = next(iter(generating.orders(1, 7)))
    assert set(json.loads(first.value or b"")) == {"id", "user", "time", "amount"}
