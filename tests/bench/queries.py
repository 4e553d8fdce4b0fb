"""The contenders on Spark: the same source and plan (`rows`), several ways to write to the sinks.

`naive` is a typical foreachBatch function, and is not exactly-once; `stage_and_merge` neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from infra.local_services import MySQLEndpoint
from sluicegate import EpochSettings, KafkaSink, MySQLSink, epochs
from sluicegate.packaged_job import JobSettings
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.ip_count import job as ip_count
from sluicegate_jobs.orders import stream as orders_stream
from sluicegate_jobs.word_count import job as word_count
from tests.bench import stage_and_merge
from tests.bench.order import Order
from tests.bench.plan import (
    ADD,
    COMMON_QUERY,
    COMPRESSION,
    EPOCH_TIMEOUT_S,
    HEAP,
    IP_COUNT,
    MEASURED,
    MYSQL_LATENCY,
    MYSQL_ONLY,
    NAIVE,
    NOOP,
    ORDERS,
    PASS_THROUGH,
    SERIAL,
    SPARK,
    SPARK_JDBC,
    UPSERT,
    WORD_COUNT,
)
from tests.bench.rows import KEYS, as_records, job_settings, rows

_PACKAGED: Mapping[str, tuple[Callable[..., EpochsWriter], type[JobSettings]]] = {
    IP_COUNT: (ip_count.build, ip_count.IpCountSettings),
    WORD_COUNT: (word_count.build, word_count.WordCountSettings),
    ORDERS: (orders_stream.build, orders_stream.OrdersStreamSettings),
}

_TABLE_KEYS: Mapping[str, Sequence[str]] = {
    IP_COUNT: ("window_start", "ip"),
    ORDERS: ("window_start", "user"),
    UPSERT: ("id",),
    ADD: ("id",),
    MYSQL_LATENCY: ("record",),
}
"""The keys of the tables that the common query of a kind is written to."""

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
    checkpoint = order.checkpoint or str(folder / "checkpoint")
    if order.contender in MEASURED:
        epochs_query = _sluicegate_query(spark, order, mysql, checkpoint).start()
        return Started(epochs_query._query, epochs_query.await_end, epochs_query.stop)
    written = rows(spark, order)
    writer = written.writeStream.outputMode("update")
    if order.contender == SPARK:
        records = as_records(order, written).writeStream.format("kafka").outputMode("update")
        writer = records.options(**_kafka_options(order))
    elif order.contender == NOOP:
        writer = as_records(order, written).writeStream.format("noop").outputMode("update")
    elif order.contender == NAIVE:
        writer = writer.foreachBatch(_naive(order, mysql))
    elif order.contender == SPARK_JDBC:
        writer = writer.foreachBatch(stage_and_merge.writer(order, mysql))
    else:
        raise ValueError(f"unknown contender {order.contender}")
    writer = writer.option("checkpointLocation", checkpoint)
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
    if order.kind in _PACKAGED and order.contender not in COMMON_QUERY:
        build, kind = _PACKAGED[order.kind]
        return build(spark, job_settings(kind, order, mysql, checkpoint))
    return epochs(
        rows(spark, order),
        name="bench",
        sinks=_sinks(order, mysql),
        checkpoint=checkpoint,
        settings=EpochSettings(
            interval=order.trigger,
            timeout_s=EPOCH_TIMEOUT_S,
            overlap=order.contender != SERIAL,
            state_backend="hdfs" if order.contender == HEAP else "rocksdb",
        ),
    )


def _sinks(order: Order, mysql: MySQLEndpoint | None) -> list[KafkaSink | MySQLSink]:
    sinks: list[KafkaSink | MySQLSink] = []
    if order.kind == PASS_THROUGH:
        sinks.append(
            KafkaSink(order.sink, value="value", bootstrap=order.bootstrap, compression=COMPRESSION)
        )
    elif order.kind not in MYSQL_ONLY:
        key = KEYS[order.kind]
        sinks.append(KafkaSink(order.sink, key=key, value="json", bootstrap=order.bootstrap))
    if order.kind in _TABLE_KEYS:
        sinks.append(
            MySQLSink(
                order.table,
                keys=_TABLE_KEYS[order.kind],
                on_conflict="add" if order.kind == ADD else "replace",
                url=mysql.url if mysql else "",
            )
        )
    return sinks


def _kafka_options(order: Order) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": order.bootstrap,
        "kafka.compression.type": COMPRESSION,
        "topic": order.sink,
    }


def _naive(order: Order, mysql: MySQLEndpoint | None) -> Callable[[DataFrame, int], None]:
    def to_kafka(batch: DataFrame) -> None:
        as_records(order, batch).write.format("kafka").options(**_kafka_options(order)).save()

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
