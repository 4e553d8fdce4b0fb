"""`KafkaTopic`: what a writer needs to know of the topic that it writes to. Picklable.

A module of its own, because the driver's preflight makes it and the executors' writers use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sluicegate.sinks.kafka.connection import Connection

NO_LIMIT_MS = 2**63 - 1
"""What Kafka answers where it limits the time of records in neither direction."""

_MIN_TRANSACTION_MS = 1000  # of librdkafka


def transaction_timeout_ms(apply_timeout_s: float) -> int:
    """Return the milliseconds after which the broker aborts a transaction: as long as an apply may take.

    A transaction opens after its apply began, so it outlasts it. With a longer timeout, `read_committed`
    readers would wait longer for a dead writer (rule 13).
    """
    return max(_MIN_TRANSACTION_MS, math.ceil(apply_timeout_s * 1000))


@dataclass(frozen=True)
class TopicLimits:
    """What the preflight read from the brokers.

    Args:
        partitions: of the topic.
        record_limit_bytes: the topic's `max.message.bytes`.
        keys_required: the topic is compacted, so the broker refuses records without a key.
        offsets_retention_min: the broker's `offsets.retention.minutes`.
        timestamp_ahead_ms: how far a record's time may be in the future, the topic's
            `message.timestamp.after.max.ms`.
        cluster: the id of the cluster; empty if the brokers do not tell it.
    """

    partitions: int
    record_limit_bytes: int
    keys_required: bool
    offsets_retention_min: int
    timestamp_ahead_ms: int = NO_LIMIT_MS
    cluster: str = ""


@dataclass(frozen=True)
class KafkaTopic:
    """A topic as one sink of one lineage writes to it; see `KafkaSink` for its settings.

    Args:
        apply_timeout_s: how long one apply may take, all waiting included.
    """

    name: str
    connection: Connection
    sink_id: str
    lineage: str
    limits: TopicLimits
    compression: str
    apply_timeout_s: float
    trace_headers: bool = False
