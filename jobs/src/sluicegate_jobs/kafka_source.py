"""A Kafka topic as a stream, and its records as dead letters."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.errors import TargetMissing
from sluicegate.sinks.kafka.admin import KafkaAdmin
from sluicegate.sinks.kafka.connection import Connection, spark_options
from sluicegate_jobs.dead_letters import letter_columns

_POLL_RECORDS = 10_000
"""Most records that a poll returns, 500 by default in Kafka. After each poll Spark asks the broker for the
first and the last offset of the partition, so few records per poll mean many requests. A poll returns
only what is fetched already, so memory stays bounded by max.partition.fetch.bytes."""

_FETCH_WAIT_MS = 1
"""How long a broker may hold back a fetch at the end of a partition, 500 by default in Kafka. After a poll the
consumer has already sent its next fetch, and a broker answers the requests of a connection in their order:
Spark's requests for offsets wait until that fetch has new records or its time is up. So the last poll of a
slow topic took half a second more. Between two epochs nobody polls, so a short time costs no more fetches."""


def kafka_source(
    spark: SparkSession, topic: str, bootstrap: str, max_records: int, *, headers: bool = False
) -> DataFrame:
    """Return a topic from its beginning: read_committed, with offsets only in the checkpoint.

    Fails if the topic does not exist: Spark itself would fail only in its first epoch.

    Args:
        spark: the session.
        topic: its name.
        bootstrap: servers; empty: SLUICEGATE_KAFKA.
        max_records: most records of one epoch.
        headers: add the column `headers`.
    """
    check_topic(bootstrap, topic)
    return (
        spark.readStream.format("kafka")
        .options(**spark_options(bootstrap))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.poll.records", _POLL_RECORDS)
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_records)
        .option("includeHeaders", headers)
        .load()
    )


def check_topic(bootstrap: str, topic: str) -> None:
    """Check that a topic exists; raises TargetMissing, AccessDenied or SinkUnavailable."""
    connection = Connection.of(bootstrap)
    if KafkaAdmin(connection).wait_for(topic) is None:
        servers = connection.bootstrap
        raise TargetMissing(
            f"Kafka at {servers}: source topic {topic} does not exist",
            data="nothing was read or written; Sluicegate creates no topics but its own",
            do=f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic} "
            "--partitions <n>, or `sluicegate targets` for a packaged job, or correct the name",
        )


def unreadable() -> Column:
    """Return why a record's value is not text, null if it is."""
    return F.when(F.col("value").isNull(), "empty: the record has no value").when(
        ~F.is_valid_utf8(F.col("value").cast("string")), "unparsed: the value is not UTF-8"
    )


def dead_letter(reason: Column) -> Column:
    """Return a source record as a dead letter: reason, payload, its hash, and the record's position."""
    return dead_letter_columns(reason)[0]


def dead_letter_columns(reason: Column) -> list[Column]:
    """Return the dead letter as columns for a topic and for a table; see `letter_columns`."""
    return letter_columns(reason, F.col("value"), record_source())


def record_source() -> Column:
    """Return the position of a source record, for `SOURCE` and the `source` of a dead letter."""
    return F.struct("topic", "partition", "offset", "timestamp")
