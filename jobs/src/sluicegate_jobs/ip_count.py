"""ip_count: hits per IP address in tumbling windows of an access log, into Kafka and MySQL.

Wiring only. Reads lines in the combined format of nginx and Apache; a line that does not parse,
or comes past the lateness, goes to the dead letters with its reason and where it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, LateRows, MySQLSink, epochs
from sluicegate.cli.job import PackagedJob
from sluicegate.settings.job import JobSettings
from sluicegate.settings.restart import FIXED, STRATEGIES
from sluicegate.settings.schema import option
from sluicegate.spark.query import EpochsWriter
from sluicegate_jobs.dead_letters import create_letters_target, letters_sink
from sluicegate_jobs.generating import access_lines, to_topic
from sluicegate_jobs.ip_count_verify import verify
from sluicegate_jobs.kafka_source import dead_letter_columns, kafka_source
from sluicegate_jobs.targets import create_table, create_topics

LINE = (
    r"^([0-9A-Fa-f.:]{2,45}) [^ ]+ [^\[]*\[([0-9]{2}/[A-Z][a-z]{2}/(?:19|20)[0-9]{2}"
    r':[0-9]{2}:[0-9]{2}:[0-9]{2} [+-](?:0[0-9]|1[0-4])[0-5][0-9])\] "'
)
"""An address, identity and user, the time, and the begin of the request."""

TIME = "dd/MMM/yyyy:HH:mm:ss Z"

TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  window_start DATETIME NOT NULL,
  ip VARCHAR(45) NOT NULL,
  window_end DATETIME NOT NULL,
  hits BIGINT NOT NULL,
  PRIMARY KEY (window_start, ip)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""


@dataclass(frozen=True)
class IpCountSettings(JobSettings):
    """The settings of ip_count."""

    checkpoint: str = option(
        "checkpoints/ip_count", "checkpoint of this job alone: a path or s3://…"
    )
    interval: str = option("5 seconds", "time between epochs, or available-now")
    restart: str = option(FIXED, "when a failed driver is started again", choices=STRATEGIES)
    source: str = option("ip_count_source", "topic of access-log lines")
    topic: str = option("ip_count_sink", "topic of the counts")
    table: str = option("ip_count", "table of the counts")
    dead_letters: str = option("ip_count_dead_letters", "topic of lines that could not be counted")
    dead_letter_table: str = option("", "a table for them instead of the topic")
    window: str = option("5 seconds", "length of the tumbling windows, in event time")
    lateness: str = option("5 seconds", "how far behind the newest event a hit may be")


def build(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """Return the job, not started."""
    lines = parsed(
        kafka_source(spark, settings.source, settings.kafka, settings.max_records), settings
    )
    windows = F.window("at", settings.window)
    counts = (
        lines.where(F.col("broken").isNull())
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
    reason = F.coalesce("broken", F.lit("late: the window was closed before the hit came"))
    letters = lines.select("window_end", "broken", *dead_letter_columns(reason))
    kafka, mysql = settings.kafka or None, settings.mysql or None
    return epochs(
        {
            "counts": counts,
            "dead_letters": LateRows(letters, "window_end", F.col("broken").isNotNull()),
        },
        name="ip_count",
        sinks=[
            KafkaSink(
                settings.topic,
                key="ip",
                value="json",
                of="counts",
                bootstrap=kafka,
                trace_headers=True,
            ),
            MySQLSink(settings.table, keys=("window_start", "ip"), of="counts", url=mysql),
        ],
        dead_letters=letters_sink(
            settings.dead_letters,
            settings.dead_letter_table,
            kafka=settings.kafka,
            mysql=settings.mysql,
            of="dead_letters",
        ),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def parsed(source: DataFrame, settings: IpCountSettings) -> DataFrame:
    """Return each line with its address, time and window's end, or the reason why not."""
    line = source.withColumn("line", F.col("value").cast("string"))
    at = F.try_to_timestamp(F.regexp_extract("line", LINE, 2), F.lit(TIME))
    taken = line.withColumn("ip", F.regexp_extract("line", LINE, 1)).withColumn("at", at)
    # F.window drops rows without a time; a broken line must come through, with any window
    timed = F.coalesce("at", F.timestamp_seconds(F.lit(0)))
    return taken.withColumn("broken", _broken()).withColumn(
        "window_end", F.window(timed, settings.window).end
    )


def _broken() -> Column:
    return (
        F.when(F.col("value").isNull(), "empty: the record has no value")
        .when(F.col("ip") == "", "unparsed: not a line of the combined log format")
        .when(F.col("at").isNull(), "unparsed: there is no such time")
    )


def create_targets(settings: IpCountSettings) -> list[str]:
    """Create the topics and the table where they are missing; return what was created."""
    made = create_topics(settings.kafka, (settings.source, settings.topic), partitions=4)
    made += create_letters_target(
        settings.dead_letters,
        settings.dead_letter_table,
        kafka=settings.kafka,
        mysql=settings.mysql,
    )
    return made + create_table(settings.mysql, settings.table, TABLE)


def generate(settings: IpCountSettings, records: int, seed: int) -> str:
    """Put lines of an access log into the source; return what was done."""
    return to_topic(settings.kafka, settings.source, access_lines(records, seed))


JOB = PackagedJob(
    name="ip_count",
    summary="hits per IP address in 5-second windows of an access log, into Kafka and MySQL",
    settings=IpCountSettings,
    build=build,
    create_targets=create_targets,
    verify=verify,
    generate=generate,
)
