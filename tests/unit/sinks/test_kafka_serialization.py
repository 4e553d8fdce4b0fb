"""Columns of the rows as staged, and as arguments of `produce`; when the topic would refuse a time."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from sluicegate.errors import SchemaMismatch
from sluicegate.sinks.kafka.bound_sink import BoundKafka
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.expressions import INVALID_TIME, RowExpressions
from sluicegate.sinks.kafka.serialization import produce_arguments
from sluicegate.sinks.kafka.topic import KafkaTopic, TopicLimits

ROWS = pa.schema([("at", pa.timestamp("us", "UTC")), ("ms", pa.int64())])


def timed(*times: int | None) -> pa.RecordBatch:
    nulls = pa.array([None] * len(times), pa.binary())
    return pa.record_batch({"key": nulls, "value": nulls, "timestamp": pa.array(times, pa.int64())})


def test_no_time_or_none_after_1970_began_means_the_time_of_writing() -> None:
    assert [row[5] for row in produce_arguments(timed(5, None, -1, 0), "")] == [5, 0, 0, 0]


def test_a_binary_column_is_staged_without_a_copy_in_the_plan() -> None:
    row = RowExpressions(pa.schema([("raw", pa.binary()), ("text", pa.string())]), "t")
    assert row.value("raw") == "`raw`"
    assert row.value("text") == "cast(concat(`text`) as binary)"


def test_a_time_too_far_ahead_is_refused_before_the_decision() -> None:
    """The broker would refuse it after the decision. Without a limit, no time is refused."""
    now = time.time_ns() // 1_000_000
    reasons = bound(3_600_000).refusals(timed(now, now + 4_000_000, None))
    assert reasons is not None
    assert [bool(reason) for reason in reasons.to_pylist()] == [False, True, False]
    assert bound(2**63 - 1).refusals(timed(now, 2**62)) is None


def test_a_value_that_is_no_time_is_refused() -> None:
    reasons = bound(1).refusals(timed(INVALID_TIME, -1, None))
    assert reasons is not None
    assert [bool(reason) for reason in reasons.to_pylist()] == [True, False, False]


@pytest.mark.parametrize("kind", [pa.date32(), pa.bool_(), pa.list_(pa.int64())])
def test_a_column_that_has_no_times_is_refused_at_the_start(kind: pa.DataType) -> None:
    row = RowExpressions(pa.schema([("day", kind)]), "t")
    with pytest.raises(SchemaMismatch, match=r"timestamp='day' has type"):
        row.timestamp("day")


def test_a_header_that_kafka_would_not_get_as_it_is_is_refused() -> None:
    """Librdkafka ends a name at a NUL; one that is not UTF-8 would fail after the decision."""
    names = pa.array([b"a", b"a\0b", b"\xff", None], pa.binary()).view(pa.string())
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3, 4], pa.int32()),
        pa.StructArray.from_arrays([names, pa.nulls(4, pa.binary())], ["key", "value"]),
    ).cast(kind)
    nulls = pa.nulls(4, pa.binary())
    batch = pa.record_batch({"key": nulls, "value": nulls, "headers": headers})
    reasons = bound(1).refusals(batch)
    assert reasons is not None
    assert [bool(reason) for reason in reasons.to_pylist()] == [False, True, True, True]


def test_rule_04_a_binding_names_the_cluster() -> None:
    assert bound(1, cluster="cluster-a").binding.cluster == "cluster-a"


def bound(ahead_ms: int, *, cluster: str = "") -> BoundKafka:
    limits = TopicLimits(
        partitions=1,
        record_limit_bytes=1000,
        keys_required=False,
        offsets_retention_min=1,
        timestamp_ahead_ms=ahead_ms,
        cluster=cluster,
    )
    topic = KafkaTopic(
        name="t",
        connection=Connection("localhost:1"),
        sink_id="k",
        lineage="l",
        limits=limits,
        compression="none",
        apply_timeout_s=60,
    )
    return BoundKafka(topic=topic, parts=1, expressions=(), part_expression=None)
