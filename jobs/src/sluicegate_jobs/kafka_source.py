"""A Kafka topic as a stream, and a record of it as a dead letter."""

from __future__ import annotations

import logging
import os
import time

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.protocol.errors import SettingsInvalid, SinkUnavailable, TargetMissing
from sluicegate_jobs.dead_letters import letter_columns

_ANSWER_S = 10.0
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
    servers = bootstrap or os.environ.get("SLUICEGATE_KAFKA", "")
    if not servers:
        raise SettingsInvalid("no Kafka servers are given", do="set SLUICEGATE_KAFKA or --kafka")
    check_topic(servers, topic)
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_records)
        .option("includeHeaders", headers)
        .load()
    )


def check_topic(servers: str, topic: str) -> None:
    """See that a topic is there; it is never created by asking."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=logging.getLogger(__name__))
    lag = time.monotonic() + _METADATA_LAG_S
    while True:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_S)
        try:
            asked[topic].result(_ANSWER_S)
        except (KafkaException, TimeoutError) as error:
            said = error.args[0] if isinstance(error, KafkaException) else None
            if said is None or said.name() != "UNKNOWN_TOPIC_OR_PART":
                raise SinkUnavailable(
                    f"Kafka at {servers} does not say whether there is a source topic {topic}: "
                    f"{said.str() if said else f'no answer in {_ANSWER_S:.0f} s'}",
                    data="nothing was read or written",
                    do="start the broker, or correct the servers (SLUICEGATE_KAFKA)",
                ) from error
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
