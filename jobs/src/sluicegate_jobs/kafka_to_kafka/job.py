"""kafka_to_kafka: copies a topic to another one and transforms the values.

Keys, headers and times are preserved, a null value (a tombstone) passes unchanged, and the records of a
key stay in order: a task reads a partition of the source sequentially, and staged rows are written in
the order of tasks. A value that is not text, or that the transformation makes null (which would delete
its key), becomes a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, epochs
from sluicegate.packaged_job import JobSettings, with_default
from sluicegate.settings.schema import option
from sluicegate.sinks.reserved_columns import SOURCE
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.dead_letters import dead_letter_sink
from sluicegate_jobs.kafka_source import dead_letter, kafka_source, record_source, unreadable
from sluicegate_jobs.targets import create_topics

BY_KEY, SAME = "by-key", "same"


@dataclass(frozen=True)
class KafkaToKafkaSettings(JobSettings):
    """The settings of kafka_to_kafka."""

    checkpoint: str = with_default("checkpoint", "checkpoints/kafka_to_kafka")
    interval: str = with_default("interval", "5 seconds")
    source: str = option("kafka_to_kafka_source", "Topic to read.")
    topic: str = option("kafka_to_kafka_sink", "Topic to write.")
    dead_letters: str = option(
        "kafka_to_kafka_dead_letters", "Topic of dead letters: values that cannot be transformed."
    )
    transform: str = option(
        "upper(value)",
        "Spark SQL expression of the new value. It may use value, key, topic, partition, offset and "
        "timestamp.",
    )
    partitions: str = option(
        BY_KEY,
        "Partition to which a record is written. by-key: the partition of its key. same: the "
        "partition with the number of its source partition.",
        choices=(BY_KEY, SAME),
    )


def build(spark: SparkSession, settings: KafkaToKafkaSettings) -> EpochsWriter:
    """Return the job, not started."""
    source = kafka_source(
        spark, settings.source, settings.kafka, settings.max_records, headers=True
    )
    text = source.withColumn("raw_key", F.col("key")).withColumns(
        {name: F.col(name).cast("string") for name in ("key", "value")}
    )
    tombstone = F.col("value").isNull()
    bytes_of = F.col("value").cast("binary")
    read = text.withColumn("invalid", F.when(~tombstone, unreadable())).withColumn(
        "transformed",
        F.when(~tombstone & F.col("invalid").isNull(), F.expr(settings.transform).cast("string")),
    )
    dead = ~tombstone & F.col("transformed").isNull()
    reason = F.coalesce("invalid", F.lit("unparsed: the transformation gives null"))
    records = read.where(~dead).select(
        F.col("raw_key").alias("key"),
        F.col("transformed").alias("value"),
        "headers",
        "partition",
        "timestamp",
        record_source().alias(SOURCE),
    )
    letters = read.where(dead).withColumn("value", bytes_of).select(dead_letter(reason))
    return epochs(
        {"records": records, "dead_letters": letters},
        name="kafka_to_kafka",
        sinks=[
            KafkaSink(
                settings.topic,
                key="key",
                value="value",
                headers="headers",
                partition="partition" if settings.partitions == SAME else None,
                timestamp="timestamp",
                of="records",
                bootstrap=settings.kafka,
            )
        ],
        dead_letters=dead_letter_sink(settings, settings.dead_letters),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: KafkaToKafkaSettings) -> list[str]:
    """Create missing topics; return what was created."""
    return create_topics(settings.kafka, (settings.source, settings.topic, settings.dead_letters))
