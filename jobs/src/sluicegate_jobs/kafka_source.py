"""A Kafka topic as a stream, and a record of it as a dead letter."""

from __future__ import annotations

import time

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.protocol.errors import TargetMissing
from sluicegate.sinks.kafka.access import servers_of, spark_options
from sluicegate_jobs.dead_letters import letter_columns
from sluicegate_jobs.kafka_admin import ANSWER_S, asked

_METADATA_LAG_S = 2.0
"""Brokers learn of a new topic a little late."""


def kafka_source(
    spark: SparkSession, topic: str, bootstrap: str, max_records: int, *, headers: bool = False
) -> DataFrame:
    """Return a topic from its beginning: read_committed, offsets kept in the checkpoint alone.

    Args:
        spark: the session.
        topic: its name.
        bootstrap: servers; empty: SLUICEGATE_KAFKA.
        max_records: of one epoch at most.
        headers: give the records' headers too, as the column `headers`.

    Raises:
        TargetMissing: there is no such topic; Spark itself would say so only in its first epoch.
        SinkUnavailable: no broker answers.
    """
    check_topic(servers_of(bootstrap), topic)
    return (
        spark.readStream.format("kafka")
        .options(**spark_options(bootstrap))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_records)
        .option("includeHeaders", headers)
        .load()
    )


def check_topic(servers: str, topic: str) -> None:
    """See that a topic is there; it is never created by asking.

    Raises:
        TargetMissing, AccessDenied, SinkUnavailable: as they are called.
    """
    lag = time.monotonic() + _METADATA_LAG_S
    while True:
        try:
            asked(servers, f"describing topic {topic}", lambda admin: _describe(admin, topic))
        except TargetMissing as error:
            if time.monotonic() > lag:
                raise TargetMissing(
                    f"Kafka at {servers}: there is no source topic {topic}",
                    data="nothing was read or written; Sluicegate creates no topics but its own",
                    do=f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic} "
                    "--partitions <n>, or `sluicegate targets` for a packaged job, or correct its name",
                ) from error
            time.sleep(0.05)
        else:
            return


def _describe(admin: AdminClient, topic: str) -> None:
    admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_S)[topic].result(
        ANSWER_S
    )


def unreadable() -> Column:
    """Return why a record's value is no text, null where it is."""
    return F.when(F.col("value").isNull(), "empty: the record has no value").when(
        ~F.is_valid_utf8(F.col("value").cast("string")), "unparsed: the value is not UTF-8"
    )


_CORRUPT = "_corrupt"


def json_row(text: Column, columns: str) -> Column:
    """Return a JSON object as a struct, null where the text is no object.

    Args:
        text: the JSON, as a string.
        columns: names and types, as DDL; a value that is absent, or of another type, is null.
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    # without the column for corrupt records a cut line would be a row of what came before the cut
    row = F.from_json(text, f"{columns}, {_CORRUPT} string", options)
    return F.when(row.getField(_CORRUPT).isNull(), row)


def dead_letter(reason: Column) -> Column:
    """Return a source record as a dead letter: reason, payload, its hash, and where it came from."""
    return dead_letter_columns(reason)[0]


def dead_letter_columns(reason: Column) -> list[Column]:
    """Return the same for a topic, as the column `value`, and for a table; see `letter_columns`."""
    return letter_columns(reason, F.col("value"), record_source())


def record_source() -> Column:
    """Return where a source record stands: what a dead letter's `source`, and `SOURCE`, holds."""
    return F.struct("topic", "partition", "offset", "timestamp")
