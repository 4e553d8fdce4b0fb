"""orders_stream: orders by user in tumbling windows, by streaming SQL, into Kafka and MySQL.

`sluicegate generate orders_stream` fills the source topic: Spark's rate source derives its rows from the
clock, so a restart would see other rows. Late orders and invalid lines become dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import DroppedRows, KafkaSink, LateRows, MySQLSink, epochs
from sluicegate.packaged_job import JobSettings, with_default
from sluicegate.settings.schema import option
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.filters import where_computed
from sluicegate_jobs.dead_letters import dead_letter_sink
from sluicegate_jobs.kafka_source import dead_letter, kafka_source
from sluicegate_jobs.orders.schema import LATENESS, WINDOW, read_orders
from sluicegate_jobs.targets import create_table, create_topics

QUERY = f"""
SELECT window.start AS window_start, user, count(*) AS orders,
       max(amount) AS largest, min(amount) AS smallest
FROM orders
GROUP BY window(time, '{WINDOW}'), user
"""  # noqa: S608 - a constant

TABLE_COLUMNS = """
  window_start DATETIME NOT NULL,
  user VARCHAR(64) NOT NULL,
  orders BIGINT NOT NULL,
  largest DECIMAL(12,2) NOT NULL,
  smallest DECIMAL(12,2) NOT NULL,
  PRIMARY KEY (window_start, user)
"""


@dataclass(frozen=True)
class OrdersStreamSettings(JobSettings):
    """The settings of orders_stream."""

    checkpoint: str = with_default("checkpoint", "checkpoints/orders_stream")
    interval: str = with_default("interval", "5 seconds")
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
    valid = where_computed(read, F.col("invalid").isNull()).select("user", "time", "amount")
    valid.withWatermark("time", LATENESS).createOrReplaceTempView("orders")
    reason = F.coalesce("invalid", F.lit("late: the window was closed before the order arrived"))
    # F.window drops rows without a time; an invalid line must stay, with any window.
    timed = F.coalesce("time", F.timestamp_seconds(F.lit(0)))
    letters = read.select(
        F.window(timed, WINDOW).end.alias("window_end"), "invalid", dead_letter(reason)
    )
    keys = ("window_start", "user")
    return epochs(
        {
            "windows": spark.sql(QUERY),
            "dead_letters": DroppedRows(
                LateRows(letters, "window_end", F.col("invalid").isNotNull())
            ),
        },
        name="orders_stream",
        sinks=[
            KafkaSink(settings.topic, key="user", of="windows", bootstrap=settings.kafka),
            MySQLSink(settings.table, keys=keys, of="windows", url=settings.mysql),
        ],
        dead_letters=dead_letter_sink(settings, settings.dead_letters),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: OrdersStreamSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    created = create_topics(settings.kafka, topics)
    return created + create_table(settings.mysql, settings.table, TABLE_COLUMNS)
