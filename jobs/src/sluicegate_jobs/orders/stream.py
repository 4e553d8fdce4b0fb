"""orders_stream: orders by user in tumbling windows, by streaming SQL, into Kafka and MySQL.

`sluicegate generate orders_stream` fills the source topic: Spark's rate source derives its rows from the
clock, so a restart would see other rows. Late orders and invalid lines become dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, LateRows, MySQLSink, epochs
from sluicegate.packaged_job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.generators import orders, to_topic
from sluicegate_jobs.kafka_source import dead_letter, kafka_source
from sluicegate_jobs.orders.schema import LATENESS, WINDOW, read_orders
from sluicegate_jobs.targets import create_table, create_topics

QUERY = f"""
SELECT window.start AS window_start, user, count(*) AS orders,
       max(amount) AS largest, min(amount) AS smallest
FROM orders
GROUP BY window(time, '{WINDOW}'), user
"""  # noqa: S608 - a constant

TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  window_start DATETIME NOT NULL,
  user VARCHAR(64) NOT NULL,
  orders BIGINT NOT NULL,
  largest DECIMAL(12,2) NOT NULL,
  smallest DECIMAL(12,2) NOT NULL,
  PRIMARY KEY (window_start, user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""


@dataclass(frozen=True)
class OrdersStreamSettings(JobSettings):
    """The settings of orders_stream."""

    checkpoint: str = option(
        "checkpoints/orders_stream",
        "Checkpoint of this job alone: a path, file:///path or s3://bucket/prefix.",
    )
    interval: str = option("5 seconds", "Time between epochs, or available-now.")
    source: str = option("orders_stream_source", "Topic of orders, each a JSON object.")
    topic: str = option("orders_stream_sink", "Topic of the windows.")
    table: str = option("orders_by_window", "Table of the windows.")
    dead_letters: str = option(
        "orders_stream_dead_letters", "Topic of dead letters: late and invalid orders."
    )


def build(spark: SparkSession, settings: OrdersStreamSettings) -> EpochsWriter:
    """Return the job, not started."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    read = read_orders(source)
    valid = read.where(F.col("invalid").isNull()).select("user", "time", "amount")
    valid.withWatermark("time", LATENESS).createOrReplaceTempView("orders")
    reason = F.coalesce("invalid", F.lit("late: the window was closed before the order arrived"))
    # F.window drops rows without a time; an invalid line must stay, with any window.
    timed = F.coalesce("time", F.timestamp_seconds(F.lit(0)))
    letters = read.select(
        F.window(timed, WINDOW).end.alias("window_end"),
        "invalid",
        dead_letter(reason).alias("value"),
    )
    kafka, mysql = settings.kafka or None, settings.mysql or None
    return epochs(
        {
            "windows": spark.sql(QUERY),
            "dead_letters": LateRows(letters, "window_end", F.col("invalid").isNotNull()),
        },
        name="orders_stream",
        sinks=[
            KafkaSink(settings.topic, key="user", of="windows", bootstrap=kafka),
            MySQLSink(settings.table, keys=("window_start", "user"), of="windows", url=mysql),
        ],
        dead_letters=KafkaSink(
            settings.dead_letters, value="value", of="dead_letters", bootstrap=kafka
        ),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: OrdersStreamSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    created = create_topics(settings.kafka, topics, partitions=4)
    return created + create_table(settings.mysql, settings.table, TABLE)


def generate(settings: OrdersStreamSettings, records: int, seed: int) -> str:
    """Put orders into the source; return a description."""
    return to_topic(settings.kafka, settings.source, orders(records, seed))
