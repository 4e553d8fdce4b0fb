"""`KafkaSink`: what a user writes to send rows to a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.kafka import expressions
from sluicegate.sinks.kafka.bound_sink import BoundKafka
from sluicegate.sinks.kafka.connection import RESERVED_SETTINGS, Connection
from sluicegate.sinks.kafka.expressions import RowExpressions
from sluicegate.sinks.kafka.preflight import Preflight
from sluicegate.sinks.kafka.topic import KafkaTopic

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class KafkaSink:
    """Writes rows to a Kafka topic, each epoch in one transaction per part.

    Args:
        topic: must exist.
        key: column or SQL expression of the record's key; rows with the same key stay in order.
            None: no key.
        value: 'json' for the whole row, null fields included; or a column or SQL expression. A null
            value is a tombstone. Write a column named json as `json`, in backticks.
        headers: column or SQL expression: array of struct (key, value), or a map column.
        partition: column or SQL expression of the partition; null: the key chooses.
        timestamp: column or SQL expression of the record's time, a timestamp or ms since 1970; null, 0
            or negative: the time of writing. A row with another value is refused. The topic must accept
            records of any age.
        bootstrap: brokers, 'host:port[,host:port]'; default: the variable SLUICEGATE_KAFKA.
        id: unique in the job, stable across restarts; default: 'kafka.<topic>'.
        of: the output of the job that it writes, if there are several.
        parts: how many transactions write an epoch in parallel.
        compression: one of none, gzip, snappy, lz4, zstd.
        config: more librdkafka settings, added to those of the file SLUICEGATE_KAFKA_CONFIG
            (`connection`); settings that exactly-once depends on are refused.
        trace_headers: add the epoch's W3C `traceparent` to each record.
    """

    redoable: ClassVar[bool] = False
    """A record that is written again would be a second record."""

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
    compression: str = "lz4"
    config: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)
    trace_headers: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id or f"kafka.{self.topic}")
        object.__setattr__(self, "config", dict(self.config or {}))
        reserved = sorted(RESERVED_SETTINGS & self.config.keys())
        for wrong, what in (
            (not self.topic, "topic is empty"),
            (self.parts < 1, f"parts={self.parts} is not 1 or more"),
            (self.compression not in COMPRESSIONS,
             f"compression={self.compression!r} is not one of {', '.join(COMPRESSIONS)}"),
            (bool(reserved), f"config= sets {', '.join(reserved)}, which this sink sets itself"),
        ):  # fmt: skip
            if wrong:
                raise SettingsInvalid(
                    f"KafkaSink({self.topic!r}): {what}",
                    data="nothing was written",
                    do="correct the argument",
                )

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundKafka:
        row = RowExpressions(rows, self.topic)
        key = None if self.key is None else row.binary(self.key, "key")
        columns = {
            "key": key or expressions.NO_KEY,
            "value": row.value(self.value),
            "headers": None if self.headers is None else row.headers(self.headers),
            "partition": None if self.partition is None else row.partition(self.partition),
            "timestamp": None if self.timestamp is None else row.timestamp(self.timestamp),
        }
        connection = Connection.of(self.bootstrap or "", self.config, topic=self.topic)
        limits = Preflight(connection, self.topic).run(
            parts=self.parts,
            apply_timeout_s=apply_timeout_s,
            timed=self.timestamp is not None,
        )
        topic = KafkaTopic(
            name=self.topic,
            connection=connection,
            sink_id=self.id,
            lineage=lineage,
            limits=limits,
            compression=self.compression,
            apply_timeout_s=apply_timeout_s,
            trace_headers=self.trace_headers,
        )
        return BoundKafka(
            topic=topic,
            parts=self.parts,
            expressions=tuple((name, sql) for name, sql in columns.items() if sql is not None),
            part_expression=expressions.part_expression(key, columns["partition"], self.parts),
        )
