"""The settings and the SQL of Flink's side of a workload, and its run.

The settings are those of the race: a checkpoint each second, the compression and acknowledgments of the
other contenders, a heap as theirs. Exactly-once means Flink's two-phase commit with Kafka transactions.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from infra.preflight import java_command
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate_jobs.ip_count.job import LINE, TIME, IpCountSettings
from tests.bench.flink.program import MAIN, Flink
from tests.bench.plan import COMPRESSION, FLINK_AT_LEAST_ONCE, IP_COUNT, SESSION, Order

_CHECKPOINT_INTERVAL: Final = "1 s"
"""If the order names none."""
_TRANSACTION_TIMEOUT_MS: Final = 600_000
_PARALLELISM: Final = 2
"""As the two cores that the sessions of the other contenders use."""

_OPEN_PACKAGES: Final = ("java.base/java.lang", "java.base/java.util")


def command(flink: Flink, order: Order, folder: Path) -> list[str]:
    """Return the command line that runs an order and ends with its input."""
    settings = {
        "parallelism.default": _PARALLELISM,
        "execution.checkpointing.interval": order.trigger
        if endless(order)
        else _CHECKPOINT_INTERVAL,
        "execution.checkpointing.dir": (folder / "checkpoint").as_uri(),
        "taskmanager.numberOfTaskSlots": _PARALLELISM,
        "pipeline.object-reuse": "true",
    }
    jvm = [f"-Xmx{SESSION['spark.driver.memory']}"]
    jvm += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN_PACKAGES]
    pairs = [f"{key}={value}" for key, value in settings.items()]
    return [java_command(), *jvm, "-cp", flink.class_path, MAIN, *pairs, "--", *statements(order)]


def endless(order: Order) -> bool:
    """Return whether an order does not end with its input."""
    return order.trigger != AVAILABLE_NOW


def statements(order: Order) -> list[str]:
    """Return the SQL of the order's workload."""
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
    if order.kind == IP_COUNT:
        return _ip_count(source, sink | {"key.format": "raw", "key.fields": "ip", "format": "json"})
    return [
        f"CREATE TABLE source_topic (v BYTES) WITH ({_options(source)})",
        f"CREATE TABLE sink_topic (v BYTES) WITH ({_options(sink | {'format': 'raw'})})",
        "INSERT INTO sink_topic SELECT v FROM source_topic",
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


def _interval(setting: str) -> str:
    """Return SQL for a setting such as '5 seconds'."""
    number, unit = setting.split()
    return f"INTERVAL '{number}' {unit.removesuffix('s').upper()}"


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
