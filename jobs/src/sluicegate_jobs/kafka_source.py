"""A Kafka topic as a stream, and a record of it as a dead letter."""

from __future__ import annotations

import os

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.protocol.errors import SettingsInvalid

PAYLOAD_CHARACTERS = 65_536
"""How much of a record a dead letter carries; the hash is of the whole."""


def kafka_source(spark: SparkSession, topic: str, bootstrap: str, max_records: int) -> DataFrame:
    """Return a topic from its beginning: read_committed, offsets kept in the checkpoint alone.

    Args:
        spark: the session.
        topic: its name.
        bootstrap: servers; empty: SLUICEGATE_KAFKA.
        max_records: of one epoch at most.
    """
    servers = bootstrap or os.environ.get("SLUICEGATE_KAFKA", "")
    if not servers:
        raise SettingsInvalid("no Kafka servers are given", do="set SLUICEGATE_KAFKA or --kafka")
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_records)
        .load()
    )


def dead_letter(reason: Column) -> Column:
    """Return a source record as a dead letter: reason, payload, its hash, and where it came from."""
    text = F.col("value").cast("string")
    source = F.struct("topic", "partition", "offset", "timestamp")
    return F.to_json(
        F.struct(
            reason.alias("reason"),
            F.substring(text, 1, PAYLOAD_CHARACTERS).alias("payload"),
            F.sha2(F.col("value"), 256).alias("payload_sha256"),
            source.alias("source"),
        )
    )
