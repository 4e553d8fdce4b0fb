"""socket_to_kafka: lines from a TCP socket into a Kafka topic, each exactly once after its receipt.

TCP cannot be replayed, so the job logs the lines that it receives to the checkpoint volume before it
processes them. A line that is too long, or truncated by a broken connection, becomes a dead letter. With
`--interval available-now` the job receives nothing and processes the logged lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import AVAILABLE_NOW, KafkaSink, epochs
from sluicegate.packaged_job import JobSettings, PackagedJob, with_default
from sluicegate.settings.schema import option
from sluicegate.sinks.reserved_columns import SOURCE
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.socket.receiver import ReceiverLimits, SocketReceiver
from sluicegate.spark.socket.source import received_lines
from sluicegate_jobs.dead_letters import create_dead_letter_target, dead_letter_sink, letter_columns
from sluicegate_jobs.targets import create_topics


@dataclass(frozen=True)
class SocketToKafkaSettings(JobSettings):
    """The settings of socket_to_kafka; `max_records` limits the lines received ahead of an epoch."""

    checkpoint: str = with_default("checkpoint", "checkpoints/socket_to_kafka")
    interval: str = with_default("interval", "1 second")
    address: str = option("localhost:9999", "Server that sends the lines, as host:port.")
    topic: str = option("socket_lines", "Topic of the lines.")
    dead_letters: str = option(
        "socket_dead_letters", "Topic of dead letters: lines that are too long or truncated."
    )
    dead_letter_table: str = option("", "Table of dead letters, used instead of the topic.")
    max_line_bytes: int = option(
        1_000_000, "Maximum length of a line in bytes. A longer line becomes a dead letter."
    )


def build(spark: SparkSession, settings: SocketToKafkaSettings) -> EpochsWriter:
    """Return the job, not started."""
    limits = ReceiverLimits(line_bytes=settings.max_line_bytes, ahead_lines=settings.max_records)
    receiver = SocketReceiver(settings.address, limits)
    received = received_lines(spark, settings.checkpoint)
    source = F.struct(F.col("peer").alias("socket"), "segment", "number", "received_at", "length")
    valid = received.where("broken IS NULL").select("line", source.alias(SOURCE))
    letters = received.where("broken IS NOT NULL").select(
        *letter_columns(F.col("broken"), F.col("line"), source, F.col("sha256"))
    )
    return epochs(
        {"lines": valid, "dead_letters": letters},
        name="socket_to_kafka",
        sinks=[KafkaSink(settings.topic, value="line", of="lines", bootstrap=settings.kafka)],
        dead_letters=dead_letter_sink(settings, settings.dead_letters, settings.dead_letter_table),
        checkpoint=settings.checkpoint,
        settings=settings,
        services=() if settings.interval == AVAILABLE_NOW else (receiver,),
    )


def create_targets(settings: SocketToKafkaSettings) -> list[str]:
    """Create missing topics, with one partition, so that lines stay in order."""
    created = create_topics(settings.kafka, (settings.topic,), partitions=1)
    return created + create_dead_letter_target(
        settings, settings.dead_letters, settings.dead_letter_table
    )


JOB = PackagedJob(
    name="socket_to_kafka",
    summary="Write lines from a TCP socket to a Kafka topic, each exactly once after its receipt.",
    settings=SocketToKafkaSettings,
    build=build,
    create_targets=create_targets,
)
