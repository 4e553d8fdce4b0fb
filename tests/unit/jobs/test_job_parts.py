"""Pure parts of the packaged jobs: the sums of two_sinks, its failing sink, generated input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sluicegate.errors import SinkRejected
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.sinks.contract import BoundSink, PartDecision
from sluicegate.sinks.memory import MemorySink
from sluicegate_jobs import generators
from sluicegate_jobs.access_log import read_line
from sluicegate_jobs.generators import Message
from sluicegate_jobs.orders.expected import Order, read_order
from sluicegate_jobs.restart_demo import SourceFailure
from sluicegate_jobs.restart_demo import failing as failing_source
from sluicegate_jobs.two_sinks import failing_sink
from sluicegate_jobs.two_sinks.failing_sink import APPLY, STAGE, FailingSink, StagingFailure
from sluicegate_jobs.two_sinks.job import KEYS, sum_by_key
from sluicegate_jobs.two_sinks.verify import read_row

AT = datetime(2026, 1, 7, 12, tzinfo=UTC)


def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
    columns = {"slot_time": pa.array([AT] * len(rows), pa.timestamp("us", "UTC"))}
    keys = pa.array([key for key, _ in rows], pa.string())
    columns |= dict.fromkeys(("key1", "key2", "key3"), keys)
    columns["indicate"] = pa.array([n for _, n in rows], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def test_a_task_sums_a_key_over_all_batches() -> None:
    table = pa.Table.from_batches(sum_by_key([batch(("a", 1), ("b", 2)), batch(("a", 5)), batch()]))
    assert table.column_names == ["id", *KEYS, "indicate"]
    sums = {row["key1"]: row["indicate"] for row in table.to_pylist()}
    assert sums == {"a": 6, "b": 2}


def test_each_run_has_other_uuids() -> None:
    runs = [pa.Table.from_batches(sum_by_key([batch(("a", 1))])) for _ in range(2)]
    assert runs[0].column("id") != runs[1].column("id")
    assert runs[0].drop(["id"]) == runs[1].drop(["id"])


def test_a_task_without_rows_has_no_sums() -> None:
    assert list(sum_by_key([])) == []
    assert list(sum_by_key([batch()])) == []


@pytest.fixture
def reset_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the row counts of failing sinks."""
    monkeypatch.setattr(failing_sink, "_seen", {STAGE: 0, APPLY: 0})


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": pa.array(range(count), pa.int64())})


@pytest.mark.usefixtures("reset_counts")
def test_a_sink_that_fails_in_phase_one_accepts_ten_rows() -> None:
    bound = bind(STAGE)
    assert bound.refusals(rows(10)) is None
    with pytest.raises(StagingFailure, match="row 11 while staging"):
        bound.refusals(rows(1))


@pytest.mark.usefixtures("reset_counts")
def test_a_sink_that_fails_in_phase_two_leaves_nothing() -> None:
    """Its rows are rolled back with the marker."""
    bound = bind(APPLY)
    assert bound.refusals(rows(50)) is None
    decision = PartDecision("l", Marker(0, "a"), NO_MARKER)
    writer = bound.open(0)
    with pytest.raises(SinkRejected, match="row 11 while applying"):
        writer.apply(decision, [rows(12)])
    assert writer.marker() in (None, NO_MARKER)


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
        generators.access_lines,
        generators.text_lines,
        generators.keyed_messages,
        generators.indicators,
        generators.orders,
    ],
)
def test_generated_input_is_the_same_for_the_same_seed(
    make: Callable[[int, int], Iterable[Message]],
) -> None:
    assert list(make(100, 7)) == list(make(100, 7)) != list(make(100, 8))


def test_one_in_fifty_is_broken() -> None:
    orders = [read_order(message.value) for message in generators.orders(100, 7)]
    assert [i for i, o in enumerate(orders) if not isinstance(o, Order)] == [49, 99]
    sums = [read_row(message.value) for message in generators.indicators(100, 7)]
    assert [i for i, row in enumerate(sums) if isinstance(row, str)] == [49, 99]
    hits = [read_line(message.value) for message in generators.access_lines(100, 7)]
    assert [i for i, hit in enumerate(hits) if isinstance(hit, str)] == [49, 99]


def test_generated_orders_are_json_of_four_fields() -> None:
    first = next(iter(generators.orders(1, 7)))
    assert set(json.loads(first.value or b"")) == {"id", "user", "time", "amount"}
