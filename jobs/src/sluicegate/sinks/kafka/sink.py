"""`KafkaSink`: what a user writes to send rows to a Kafka topic.

Not here: the preflight's questions (`preflight`) and the transactions (`writer`). Called by users
and, through `contract.Sink`, by the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sluicegate.protocol.errors import SettingsInvalid, TransactionTimeoutInvalid
from sluicegate.sinks.kafka import expressions
from sluicegate.sinks.kafka.bound import BoundKafka
from sluicegate.sinks.kafka.clients import OURS, Connection
from sluicegate.sinks.kafka.expressions import RowExpressions
from sluicegate.sinks.kafka.preflight import Preflight

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_SHORTEST_TRANSACTION_MS = 1000


@dataclass(frozen=True)
class KafkaSink:
    """Rows to a Kafka topic, each epoch in one transaction a part.

    Args:
        topic: must exist.
        key: column or SQL expression of the record's key; rows of a key stay in order. None: no key.
        value: 'json' for the whole row, fields that are null kept; or a column or SQL expression.
            A null value is a tombstone. A column that is called json is written `json`, in backticks.
        headers: column or SQL expression: array of struct (key, value), or a map column.
        partition: column or SQL expression of the partition; null for the key's.
        timestamp: column, or SQL expression of ms since 1970, of the record's time; null or negative
            for the time of writing. The topic must take records of any age.
        bootstrap: brokers, 'host:port[,host:port]'; default is the variable SLUICEGATE_KAFKA.
        id: unique in the job, stable over restarts; default 'kafka.<topic>'.
        of: which output of the job it takes, where there are several.
        parts: how many transactions write an epoch side by side.
        transaction_timeout_ms: after which the broker aborts; no shorter than an apply may take.
        compression: one of none, gzip, snappy, lz4, zstd.
        config: more librdkafka settings, beside those of the file SLUICEGATE_KAFKA_CONFIG (`access`);
            those of exactly-once are refused.
        trace_headers: put the epoch's W3C `traceparent` on each record.
    """

    redoable: ClassVar[bool] = False
    """A topic cannot be brought forward: rows that are in twice would be two records."""

    topic: str
    key: str | None = None
    value: str = expressions.WHOLE_ROW
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    bootstrap: str | None = None
    id: str = ""
    of: str | None = None
    parts: int = 1
    transaction_timeout_ms: int = 60_000
    compression: str = "lz4"
    config: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)
    trace_headers: bool = False

    def __post_init__(self) -> None:
        """Fill in the id and refuse what cannot work whatever the broker."""
        object.__setattr__(self, "id", self.id or f"kafka.{self.topic}")
        object.__setattr__(self, "config", dict(self.config or {}))
        taken = sorted(OURS & self.config.keys())
        for wrong, what in (
            (not self.topic, "topic is empty"),
            (self.parts < 1, f"parts={self.parts} is not 1 or more"),
            (self.transaction_timeout_ms < _SHORTEST_TRANSACTION_MS,
             f"transaction_timeout_ms={self.transaction_timeout_ms} is below {_SHORTEST_TRANSACTION_MS}"),
            (self.compression not in COMPRESSIONS,
             f"compression={self.compression!r} is none of {', '.join(COMPRESSIONS)}"),
            (bool(taken), f"config= sets {', '.join(taken)}, which this sink sets itself"),
        ):  # fmt: skip
            if wrong:
                raise SettingsInvalid(
                    f"KafkaSink({self.topic!r}): {what}",
                    data="nothing was written",
                    do="correct the argument",
                )

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundKafka:
        """Check topic, brokers and columns; see the contract."""
        self._check_apply_timeout(apply_timeout_s)
        row = RowExpressions(rows, self.topic)
        key = None if self.key is None else row.binary(self.key, "key")
        headers = None if self.headers is None else row.headers(self.headers)
        partition = None if self.partition is None else row.partition(self.partition)
        timestamp = None if self.timestamp is None else row.timestamp(self.timestamp)
        connection = Connection.of(self.bootstrap or "", self.config, topic=self.topic)
        found = Preflight(connection, self.topic).run(
            parts=self.parts,
            transaction_timeout_ms=self.transaction_timeout_ms,
            timed=timestamp is not None,
        )
        value = row.value(self.value)
        return BoundKafka(
            id=self.id,
            topic=self.topic,
            lineage=lineage,
            parts=self.parts,
            connection=connection,
            expressions=tuple(expressions.staged(key, value, headers, partition, timestamp)),
            part_expression=expressions.part_expression(key, partition, self.parts),
            compression=self.compression,
            transaction_timeout_ms=self.transaction_timeout_ms,
            apply_timeout_s=apply_timeout_s,
            partitions=found.partitions,
            record_limit_bytes=found.record_limit_bytes,
            keys_required=found.keys_required,
            offsets_retention_min=found.offsets_retention_min,
            timestamp_ahead_ms=found.timestamp_ahead_ms,
            trace_headers=self.trace_headers,
        )

    def _check_apply_timeout(self, apply_timeout_s: float) -> None:
        """A transaction opens after its apply has begun, so as long an apply is short enough."""
        if self.transaction_timeout_ms < apply_timeout_s * 1000:
            raise TransactionTimeoutInvalid(
                f"topic {self.topic}: transaction_timeout_ms={self.transaction_timeout_ms} ends before "
                f"an apply, which may take {apply_timeout_s * 1000:.0f} ms",
                data="nothing was read or written; the broker would abort a slow apply in the middle",
                do="raise transaction_timeout_ms, or lower the epoch timeout",
            )
