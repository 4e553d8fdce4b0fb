"""The settings and the SQL of Flink's side of a workload, and its run.

The settings are those of the race: a checkpoint each second, the compression and acknowledgments of the
other contenders, a heap as theirs. Exactly-once means Flink's two-phase commit with Kafka transactions.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from infra.local_services import MySQLEndpoint
from infra.preflight import java_command
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate_jobs.ip_count.job import LINE, TIME, IpCountSettings
from sluicegate_jobs.orders.schema import LATENESS, WINDOW
from tests.bench.flink.program import MAIN, Flink
from tests.bench.order import Order
from tests.bench.plan import (
    COMPRESSION,
    FLINK_AT_LEAST_ONCE,
    IP_COUNT,
    MYSQL_LATENCY,
    ORDERS,
    SESSION,
    WORD_COUNT,
)
from tests.bench.stage_and_merge import BATCH_ROWS, DRIVER, url

_CHECKPOINT_INTERVAL: Final = "1 s"
"""If the order names none."""
_TRANSACTION_TIMEOUT_MS: Final = 600_000
_UTC: Final = {"table.local-time-zone": "UTC"}

_ORDERS_FORMAT: Final = {"format": "json", "json.timestamp-format.standard": "ISO-8601"}

_OPEN_PACKAGES: Final = ("java.base/java.lang", "java.base/java.util")


def command(
    flink: Flink, order: Order, folder: Path, mysql: MySQLEndpoint | None = None
) -> list[str]:
    """Return the command line that runs an order and ends with its input, if that has an end."""
    settings = {
        "parallelism.default": order.cores,
        "execution.checkpointing.interval": order.trigger
        if endless(order)
        else _CHECKPOINT_INTERVAL,
        "execution.checkpointing.dir": (folder / "checkpoint").as_uri(),
        "taskmanager.numberOfTaskSlots": order.cores,
        "pipeline.object-reuse": "true",
        **_UTC,
    }
    if order.kind == WORD_COUNT:
        settings |= {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": _CHECKPOINT_INTERVAL,
            "table.exec.mini-batch.size": order.epoch_records,
        }
    jvm = [f"-Xmx{SESSION['spark.driver.memory']}"]
    jvm += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN_PACKAGES]
    pairs = [f"{key}={value}" for key, value in settings.items()]
    sql = statements(order, mysql)
    return [java_command(), *jvm, "-cp", flink.class_path, MAIN, *pairs, "--", *sql]


def endless(order: Order) -> bool:
    """Return whether an order does not end with its input."""
    return order.trigger != AVAILABLE_NOW


def statements(order: Order, mysql: MySQLEndpoint | None = None) -> list[str]:
    """Return the SQL of the order's workload.

    Args:
        order: of a workload.
        mysql: where its table is, if it has one.
    """
    guarantee = "at-least-once" if order.contender == FLINK_AT_LEAST_ONCE else "exactly-once"
    common = {
        "connector": "kafka",
        "properties.bootstrap.servers": order.bootstrap,
    }
    source = common | {
        "format": "raw",
        "topic": order.source,
        "scan.startup.mode": "earliest-offset",
        "properties.isolation.level": "read_committed",
    }
    if not endless(order):
        source["scan.bounded.mode"] = "latest-offset"
    sink = common | {
        "topic": order.sink,
        "sink.delivery-guarantee": guarantee,
        "sink.transactional-id-prefix": f"bench-{uuid.uuid4().hex}",
        "properties.transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS),
        "properties.compression.type": COMPRESSION,
        "properties.acks": "all",
    }
    if order.kind == MYSQL_LATENCY:
        assert mysql is not None
        return _due(source, _table(order, mysql))
    if order.kind == IP_COUNT:
        return _ip_count(source, sink | {"key.format": "raw", "key.fields": "ip", "format": "json"})
    if order.kind == WORD_COUNT:
        return _word_count(source, sink | {"connector": "upsert-kafka"})
    if order.kind == ORDERS:
        keyed = {"key.format": "raw", "key.fields": "user", "format": "json"}
        return _orders(source | _ORDERS_FORMAT, sink | keyed)
    return [
        f"CREATE TABLE source_topic (v BYTES) WITH ({_options(source)})",
        f"CREATE TABLE sink_topic (v BYTES) WITH ({_options(sink | {'format': 'raw'})})",
        "INSERT INTO sink_topic SELECT v FROM source_topic",
    ]


def _table(order: Order, mysql: MySQLEndpoint) -> dict[str, str]:
    """Return the options of a table that is written by upserts, at the latest at each checkpoint.

    At-least-once: a repeated upsert changes nothing. One task writes, in batches as large as those of
    `stage_and_merge`, by the same driver.
    """
    return {
        "connector": "jdbc",
        "url": url(mysql),
        "driver": DRIVER,
        "table-name": order.table,
        "username": mysql.user,
        "password": mysql.password,
        "sink.buffer-flush.max-rows": str(BATCH_ROWS),
        "sink.buffer-flush.interval": order.trigger,
        "sink.parallelism": "1",
    }


def _due(source: dict[str, str], table: dict[str, str]) -> list[str]:
    """Return the SQL that writes kind and number of each paced record, and when it was due."""
    columns = "record STRING, due BIGINT, PRIMARY KEY (record) NOT ENFORCED"
    row = "SUBSTRING(line, 1, 11), CAST(SUBSTRING(line, 13, 20) AS BIGINT)"
    return [
        f"CREATE TABLE source_topic (line STRING) WITH ({_options(source)})",
        f"CREATE TABLE sink_table ({columns}) WITH ({_options(table)})",
        f"INSERT INTO sink_table SELECT {row} FROM source_topic",
    ]


def _ip_count(source: dict[str, str], sink: dict[str, str]) -> list[str]:
    """Return the SQL of ip_count without its dead letters and without MySQL."""
    settings = IpCountSettings()
    line = LINE.replace("'", "''")
    time = f"TO_TIMESTAMP(REGEXP_EXTRACT(line, '{line}', 1), '{TIME}')"
    watermark = f"WATERMARK FOR hit_at AS hit_at - {_interval(settings.lateness)}"
    counts = "window_start TIMESTAMP(3), ip STRING, window_end TIMESTAMP(3), hits BIGINT"
    hits = (
        "SELECT SPLIT_INDEX(line, ' ', 0) AS ip, hit_at FROM source_topic WHERE hit_at IS NOT NULL"
    )
    windows = f"TABLE(TUMBLE(TABLE hits, DESCRIPTOR(hit_at), {_interval(settings.window)}))"
    select = f"SELECT window_start, ip, window_end, COUNT(*) FROM {windows}"
    columns = f"line STRING, hit_at AS {time}, {watermark}"
    return [
        f"CREATE TABLE source_topic ({columns}) WITH ({_options(source)})",
        f"CREATE TABLE sink_topic ({counts}) WITH ({_options(sink)})",
        f"CREATE TEMPORARY VIEW hits AS {hits}",
        f"INSERT INTO sink_topic {select} GROUP BY window_start, window_end, ip",
    ]


def _word_count(source: dict[str, str], sink: dict[str, str]) -> list[str]:
    """Return the SQL of a running count of words, whose updates of a second are collected."""
    counts = "word STRING, `count` BIGINT, PRIMARY KEY (word) NOT ENFORCED"
    options = _options(sink | {"key.format": "raw", "value.format": "json"})
    words = "source_topic CROSS JOIN UNNEST(SPLIT(line, ' ')) AS words (word)"
    return [
        f"CREATE TABLE source_topic (line STRING) WITH ({_options(source)})",
        f"CREATE TABLE sink_topic ({counts}) WITH ({options})",
        f"INSERT INTO sink_topic SELECT word, COUNT(*) FROM {words} GROUP BY word",
    ]


def _orders(source: dict[str, str], sink: dict[str, str]) -> list[str]:
    """Return the SQL of orders_stream without its dead letters and without MySQL."""
    watermark = f"WATERMARK FOR `time` AS `time` - {_interval(LATENESS)}"
    columns = f"`user` STRING, `time` TIMESTAMP_LTZ(3), amount DECIMAL(12, 2), {watermark}"
    totals = (
        "window_start TIMESTAMP(3), `user` STRING, orders BIGINT, "
        "largest DECIMAL(12, 2), smallest DECIMAL(12, 2)"
    )
    windows = f"TABLE(TUMBLE(TABLE source_topic, DESCRIPTOR(`time`), {_interval(WINDOW)}))"
    select = "SELECT window_start, `user`, COUNT(*), MAX(amount), MIN(amount)"
    return [
        f"CREATE TABLE source_topic ({columns}) WITH ({_options(source)})",
        f"CREATE TABLE sink_topic ({totals}) WITH ({_options(sink)})",
        f"INSERT INTO sink_topic {select} FROM {windows} GROUP BY window_start, window_end, `user`",
    ]


def _interval(setting: str) -> str:
    """Return SQL for a setting such as '5 seconds'."""
    number, unit = setting.split()
    return f"INTERVAL '{number}' {unit.removesuffix('s').upper()}"


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
