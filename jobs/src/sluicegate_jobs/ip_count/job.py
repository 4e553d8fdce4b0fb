"""ip_count: hits per IP address in tumbling windows of an access log, into Kafka and MySQL.

Reads lines in the combined log format of nginx and Apache. A line that does not parse, or is too late,
becomes a dead letter with its reason and source.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import DroppedRows, KafkaSink, LateRows, MySQLSink, epochs
from sluicegate.packaged_job import JobSettings, with_default
from sluicegate.settings.restart import FIXED
from sluicegate.settings.schema import option
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.filters import where_computed
from sluicegate.spark.times import parse_time
from sluicegate_jobs.dead_letters import create_dead_letter_target, dead_letter_sink
from sluicegate_jobs.kafka_source import dead_letter_columns, kafka_source
from sluicegate_jobs.targets import create_table, create_topics

LINE = (
    r"^[0-9A-Fa-f.:]{2,45} [^ ]+ [^\[]*\[([0-9]{2}/[A-Z][a-z]{2}/(?:19|20)[0-9]{2}"
    r':[0-9]{2}:[0-9]{2}:[0-9]{2} [+-](?:0[0-9]|1[0-4])[0-5][0-9])\] "'
)
"""The address, identity and user, the time (the only group), and the start of the request."""

TIME = "dd/MMM/yyyy:HH:mm:ss Z"

TABLE_COLUMNS = """
  window_start DATETIME NOT NULL,
  ip VARCHAR(45) NOT NULL,
  window_end DATETIME NOT NULL,
  hits BIGINT NOT NULL,
  PRIMARY KEY (window_start, ip)
"""


@dataclass(frozen=True)
class IpCountSettings(JobSettings):
    """The settings of ip_count."""

    checkpoint: str = with_default("checkpoint", "checkpoints/ip_count")
    interval: str = with_default("interval", "5 seconds")
    restart: str = with_default("restart", FIXED)
    source: str = option("ip_count_source", "Topic of access-log lines.")
    topic: str = option("ip_count_sink", "Topic of the counts.")
    table: str = option("ip_count", "Table of the counts.")
    dead_letters: str = option(
        "ip_count_dead_letters", "Topic of dead letters: lines that were not counted."
    )
    dead_letter_table: str = option("", "Table of dead letters, used instead of the topic.")
    window: str = option("5 seconds", "Length of the tumbling windows in event time.")
    lateness: str = option("5 seconds", "Time by which a hit may be older than the newest event.")


def build(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """Return the job, not started."""
    lines = parse_lines(
        kafka_source(spark, settings.source, settings.kafka, settings.max_records), settings
    )
    windows = F.window("at", settings.window)
    counts = (
        where_computed(lines, F.col("invalid").isNull())
        .withWatermark("at", settings.lateness)
        .groupBy(windows, "ip")
        .agg(F.count("*").alias("hits"))
        .select(
            F.col("window.start").alias("window_start"),
            "ip",
            F.col("window.end").alias("window_end"),
            "hits",
        )
    )
    reason = F.coalesce("invalid", F.lit("late: the window was closed before the hit arrived"))
    letters = lines.select("window_end", "invalid", *dead_letter_columns(reason))
    return epochs(
        {
            "counts": counts,
            "dead_letters": DroppedRows(
                LateRows(letters, "window_end", F.col("invalid").isNotNull())
            ),
        },
        name="ip_count",
        sinks=[
            KafkaSink(
                settings.topic,
                key="ip",
                value="json",
                of="counts",
                bootstrap=settings.kafka,
                trace_headers=True,
            ),
            MySQLSink(settings.table, keys=("window_start", "ip"), of="counts", url=settings.mysql),
        ],
        dead_letters=dead_letter_sink(settings, settings.dead_letters, settings.dead_letter_table),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def parse_lines(source: DataFrame, settings: IpCountSettings) -> DataFrame:
    """Return each line with its address, time and the end of its window, or the reason why it is invalid."""
    line = source.withColumn("line", F.col("value").cast("string"))
    matched = line.withColumn("time", F.regexp_extract("line", LINE, 1))
    fields = matched.withColumn("ip", F.substring_index("line", " ", 1)).withColumn(
        "at", parse_time(source.sparkSession, F.col("time"), TIME)
    )
    # F.window drops rows without a time; an invalid line must stay, with any window.
    timed = F.coalesce("at", F.timestamp_seconds(F.lit(0)))
    return fields.withColumn("invalid", _invalid()).withColumn(
        "window_end", F.window(timed, settings.window).end
    )


def _invalid() -> Column:
    return (
        F.when(F.col("value").isNull(), "empty: the record has no value")
        .when(F.col("time") == "", "unparsed: not a line of the combined log format")
        .when(F.col("at").isNull(), "unparsed: the time does not exist")
    )


def create_targets(settings: IpCountSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    created = create_topics(settings.kafka, (settings.source, settings.topic))
    created += create_dead_letter_target(
        settings, settings.dead_letters, settings.dead_letter_table
    )
    return created + create_table(settings.mysql, settings.table, TABLE_COLUMNS)
