"""Kafka Streams as a contender: its jars and CopyTopic, its settings, and its command line.

It commits each second, as the checkpoints of Flink, with the compression, acknowledgments, heap and
parallelism of the other contenders.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path
from typing import Final

from infra.preflight import java_command
from infra.toolchain import javac, maven
from infra.workspace import scratch_folder, work_folder
from tests.bench.order import Order
from tests.bench.plan import COMPRESSION, SESSION

_SOURCE: Final = Path(__file__).with_name("CopyTopic.java")
_MAIN: Final = "CopyTopic"
_COMMIT_INTERVAL_MS: Final = 1000
_THREADS: Final = 2
"""As the two cores that the sessions of the other contenders use."""


def install() -> str:
    """Fetch the jars and compile CopyTopic unless they are there; return the class path.

    Raises:
        JarError: Maven did not give a jar, or CopyTopic does not compile.
    """
    jars = maven.fetch("kafka-streams")
    identity = hashlib.sha256(_SOURCE.read_bytes() + (jars / ".verified").read_bytes()).hexdigest()
    target = work_folder() / f"kafka-streams-{identity[:12]}"
    if not target.is_dir():
        with scratch_folder("kafka-streams") as scratch:
            javac.compile_files([_SOURCE], jars.glob("*.jar"), scratch / "classes")
            (scratch / "classes").rename(target)
    return os.pathsep.join([str(target), f"{jars}/*"])


def command(class_path: str, order: Order, folder: Path) -> list[str]:
    """Return the command line that runs an order and ends with its input; writes its settings."""
    file = folder / "streams.properties"
    pairs = settings(order, folder).items()
    file.write_text("".join(f"{key}={value}\n" for key, value in pairs), encoding="utf-8")
    heap = f"-Xmx{SESSION['spark.driver.memory']}"
    return [java_command(), heap, "-cp", class_path, _MAIN, str(file), order.source, order.sink]


def settings(order: Order, folder: Path) -> dict[str, str]:
    """Return the settings of the application."""
    serde = "org.apache.kafka.common.serialization.Serdes$ByteArraySerde"
    return {
        "application.id": f"bench-{uuid.uuid4().hex}",
        "bootstrap.servers": order.bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": str(_COMMIT_INTERVAL_MS),
        "num.stream.threads": str(_THREADS),
        "default.key.serde": serde,
        "default.value.serde": serde,
        "state.dir": str(folder / "state"),
        "replication.factor": "1",
        "consumer.auto.offset.reset": "earliest",
        "producer.compression.type": COMPRESSION,
        "producer.acks": "all",
    }
