"""Staged rows become the arguments of `produce`: here their time and what the topic would refuse."""

from __future__ import annotations

import time

import pyarrow as pa

from sluicegate.sinks.kafka.bound import BoundKafka
from sluicegate.sinks.kafka.clients import Connection
from sluicegate.sinks.kafka.expressions import RowExpressions
from sluicegate.sinks.kafka.records import arguments

ROWS = pa.schema([("at", pa.timestamp("us", "UTC")), ("ms", pa.int64())])


def timed(*times: int | None) -> pa.RecordBatch:
    nothing = pa.array([None] * len(times), pa.binary())
    return pa.record_batch(
        {"key": nothing, "value": nothing, "timestamp": pa.array(times, pa.int64())}
    )


def test_a_time_that_is_null_or_negative_is_that_of_the_writing() -> None:
    assert [row[5] for row in arguments(timed(5, None, -1), "")] == [5, 0, 0]


def test_a_timestamp_column_is_taken_in_milliseconds() -> None:
    row = RowExpressions(ROWS, "t")
    assert row.timestamp("at") == "unix_millis(`at`)"
    assert row.timestamp("ms") == "cast(`ms` as bigint)"
    assert row.timestamp("ms + 1") == "cast(ms + 1 as bigint)"


def test_a_time_too_far_ahead_is_refused_before_the_decision() -> None:
    """The broker would refuse it after; without a limit nothing is."""
    now = time.time_ns() // 1_000_000
    said = bound(3_600_000).refusals(timed(now, now + 4_000_000, None))
    assert said is not None
    assert [bool(reason) for reason in said.to_pylist()] == [False, True, False]
    assert bound(2**63 - 1).refusals(timed(now, 2**62)) is None


def bound(ahead_ms: int) -> BoundKafka:
    return BoundKafka(
        id="k",
        topic="t",
        lineage="l",
        parts=1,
        connection=Connection("localhost:1"),
        expressions=(),
        part_expression=None,
        compression="none",
        transaction_timeout_ms=60_000,
        apply_timeout_s=60,
        partitions=1,
        record_limit_bytes=1000,
        keys_required=False,
        offsets_retention_min=1,
        timestamp_ahead_ms=ahead_ms,
    )
