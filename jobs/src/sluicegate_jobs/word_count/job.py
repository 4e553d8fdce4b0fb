"""word_count: a running count of each word of a Kafka topic, into a MySQL table.

Words are separated by whitespace; case is significant. A line that is not text becomes a dead letter. So
does a count whose word is too long for the table's key, each time it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import MySQLSink, epochs
from sluicegate.packaged_job import JobSettings, with_default
from sluicegate.settings.schema import option
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.dead_letters import dead_letter_sink
from sluicegate_jobs.kafka_source import dead_letter, kafka_source, unreadable
from sluicegate_jobs.targets import create_table, create_topics

TABLE_COLUMNS = """
  word VARCHAR(255) NOT NULL,
  count BIGINT NOT NULL,
  PRIMARY KEY (word)
"""


@dataclass(frozen=True)
class WordCountSettings(JobSettings):
    """The settings of word_count."""

    checkpoint: str = with_default("checkpoint", "checkpoints/word_count")
    interval: str = with_default("interval", "10 seconds")
    source: str = option("word_count_source", "Topic of text lines.")
    table: str = option("t_wordcount", "Table of the counts.")
    dead_letters: str = option(
        "word_count_dead_letters", "Topic of dead letters: lines and counts that were not counted."
    )


def build(spark: SparkSession, settings: WordCountSettings) -> EpochsWriter:
    """Return the job, not started."""
    records = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    lines = records.withColumn("invalid", unreadable())
    text = F.col("value").cast("string")
    counts = (
        lines.where(F.col("invalid").isNull())
        .select(F.explode(F.split(text, r"\s+")).alias("word"))
        .where(F.col("word") != "")
        .groupBy("word")
        .agg(F.count("*").alias("count"))
    )
    letters = lines.where(F.col("invalid").isNotNull()).select(dead_letter(F.col("invalid")))
    return epochs(
        {"counts": counts, "dead_letters": letters},
        name="word_count",
        sinks=[MySQLSink(settings.table, keys=("word",), of="counts", url=settings.mysql)],
        dead_letters=dead_letter_sink(settings, settings.dead_letters),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: WordCountSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    created = create_topics(settings.kafka, (settings.source, settings.dead_letters))
    return created + create_table(settings.mysql, settings.table, TABLE_COLUMNS)
