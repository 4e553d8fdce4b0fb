"""The settings and the SQL of Flink's side of a workload, and its run.

The settings are those of the race: a checkpoint each second, the compression and acknowledgments of the
other contenders, a heap as theirs. Exactly-once means Flink's two-phase commit with Kafka transactions.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from infra.preflight import java_command
from tests.bench.flink.program import MAIN, Flink
from tests.bench.plan import COMPRESSION, FLINK_AT_LEAST_ONCE, SESSION, Order

_CHECKPOINT_INTERVAL: Final = "1 s"
_TRANSACTION_TIMEOUT_MS: Final = 600_000
_PARALLELISM: Final = 2
"""As the two cores that the sessions of the other contenders use."""

_OPEN_PACKAGES: Final = ("java.base/java.lang", "java.base/java.util")


def command(flink: Flink, order: Order, folder: Path) -> list[str]:
    """Return the command line that runs an order and ends with its input."""
    settings = {
        "parallelism.default": _PARALLELISM,
        "execution.checkpointing.interval": _CHECKPOINT_INTERVAL,
        "execution.checkpointing.dir": (folder / "checkpoint").as_uri(),
        "taskmanager.numberOfTaskSlots": _PARALLELISM,
        "pipeline.object-reuse": "true",
    }
    jvm = [f"-Xmx{SESSION['spark.driver.memory']}"]
    jvm += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN_PACKAGES]
    pairs = [f"{key}={value}" for key, value in settings.items()]
    return [java_command(), *jvm, "-cp", flink.class_path, MAIN, *pairs, "--", *statements(order)]


def statements(order: Order) -> list[str]:
    """Return the SQL that copies the values of the source topic to the sink topic."""
    guarantee = "at-least-once" if order.contender == FLINK_AT_LEAST_ONCE else "exactly-once"
    common = {
        "connector": "kafka",
        "properties.bootstrap.servers": order.bootstrap,
        "format": "raw",
    }
    source = common | {
        "topic": order.source,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "properties.isolation.level": "read_committed",
    }
    sink = common | {
        "topic": order.sink,
        "sink.delivery-guarantee": guarantee,
        "sink.transactional-id-prefix": f"bench-{uuid.uuid4().hex}",
        "properties.transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS),
        "properties.compression.type": COMPRESSION,
        "properties.acks": "all",
    }
    return [
        f"CREATE TABLE source_topic (v BYTES) WITH ({_options(source)})",
        f"CREATE TABLE sink_topic (v BYTES) WITH ({_options(sink)})",
        "INSERT INTO sink_topic SELECT v FROM source_topic",
    ]


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
