"""The contenders' queries: the same source and plan, three ways to write to the sinks.

`naive` is a typical foreachBatch function, and is not exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from infra.local_services import MySQLEndpoint
from sluicegate import EpochSettings, KafkaSink, MySQLSink, epochs
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.filters import where_computed
from sluicegate_jobs.ip_count import job
from sluicegate_jobs.ip_count.job import IpCountSettings
from sluicegate_jobs.kafka_source import kafka_source
from tests.bench.plan import (
    BARE,
    COMPRESSION,
    EPOCH_TIMEOUT_S,
    MEASURED,
    NAIVE,
    OVERLAP,
    PASS_THROUGH,
    SPARK,
    Order,
)

_UPSERT = (
    "INSERT INTO `{table}` (window_start, ip, window_end, hits) VALUES (%s, %s, %s, %s) "
    "ON DUPLICATE KEY UPDATE window_end = VALUES(window_end), hits = VALUES(hits)"
)


@dataclass(frozen=True)
class Started:
    """A running query.

    Args:
        query: Spark's own handle, the same for all contenders.
        await_end: waits for the query; raises the error that stopped it.
        stop: stops the query between two epochs, while there is no input.
    """

    query: StreamingQuery
    await_end: Callable[[], object]
    stop: Callable[[], object]


def start(spark: SparkSession, order: Order, mysql: MySQLEndpoint | None, folder: Path) -> Started:
    """Start the contender of an order."""
    checkpoint = str(folder / "checkpoint")
    if order.contender in MEASURED:
        epochs_query = _sluicegate_query(spark, order, mysql, checkpoint).start()
        return Started(epochs_query._query, epochs_query.await_end, epochs_query.stop)
    rows, keyed = _rows(spark, order)
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    if order.contender == SPARK:
        records = keyed(rows).writeStream.format("kafka").outputMode("update")
        writer = records.options(**_kafka_options(order)).option("checkpointLocation", checkpoint)
    elif order.contender == NAIVE:
        writer = writer.foreachBatch(_naive(order, keyed, mysql))
    else:
        raise ValueError(f"unknown contender {order.contender}")
    query = _triggered(writer, order).start()

    def stop() -> None:
        query.processAllAvailable()  # stopping during a Python callback would break the stream
        query.stop()

    return Started(query, query.awaitTermination, stop)


def _triggered(writer: DataStreamWriter, order: Order) -> DataStreamWriter:
    if order.trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=order.trigger)


def _sluicegate_query(
    spark: SparkSession, order: Order, mysql: MySQLEndpoint | None, checkpoint: str
) -> EpochsWriter:
    if order.kind == PASS_THROUGH:
        sink = KafkaSink(
            order.sink, value="value", bootstrap=order.bootstrap, compression=COMPRESSION
        )
        rows, _ = _rows(spark, order)
        return epochs(
            rows, name="bench", sinks=[sink], checkpoint=checkpoint, settings=_epochs(order)
        )
    settings = _ip_count_settings(order, mysql, checkpoint)
    if order.contender != BARE:
        return job.build(spark, settings)
    return epochs(
        _counts(spark, settings),
        name="bench",
        sinks=[
            KafkaSink(order.sink, key="ip", value="json", bootstrap=order.bootstrap),
            MySQLSink(order.table, keys=("window_start", "ip"), url=settings.mysql),
        ],
        checkpoint=checkpoint,
        settings=_epochs(order),
    )


def _epochs(order: Order) -> EpochSettings:
    return EpochSettings(
        interval=order.trigger,
        min_pause_ms=0,
        timeout_s=EPOCH_TIMEOUT_S,
        overlap=order.contender == OVERLAP,
    )


def _ip_count_settings(
    order: Order, mysql: MySQLEndpoint | None, checkpoint: str
) -> IpCountSettings:
    return IpCountSettings(
        checkpoint=checkpoint,
        source=order.source,
        topic=order.sink,
        table=order.table,
        dead_letters=order.dead_letters,
        interval=order.trigger,
        min_pause_ms=0,
        timeout_s=EPOCH_TIMEOUT_S,
        overlap=order.contender == OVERLAP,
        max_records=order.epoch_records,
        kafka=order.bootstrap,
        mysql=mysql.url if mysql else "",
    )


def _rows(spark: SparkSession, order: Order) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
    """Return a workload's rows, and a function that shapes them for Spark's Kafka sink."""
    if order.kind == PASS_THROUGH:
        source = kafka_source(spark, order.source, order.bootstrap, order.epoch_records)
        return source.select("value"), lambda rows: rows
    return _counts(spark, _ip_count_settings(order, None, "")), lambda rows: rows.select(
        F.col("ip").cast("binary").alias("key"),
        F.to_json(F.struct(*rows.columns)).cast("binary").alias("value"),
    )


def _counts(spark: SparkSession, settings: IpCountSettings) -> DataFrame:
    """Return only the aggregation of ip_count, from the same parsed lines."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    return (
        where_computed(job.parse_lines(source, settings), F.col("invalid").isNull())
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


def _kafka_options(order: Order) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": order.bootstrap,
        "kafka.compression.type": COMPRESSION,
        "topic": order.sink,
    }


def _naive(
    order: Order, keyed: Callable[[DataFrame], DataFrame], mysql: MySQLEndpoint | None
) -> Callable[[DataFrame, int], None]:
    def to_kafka(batch: DataFrame) -> None:
        keyed(batch).write.format("kafka").options(**_kafka_options(order)).save()

    def to_both(batch: DataFrame, _epoch: int) -> None:
        batch.persist()
        try:
            to_kafka(batch)
            _upsert(order, mysql, batch)
        finally:
            batch.unpersist()

    def to_kafka_only(batch: DataFrame, _epoch: int) -> None:
        to_kafka(batch)

    return to_kafka_only if order.kind == PASS_THROUGH else to_both


def _upsert(order: Order, mysql: MySQLEndpoint | None, batch: DataFrame) -> None:
    if mysql is None:
        raise ValueError("ip_count needs a MySQL")
    rows = [
        (row["window_start"], row["ip"], row["window_end"], row["hits"]) for row in batch.collect()
    ]
    connection = mysql.connect()
    try:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT.format(table=order.table), rows)
        connection.commit()
    finally:
        connection.close()
