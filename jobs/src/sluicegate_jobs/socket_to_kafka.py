"""socket_to_kafka: lines from a TCP socket into a Kafka topic, each line once from its receipt on.

Wiring only. The job connects to a server of lines and logs what it receives on the checkpoint
volume before it processes it: TCP cannot be read again. A line that is too long, or that was torn
by a broken connection, goes to the dead letters. With `--interval available-now` nothing is
received: what is logged is processed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import AVAILABLE_NOW, KafkaSink, epochs
from sluicegate.cli.job import PackagedJob
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.outputs import SOURCE
from sluicegate.spark.query import EpochsWriter
from sluicegate.spark.socket_receiver import ReceiverLimits, SocketReceiver
from sluicegate.spark.socket_source import received_lines
from sluicegate_jobs.dead_letters import create_letters_target, letter_columns, letters_sink
from sluicegate_jobs.targets import create_topics


@dataclass(frozen=True)
class SocketToKafkaSettings(JobSettings):
    """The settings of socket_to_kafka; `max_records`: lines that are received ahead of an epoch."""

    checkpoint: str = option(
        "checkpoints/socket_to_kafka", "checkpoint of this job alone: a path or s3://…"
    )
    interval: str = option("1 second", "time between epochs, or available-now")
    address: str = option("localhost:9999", "host:port of the server of lines")
    topic: str = option("socket_lines", "topic of the lines")
    dead_letters: str = option("socket_dead_letters", "topic of lines that are none")
    dead_letter_table: str = option("", "a table for them instead of the topic")
    max_line_bytes: int = option(1_000_000, "a longer line is a dead letter")


def build(spark: SparkSession, settings: SocketToKafkaSettings) -> EpochsWriter:
    """Return the job, not started."""
    limits = ReceiverLimits(line_bytes=settings.max_line_bytes, ahead_lines=settings.max_records)
    receiver = SocketReceiver(settings.address, limits)
    received = received_lines(spark, settings.checkpoint)
    source = F.struct(
        F.lit(settings.address).alias("socket"), "segment", "number", "received_at", "length"
    )
    whole = received.where("broken IS NULL").select("line", source.alias(SOURCE))
    letters = received.where("broken IS NOT NULL").select(
        *letter_columns(F.col("broken"), F.col("line"), source, F.col("sha256"))
    )
    kafka, mysql = settings.kafka, settings.mysql
    return epochs(
        {"lines": whole, "dead_letters": letters},
        name="socket_to_kafka",
        sinks=[KafkaSink(settings.topic, value="line", of="lines", bootstrap=kafka or None)],
        dead_letters=letters_sink(
            settings.dead_letters,
            settings.dead_letter_table,
            kafka=kafka,
            mysql=mysql,
            of="dead_letters",
        ),
        checkpoint=settings.checkpoint,
        settings=settings,
        beside=None if settings.interval == AVAILABLE_NOW else receiver,
    )


def create_targets(settings: SocketToKafkaSettings) -> list[str]:
    """Create the topics that are missing: one partition, so that lines keep their order."""
    made = create_topics(settings.kafka, (settings.topic,), partitions=1)
    return made + create_letters_target(
        settings.dead_letters,
        settings.dead_letter_table,
        kafka=settings.kafka,
        mysql=settings.mysql,
    )


JOB = PackagedJob(
    name="socket_to_kafka",
    summary="lines from a TCP socket into a Kafka topic, each once from its receipt on",
    settings=SocketToKafkaSettings,
    build=build,
    create_targets=create_targets,
)
