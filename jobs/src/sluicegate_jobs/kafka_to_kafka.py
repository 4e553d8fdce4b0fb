"""kafka_to_kafka: a topic into another, its values transformed; the rest of each record is kept.

Wiring only. Key, headers and time of a record are kept, a null value (a tombstone) passes as it is,
and the records of a key stay in their order: a task reads a partition of the source from front to
back, and staged rows are written in the order of tasks. A value that is no text, or that the
transformation makes null (which would delete its key), goes to the dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, epochs
from sluicegate.cli.job import PackagedJob
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.outputs import SOURCE
from sluicegate.spark.query import EpochsWriter
from sluicegate_jobs.generating import keyed_messages, to_topic
from sluicegate_jobs.kafka_source import dead_letter, kafka_source, record_source, unreadable
from sluicegate_jobs.kafka_to_kafka_verify import verify
from sluicegate_jobs.targets import create_topics

BY_KEY, SAME = "by-key", "same"


@dataclass(frozen=True)
class KafkaToKafkaSettings(JobSettings):
    """The settings of kafka_to_kafka."""

    checkpoint: str = option(
        "checkpoints/kafka_to_kafka", "checkpoint of this job alone: a path or s3://…"
    )
    interval: str = option("5 seconds", "time between epochs, or available-now")
    source: str = option("kafka_to_kafka_source", "topic that is read")
    topic: str = option("kafka_to_kafka_sink", "topic that is written")
    dead_letters: str = option("kafka_to_kafka_dead_letters", "topic of what cannot be transformed")
    transform: str = option(
        "upper(value)",
        "Spark SQL of the new value, of value, key, topic, partition, offset, timestamp",
    )
    partitions: str = option(
        BY_KEY,
        "where a record goes: where its key does, or to the same number",
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
    read = text.withColumn("broken", F.when(~tombstone, unreadable())).withColumn(
        "new",
        F.when(~tombstone & F.col("broken").isNull(), F.expr(settings.transform).cast("string")),
    )
    lost = ~tombstone & F.col("new").isNull()
    reason = F.coalesce("broken", F.lit("unparsed: the transformation gives null"))
    records = read.where(~lost).select(
        F.col("raw_key").alias("key"),
        F.col("new").alias("value"),
        "headers",
        "partition",
        "timestamp",
        record_source().alias(SOURCE),
    )
    letters = (
        read.where(lost).withColumn("value", bytes_of).select(dead_letter(reason).alias("value"))
    )
    kafka = settings.kafka or None
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
                bootstrap=kafka,
            )
        ],
        dead_letters=KafkaSink(
            settings.dead_letters, value="value", of="dead_letters", bootstrap=kafka
        ),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: KafkaToKafkaSettings) -> list[str]:
    """Create the topics where they are missing; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    return create_topics(settings.kafka, topics, partitions=4)


def generate(settings: KafkaToKafkaSettings, records: int, seed: int) -> str:
    """Put records with keys and headers into the source; return what was done."""
    return to_topic(settings.kafka, settings.source, keyed_messages(records, seed))


JOB = PackagedJob(
    name="kafka_to_kafka",
    summary="a topic into another: values transformed, keys, headers, times and order kept",
    settings=KafkaToKafkaSettings,
    build=build,
    create_targets=create_targets,
    verify=verify,
    generate=generate,
)
