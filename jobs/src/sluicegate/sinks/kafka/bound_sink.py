"""A Kafka sink bound to its topic: what the epoch record, Spark and the executors need of it.

Picklable; created by `KafkaSink.bind`. It never talks to a broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.kafka.connection import MARKERS_TOPIC, group_id
from sluicegate.sinks.kafka.expressions import INVALID_TIME
from sluicegate.sinks.kafka.topic import KafkaTopic
from sluicegate.sinks.kafka.writer import KafkaPartWriter
from sluicegate.sinks.utf8 import invalid_utf8

RECORD_OVERHEAD_BYTES = 61 + 36
"""The header of a record batch (v2), plus librdkafka's upper bound for the lengths, deltas and
attributes of one record (varints at their longest). librdkafka refuses a record that exceeds the limit
with the second part, the broker a batch that exceeds it with both; a batch is sent uncompressed if that
is smaller. So both accept a record that fits by this sum, and a record within about 60 bytes of the limit
is refused although it would fit."""

_HEADER_OVERHEAD_BYTES = 10

_Reason = Callable[[], pa.Array | str]
"""Returns why rows are refused: one reason for all, or one for each row of the batch."""


@dataclass(frozen=True)
class BoundKafka:
    """See `contract.BoundSink`."""

    topic: KafkaTopic
    parts: int
    expressions: tuple[tuple[str, str], ...]
    part_expression: str | None

    @property
    def id(self) -> str:
        return self.topic.sink_id

    @property
    def binding(self) -> SinkBinding:
        key = f"{group_id(self.topic.lineage, self.id)}/{MARKERS_TOPIC}"
        cluster = self.topic.limits.cluster
        target = f"topic {self.topic.name}"
        return SinkBinding("kafka", target, self.parts, key, cluster, durable_markers=True)

    @property
    def refresh_every_s(self) -> float | None:
        """A quarter of the broker's `offsets.retention.minutes`; opening a writer refreshes."""
        return self.topic.limits.offsets_retention_min * 60 / 4

    def open(self, part: int) -> KafkaPartWriter:
        return KafkaPartWriter(self.topic, part)

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        reasons: pa.StringArray | None = None
        for refused, reason in self._checks(batch):
            if pc.any(refused).as_py():  # rarely: only then are the reasons worth their time
                earlier = pa.nulls(batch.num_rows, pa.string()) if reasons is None else reasons
                reasons = pc.if_else(refused, reason(), earlier)
        return reasons

    def _checks(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.Array, _Reason]]:
        """Yield which rows the topic would not accept, and why; the last reason of a row counts."""
        topic, limits, names = self.topic.name, self.topic.limits, batch.schema.names
        yield self._too_large(batch)
        if limits.keys_required:
            no_key = batch.column("key").is_null()
            yield no_key, lambda: f"the record has no key and topic {topic} is compacted"
        if "headers" in names:
            unnamed = pc.greater(_sum_per_row(batch.column("headers"), _is_unnamed), 0)
            yield (
                unnamed,
                lambda: "a header of the record has no key, or one with a NUL or not in UTF-8",
            )
        if "partition" in names:
            number = batch.column("partition")
            outside = pc.or_(pc.less(number, 0), pc.greater_equal(number, limits.partitions))
            # null: the key chooses
            yield (
                pc.fill_null(outside, fill_value=False),
                lambda: _join(
                    "the record asks for partition", number,
                    f"and topic {topic} has {limits.partitions}, from 0",
                ),
            )  # fmt: skip
        if "timestamp" in names:
            latest = min(time.time_ns() // 1_000_000 + limits.timestamp_ahead_ms, 2**63 - 1)
            ahead = pc.greater(batch.column("timestamp"), latest)
            reason = (
                f"the record's time is more than {limits.timestamp_ahead_ms} ms ahead, which topic "
                f"{topic} does not accept (message.timestamp.after.max.ms)"
            )
            yield pc.fill_null(ahead, fill_value=False), lambda: reason
            invalid = pc.equal(batch.column("timestamp"), INVALID_TIME)
            yield (
                pc.fill_null(invalid, fill_value=False),
                lambda: "the record's time is neither a timestamp nor milliseconds since 1970",
            )

    def _too_large(self, batch: pa.RecordBatch) -> tuple[pa.Array, _Reason]:
        limit, overhead = self.topic.limits.record_limit_bytes, RECORD_OVERHEAD_BYTES
        if self.topic.trace_headers:
            overhead += _HEADER_OVERHEAD_BYTES + len("traceparent") + 55
        size = pc.add(_lengths(batch.column("key")), _lengths(batch.column("value")))
        size = pc.add(size, overhead)
        if "headers" in batch.schema.names:
            size = pc.add(size, _sum_per_row(batch.column("headers"), _header_sizes))
        takes = (
            f"bytes with its overhead; topic {self.topic.name} takes {limit} (max.message.bytes)"
        )
        return pc.greater(size, limit), lambda: _join("the record has", size, takes)


def _join(before: str, number: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, number.cast(pa.string()), after, " ")


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _header_sizes(headers: pa.StructArray) -> pa.Array:
    keys, values = headers.flatten()
    return pc.add(pc.add(_lengths(keys), _lengths(values)), _HEADER_OVERHEAD_BYTES)


def _is_unnamed(headers: pa.StructArray) -> pa.Array:
    keys = headers.flatten()[0]
    unnamed, invalid = keys.is_null(), invalid_utf8(keys)
    # librdkafka ends a name at a NUL
    with_nul = pc.match_substring(keys.cast(pa.binary()), b"\0")
    unnamed = pc.or_(unnamed, pc.fill_null(with_nul, fill_value=False))
    if invalid is not None:
        unnamed = pc.or_(unnamed, pc.fill_null(invalid, fill_value=False))
    return unnamed.cast(pa.int64())


def _sum_per_row(column: pa.Array, measure: Callable[[pa.StructArray], pa.Array]) -> pa.Array:
    """Return for each row the sum of `measure` over the items of its list."""
    counts = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    zero = pa.array([0], pa.int64())
    sums = pa.concat_arrays([zero, pc.cumulative_sum(measure(pc.list_flatten(column)))])
    ends = pc.cumulative_sum(counts)
    return pc.subtract(sums.take(ends), sums.take(pc.subtract(ends, counts)))
