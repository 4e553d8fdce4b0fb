"""The rows that the contenders on Spark write: the query of each workload, without a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.local_services import MySQLEndpoint
from sluicegate.packaged_job import JobSettings
from sluicegate.spark.filters import where_computed
from sluicegate.spark.json_objects import parse_json
from sluicegate_jobs.ip_count import job as ip_count
from sluicegate_jobs.ip_count.job import IpCountSettings
from sluicegate_jobs.kafka_source import kafka_source
from sluicegate_jobs.orders.schema import LATENESS, WINDOW
from tests.bench.order import Order
from tests.bench.plan import (
    ADD,
    EPOCH_TIMEOUT_S,
    IP_COUNT,
    KEY_COUNT,
    MEASURED,
    MYSQL_LATENCY,
    ORDERS,
    PASS_THROUGH,
    SERIAL,
    UPSERT,
    WORD_COUNT,
)

KEYS: Final[Mapping[str, str]] = {
    IP_COUNT: "ip",
    WORD_COUNT: "word",
    ORDERS: "user",
    KEY_COUNT: "id",
}
"""The column that is the key of a record, of each kind that has one."""


def job_settings(
    kind: type[JobSettings], order: Order, mysql: MySQLEndpoint | None, checkpoint: str
) -> JobSettings:
    """Return the settings of a packaged job for an order."""
    values: dict[str, object] = {
        "checkpoint": checkpoint,
        "source": order.source,
        "topic": order.sink,
        "table": order.table,
        "dead_letters": order.dead_letters,
        "interval": order.trigger,
        "timeout_s": EPOCH_TIMEOUT_S,
        "overlap": order.contender != SERIAL,
        "max_records": order.epoch_records,
        "kafka": order.bootstrap,
        "mysql": mysql.url if mysql else "",
    }
    known = kind.__dataclass_fields__
    return kind(**{name: value for name, value in values.items() if name in known})  # type: ignore[arg-type]


def rows(spark: SparkSession, order: Order) -> DataFrame:
    """Return the rows of an order."""
    source = kafka_source(spark, order.source, order.bootstrap, order.epoch_records)
    if order.kind == ORDERS:
        return _orders(source, order.contender)
    return _QUERIES[order.kind](source)


def as_records(order: Order, of: DataFrame) -> DataFrame:
    """Return rows as records for Spark's Kafka sink."""
    if order.kind not in KEYS:
        return of
    return of.select(
        F.col(KEYS[order.kind]).cast("binary").alias("key"),
        F.to_json(F.struct(*of.columns)).cast("binary").alias("value"),
    )


def _values(source: DataFrame) -> DataFrame:
    return source.select("value")


def _hits(source: DataFrame) -> DataFrame:
    """Return only the aggregation of ip_count, from the same parsed lines."""
    settings = IpCountSettings()
    return (
        where_computed(ip_count.parse_lines(source, settings), F.col("invalid").isNull())
        .withWatermark("at", settings.lateness)
        .groupBy(F.window("at", settings.window), "ip")
        .agg(F.count("*").alias("hits"))
        .select(
            F.col("window.start").alias("window_start"),
            "ip",
            F.col("window.end").alias("window_end"),
            "hits",
        )
    )


def _words(source: DataFrame) -> DataFrame:
    words = F.explode(F.split(F.col("value").cast("string"), " ")).alias("word")
    return source.select(words).groupBy("word").agg(F.count("*").alias("count"))


def _orders(source: DataFrame, contender: str) -> DataFrame:
    if contender in MEASURED:
        columns = "user string, time string, amount string"
        order = parse_json(source.sparkSession, F.col("value"), columns)
    else:
        schema = "user string, time timestamp, amount decimal(12,2)"
        order = F.from_json(F.col("value").cast("string"), schema)
    return (
        source.select(order.alias("order"))
        .select(
            "order.user",
            F.col("order.time").try_cast("timestamp").alias("time"),
            F.col("order.amount").try_cast("decimal(12,2)").alias("amount"),
        )
        .withWatermark("time", LATENESS)
        .groupBy(F.window("time", WINDOW), "user")
        .agg(
            F.count("*").alias("orders"),
            F.max("amount").alias("largest"),
            F.min("amount").alias("smallest"),
        )
        .select(
            F.col("window.start").alias("window_start"), "user", "orders", "largest", "smallest"
        )
    )


def _keys(source: DataFrame) -> DataFrame:
    key = F.col("value").cast("string").alias("id")
    return source.select(key).groupBy("id").agg(F.count("*").alias("count"))


def _integers(source: DataFrame) -> DataFrame:
    fields = F.split(F.col("value").cast("string"), " ")
    names = ("id", "amount", "quantity")
    return source.select(*(fields[at].cast("long").alias(name) for at, name in enumerate(names)))


def _due(source: DataFrame) -> DataFrame:
    """Return kind and number of a paced record as its key, and when it was due; see `paced.value`."""
    text = F.col("value").cast("string")
    return source.select(
        F.substring(text, 1, 11).alias("record"),
        F.substring(text, 13, 20).cast("long").alias("due"),
    )


_QUERIES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    PASS_THROUGH: _values,
    IP_COUNT: _hits,
    WORD_COUNT: _words,
    KEY_COUNT: _keys,
    UPSERT: _integers,
    ADD: _integers,
    MYSQL_LATENCY: _due,
}
