"""A Kafka sink that has seen its topic: what the epoch record, Spark and the executors need of it.

Not here: talking to a broker; `preflight` has, and `writer` will. Picklable; made by
`KafkaSink.bind`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.kafka.clients import MARKERS_TOPIC, Connection, group_id
from sluicegate.sinks.kafka.writer import KafkaPartWriter

RECORD_OVERHEAD_BYTES = 61 + 36
"""The header of a record batch (v2), and librdkafka's upper bound for the lengths, deltas and
attributes of one record (varints at their longest). librdkafka refuses a record over the limit with
the second, the broker a batch with both; it sends a batch uncompressed if that is smaller. So a
record that fits by this sum is taken by both, and one within some 60 bytes of it is refused early."""

_HEADER_OVERHEAD_BYTES = 10


@dataclass(frozen=True)
class BoundKafka:
    """See `contract.BoundSink`.

    Args:
        id: the sink's id.
        topic: what it writes to.
        lineage: the history that its markers belong to.
        parts: how many transactions an epoch is applied in.
        connection: the brokers.
        expressions: staged columns with their Spark SQL.
        part_expression: a row's part.
        compression: of the producer.
        transaction_timeout_ms: after which the broker aborts.
        apply_timeout_s: how long one apply may take, all waiting included.
        partitions: of the topic, when it was bound.
        record_limit_bytes: the topic's `max.message.bytes`.
        keys_required: the topic is compacted, so the broker refuses records without a key.
        offsets_retention_min: the broker's `offsets.retention.minutes`.
        timestamp_ahead_ms: how far a record's time may be in the future, the topic's
            `message.timestamp.after.max.ms`.
        trace_headers: whether each record carries the epoch's trace context.
    """

    id: str
    topic: str
    lineage: str
    parts: int
    connection: Connection
    expressions: tuple[tuple[str, str], ...]
    part_expression: str | None
    compression: str
    transaction_timeout_ms: int
    apply_timeout_s: float
    partitions: int
    record_limit_bytes: int
    keys_required: bool
    offsets_retention_min: int
    timestamp_ahead_ms: int = 2**63 - 1
    trace_headers: bool = False

    @property
    def binding(self) -> SinkBinding:
        """What the epoch record says of this sink."""
        key = f"{group_id(self.lineage, self.id)}/{MARKERS_TOPIC}"
        return SinkBinding("kafka", f"topic {self.topic}", self.parts, key)

    @property
    def refresh_every_s(self) -> float | None:
        """A quarter of the broker's `offsets.retention.minutes`; opening a writer refreshes."""
        return self.offsets_retention_min * 60 / 4

    def open(self, part: int) -> KafkaPartWriter:
        """Return a writer for a part; it fences every earlier writer of the same part."""
        return KafkaPartWriter(self, part)

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """Say per row why the topic would not take it; see the contract."""
        if not batch.num_rows:
            return None
        reasons = pa.nulls(batch.num_rows, pa.string())
        checks = (self._too_large(batch), self._no_key(batch), *self._headers_and_partition(batch))
        for refused, why in checks:
            reasons = pc.if_else(refused, why, reasons)
        return reasons if reasons.null_count < batch.num_rows else None

    def _too_large(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        size = pc.add(_lengths(batch.column("key")), _lengths(batch.column("value")))
        fixed = RECORD_OVERHEAD_BYTES
        if self.trace_headers:
            fixed += _HEADER_OVERHEAD_BYTES + len("traceparent") + 55
        size = pc.add(size, fixed)
        if "headers" in batch.schema.names:
            size = pc.add(size, _per_row(batch.column("headers"), _header_sizes))
        why = pc.binary_join_element_wise(
            "the record has", size.cast(pa.string()), "bytes with its overhead;",
            f"topic {self.topic} takes {self.record_limit_bytes} (max.message.bytes)", " ",
        )  # fmt: skip
        return pc.greater(size, self.record_limit_bytes), why

    def _no_key(self, batch: pa.RecordBatch) -> tuple[pa.Array, str]:
        refused = pc.and_(batch.column("key").is_null(), self.keys_required)
        return refused, f"the record has no key and topic {self.topic} is compacted"

    def _headers_and_partition(
        self, batch: pa.RecordBatch
    ) -> list[tuple[pa.Array, pa.Array | str]]:
        found: list[tuple[pa.Array, pa.Array | str]] = []
        if "headers" in batch.schema.names:
            unnamed = pc.greater(_per_row(batch.column("headers"), _unnamed_headers), 0)
            found.append((unnamed, "a header of the record has no key"))
        if "partition" in batch.schema.names:
            number = batch.column("partition")
            outside = pc.or_(pc.less(number, 0), pc.greater_equal(number, self.partitions))
            outside = pc.fill_null(outside, fill_value=False)  # null: by the key
            why = pc.binary_join_element_wise(
                "the record asks for partition", number.cast(pa.string()),
                f"and topic {self.topic} has {self.partitions}, from 0", " ",
            )  # fmt: skip
            found.append((outside, why))
        if "timestamp" in batch.schema.names:
            latest = min(time.time_ns() // 1_000_000 + self.timestamp_ahead_ms, 2**63 - 1)
            ahead = pc.fill_null(pc.greater(batch.column("timestamp"), latest), fill_value=False)
            why = (
                f"the record's time is more than {self.timestamp_ahead_ms} ms ahead, which topic "
                f"{self.topic} does not take (message.timestamp.after.max.ms)"
            )
            found.append((ahead, why))
        return found


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _header_sizes(headers: pa.StructArray) -> pa.Array:
    keys, values = headers.flatten()
    return pc.add(pc.add(_lengths(keys), _lengths(values)), _HEADER_OVERHEAD_BYTES)


def _unnamed_headers(headers: pa.StructArray) -> pa.Array:
    return headers.flatten()[0].is_null().cast(pa.int64())


def _per_row(column: pa.Array, measure: object) -> pa.Array:
    """Return the sum over each row's list of what `measure` says of its items."""
    counts = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    measured = measure(pc.list_flatten(column))  # type: ignore[operator]
    zero = pa.array([0], pa.int64())
    sums = pa.concat_arrays([zero, pc.cumulative_sum(measured)])
    ends = pc.cumulative_sum(counts)
    return pc.subtract(sums.take(ends), sums.take(pc.subtract(ends, counts)))
