"""joined_payments: joins orders with their payments, two streams of one topic, into Kafka and MySQL.

For the long run only: no packaged job has a stream-stream join. A payment within a minute after its order
pays it. Both wait for each other in the state, so an epoch whose state is lost or used twice shows as a
pair that is missing or repeated. The table adds up how often it got a pair.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink, epochs
from sluicegate.packaged_job import JobSettings, PackagedJob, with_default
from sluicegate.settings.schema import option
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.json_objects import parse_json
from sluicegate_jobs.dead_letters import dead_letter_sink
from sluicegate_jobs.kafka_source import dead_letter, kafka_source
from sluicegate_jobs.targets import create_table, create_topics

ORDER, PAYMENT = "order", "payment"
WITHIN_S = 60
"""How long after an order its payment counts."""

_INPUT = "kind string, id string, time string, cents bigint"
_WATERMARK = "2 hours"
"""Of the time of the events, a quarter of an hour of the traffic: more than the job is ever behind. A
partition that is added then gets the newest events while the others still have older ones, and a join drops
late records without a dead letter."""

_TABLE_COLUMNS = """
  id VARCHAR(64) NOT NULL PRIMARY KEY,
  pairs BIGINT NOT NULL,
  cents BIGINT NOT NULL
"""
_BEGIN = datetime(2026, 1, 7, 12, 0, 0, tzinfo=UTC)
_ORDER_EVERY_S = 0.4
_INVALID_EVERY = 50


@dataclass(frozen=True)
class JoinedPaymentsSettings(JobSettings):
    """The settings of joined_payments."""

    checkpoint: str = with_default("checkpoint", "checkpoints/joined_payments")
    source: str = option("joined_payments_source", "Topic of orders and payments in JSON.")
    topic: str = option("joined_payments_sink", "Topic of the orders that were paid.")
    table: str = option("joined_payments", "Table of the orders that were paid.")
    dead_letters: str = option("joined_payments_dead_letters", "Topic of dead letters.")


def build(spark: SparkSession, settings: JoinedPaymentsSettings) -> EpochsWriter:
    """Return the job, not started."""
    orders, payments = _stream(spark, settings, ORDER), _stream(spark, settings, PAYMENT)
    orders = orders.select(F.col("id"), F.col("at").alias("ordered"), "cents")
    payments = payments.select(F.col("id").alias("paid_id"), F.col("at").alias("paid"))
    in_time = F.col("paid").between(
        F.col("ordered"), F.col("ordered") + F.expr(f"INTERVAL {WITHIN_S} SECONDS")
    )
    joined = orders.join(payments, (F.col("id") == F.col("paid_id")) & in_time)
    read, valid = _read(spark, settings)
    letters = read.where(~valid).select(dead_letter(F.lit("unparsed: not an order or a payment")))
    return epochs(
        {"paid": joined.select("id", F.lit(1).alias("pairs"), "cents"), "dead_letters": letters},
        name="joined_payments",
        sinks=[
            KafkaSink(settings.topic, key="id", of="paid", bootstrap=settings.kafka),
            MySQLSink(
                settings.table, keys=("id",), on_conflict="add", of="paid", url=settings.mysql
            ),
        ],
        dead_letters=dead_letter_sink(settings, settings.dead_letters),
        checkpoint=settings.checkpoint,
        settings=settings,
        output_mode="append",
    )


def _read(spark: SparkSession, settings: JoinedPaymentsSettings) -> tuple[DataFrame, Column]:
    """Return the records with the column row, and whether a record is valid."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    read = source.withColumn("row", parse_json(spark, F.col("value"), _INPUT))
    read = read.withColumn("at", F.try_to_timestamp("row.time"))
    known = F.col("row.kind").isin(ORDER, PAYMENT) & F.col("row.cents").isNotNull()
    return read, F.coalesce(
        known & F.col("row.id").isNotNull() & F.col("at").isNotNull(), F.expr("false")
    )


def _stream(spark: SparkSession, settings: JoinedPaymentsSettings, kind: str) -> DataFrame:
    read, valid = _read(spark, settings)
    rows = read.where(valid & (F.col("row.kind") == kind)).select("row.id", "at", "row.cents")
    return rows.withWatermark("at", _WATERMARK)


def create_targets(settings: JoinedPaymentsSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    created = create_topics(settings.kafka, topics)
    return created + create_table(settings.mysql, settings.table, _TABLE_COLUMNS)


JOB = PackagedJob(
    "joined_payments",
    "Join orders with their payments.",
    JoinedPaymentsSettings,
    build,
    create_targets,
)


def orders_and_payments(seed: int) -> Iterator[bytes]:
    """Yield orders and payments without end, in the order of their times; one in 50 is invalid.

    An order in 20 is never paid, and one in 10 too late.
    """
    rng = random.Random(seed)
    due: list[tuple[datetime, str, int]] = []
    number = emitted = 0
    while True:
        at = _BEGIN + timedelta(seconds=number * _ORDER_EVERY_S)
        while due and due[0][0] <= at:
            paid, id_, cents = heapq.heappop(due)
            yield _line(PAYMENT, id_, paid, cents, emitted)
            emitted += 1
        id_, cents, luck = f"o{number}", rng.randrange(100, 100_000), rng.random()
        yield _line(ORDER, id_, at, cents, emitted)
        emitted, number = emitted + 1, number + 1
        if luck >= 0.05:
            delay_s = (
                rng.uniform(WITHIN_S + 1, 2 * WITHIN_S) if luck < 0.15 else rng.uniform(0, WITHIN_S)
            )
            heapq.heappush(due, (at + timedelta(seconds=delay_s), id_, cents))


def _line(kind: str, id_: str, at: datetime, cents: int, number: int) -> bytes:
    time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"kind": kind, "id": id_, "time": time, "cents": cents}).encode()
    return line[:-3] if number % _INVALID_EVERY == _INVALID_EVERY - 1 else line
