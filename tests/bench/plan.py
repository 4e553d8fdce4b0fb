"""The comparisons with their sizes and their order. Pure.

All contenders of a workload have the same source, source options, trigger, epoch size and session
settings. They differ only in how they write to the sinks. Other engines have the same source and broker.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

SLUICEGATE: Final = "sluicegate"
SPARK: Final = "spark-kafka-sink"
NAIVE: Final = "naive-foreachBatch"
OVERLAP: Final = "sluicegate-overlap"
"""The same, with `EpochSettings.overlap`."""
BARE: Final = "sluicegate-bare"
MEASURED: Final = (SLUICEGATE, OVERLAP, BARE)
"""Our contenders: the report shows their phases and compares them with the rivals."""
RIVALS: Final = (SPARK, NAIVE)
FLINK: Final = "flink"
FLINK_AT_LEAST_ONCE: Final = "flink-at-least-once"
KAFKA_STREAMS: Final = "kafka-streams"
"""With `exactly_once_v2`."""
OTHER_ENGINES: Final = (FLINK, FLINK_AT_LEAST_ONCE, KAFKA_STREAMS)
"""Not on Spark: they have no epochs, so only the records in the sink are compared."""

PASS_THROUGH: Final = "pass-through"
IP_COUNT: Final = "ip_count"
LATENCY: Final = "latency"

WARM_UP_EPOCHS: Final = 2
"""Unmeasured epochs in which the JVM compiles, producers connect and Python workers start."""

SESSION: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
"""Settings of all contenders, in addition to those of `sluicegate.session`."""

EPOCH_TIMEOUT_S: Final = 600.0
"""Sluicegate's timeout; the others have none. A slow machine must yield a slow figure, not an anomaly."""

COMPRESSION: Final = "lz4"
"""Compression of every producer: Sluicegate's default, also set on Spark's sink."""


@dataclass(frozen=True)
class Workload:
    """One comparison.

    Args:
        name: value of `--only`.
        kind: PASS_THROUGH or IP_COUNT; LATENCY is a paced PASS_THROUGH.
        value_bytes: size of a record's value; 0 for access-log lines.
        records: number of records in the source topic.
        epoch_records: maxOffsetsPerTrigger.
        contenders: names of the contenders.
        note: remark below the table's title.
        apply_wait_s: how long each apply waits without using a core, in seconds: a slow sink.
    """

    name: str
    kind: str
    value_bytes: int
    records: int
    epoch_records: int
    contenders: tuple[str, ...]
    note: str = ""
    apply_wait_s: float = 0.0

    def of_size(self, records: int) -> Workload:
        """Return the workload with another number of records, in at least ten epochs."""
        per_epoch = max(1, min(self.epoch_records, records // 10))
        return Workload(**{**self.__dict__, "records": records, "epoch_records": per_epoch})


_PASS_THROUGH: Final = (SLUICEGATE, OVERLAP, SPARK, NAIVE, *OTHER_ENGINES)

WORKLOADS: Final = (
    Workload("pass-through-100", PASS_THROUGH, 100, 4_000_000, 200_000, _PASS_THROUGH),
    Workload("pass-through-1k", PASS_THROUGH, 1000, 2_000_000, 100_000, _PASS_THROUGH),
    Workload(
        "ip_count",
        IP_COUNT,
        0,
        4_000_000,
        200_000,
        contenders=(SLUICEGATE, OVERLAP, BARE, SPARK, NAIVE, FLINK),
        note=(
            f"{SLUICEGATE} is the packaged job, dead letters and trace headers included; {BARE} the same "
            f"query as the others'. {SPARK} and {FLINK} write Kafka ONLY. A line is appended when its "
            "window's last count is"
        ),
    ),
    Workload(
        "slow-sink",
        PASS_THROUGH,
        100,
        2_000_000,
        200_000,
        contenders=(SLUICEGATE, OVERLAP),
        note="each apply waits another second, as for a database on a distant or busy server",
        apply_wait_s=1.0,
    ),
)


@dataclass(frozen=True)
class Pace:
    """Input rate of a latency workload.

    Args:
        trigger: interval between epochs, and between Flink's checkpoints.
        records_s: records per second.
        seconds: duration of the measured part.
    """

    trigger: str
    records_s: int = 5000
    seconds: float = 20.0

    @property
    def name(self) -> str:
        """The name of the workload."""
        return f"{LATENCY}, {self.trigger}"

    @property
    def records(self) -> int:
        """The number of measured records."""
        return int(self.records_s * self.seconds)


PACES: Final[tuple[Pace, ...]] = (Pace("1 second"), Pace("200 milliseconds"))
LATENCY_CONTENDERS: Final = (SLUICEGATE, OVERLAP, SPARK, NAIVE, FLINK)
LATENCY_VALUE_BYTES: Final = 100
LATENCY_EPOCH_RECORDS: Final = 200_000


def shuffled(contenders: Sequence[str], *, seed: int, round_: int, workload: str) -> list[str]:
    """Return the contenders in the order of a round; the same seed gives the same order."""
    return random.Random(f"{seed}/{round_}/{workload}").sample(list(contenders), len(contenders))


@dataclass(frozen=True)
class Order:
    """Instructions for a contender's process: a file in its folder, without passwords.

    Args:
        kind: PASS_THROUGH or IP_COUNT.
        contender: name of the contender.
        bootstrap: Kafka's bootstrap servers.
        source: source topic.
        sink: sink topic.
        dead_letters: topic for lines that cannot be counted.
        table: sink table, for IP_COUNT.
        epoch_records: maxOffsetsPerTrigger.
        trigger: an interval, or 'available-now'.
        apply_wait_s: as in the workload.
    """

    kind: str
    contender: str
    bootstrap: str
    source: str
    sink: str
    dead_letters: str
    table: str
    epoch_records: int
    trigger: str
    apply_wait_s: float = 0.0

    def write(self, folder: Path) -> None:
        """Write the order to a folder."""
        (folder / "order.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Order:
        """Read the order from a folder."""
        return cls(**json.loads((folder / "order.json").read_text(encoding="utf-8")))
