"""word_count: how often each word has come, from a Kafka topic into a MySQL table.

Wiring only. A word is what stands between white space, its case kept; a line that is no text goes to
the dead letters. So does a count whose word is too long for the table's key, each time it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink, epochs
from sluicegate.cli.job import PackagedJob
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.query import EpochsWriter
from sluicegate_jobs.generating import text_lines, to_topic
from sluicegate_jobs.kafka_source import dead_letter, kafka_source, unreadable
from sluicegate_jobs.targets import create_table, create_topics
from sluicegate_jobs.word_count_verify import verify

TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  word VARCHAR(255) NOT NULL,
  count BIGINT NOT NULL,
  PRIMARY KEY (word)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""
"""Bytewise: by other collations `Cafe` and `café` are one key to MySQL and two words to Spark."""


@dataclass(frozen=True)
class WordCountSettings(JobSettings):
    """The settings of word_count."""

    checkpoint: str = option(
        "checkpoints/word_count", "checkpoint of this job alone: a path or s3://…"
    )
    interval: str = option("10 seconds", "time between epochs, or available-now")
    source: str = option("word_count_source", "topic of text lines")
    table: str = option("t_wordcount", "table of the counts")
    dead_letters: str = option("word_count_dead_letters", "topic of what could not be counted")


def build(spark: SparkSession, settings: WordCountSettings) -> EpochsWriter:
    """Return the job, not started."""
    records = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    lines = records.withColumn("broken", unreadable())
    text = F.col("value").cast("string")
    counts = (
        lines.where(F.col("broken").isNull())
        .select(F.explode(F.split(text, r"\s+")).alias("word"))
        .where(F.col("word") != "")
        .groupBy("word")
        .agg(F.count("*").alias("count"))
    )
    letters = lines.where(F.col("broken").isNotNull()).select(
        dead_letter(F.col("broken")).alias("value")
    )
    return epochs(
        {"counts": counts, "dead_letters": letters},
        name="word_count",
        sinks=[
            MySQLSink(settings.table, keys=("word",), of="counts", url=settings.mysql or None),
        ],
        dead_letters=KafkaSink(
            settings.dead_letters,
            value="value",
            of="dead_letters",
            bootstrap=settings.kafka or None,
        ),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: WordCountSettings) -> list[str]:
    """Create the topics and the table where they are missing; return what was created."""
    made = create_topics(settings.kafka, (settings.source, settings.dead_letters), partitions=4)
    return made + create_table(settings.mysql, settings.table, TABLE)


def generate(settings: WordCountSettings, records: int, seed: int) -> str:
    """Put lines of text into the source; return what was done."""
    return to_topic(settings.kafka, settings.source, text_lines(records, seed))


JOB = PackagedJob(
    name="word_count",
    summary="a running count of each word of a topic, into MySQL",
    settings=WordCountSettings,
    build=build,
    create_targets=create_targets,
    verify=verify,
    generate=generate,
)
