"""What is compared with what, in which sizes and in which order. Pure.

Every contender of a workload has the same source, source options, trigger, epoch size and session
settings; only the way into the sinks differs. Called by everything else in this package.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

OURS: Final = "sluicegate"
SPARK: Final = "spark-kafka-sink"
NAIVE: Final = "naive-foreachBatch"
OVERLAP: Final = "sluicegate-overlap"
"""The same with `EpochSettings.overlap`."""
BARE: Final = "sluicegate-bare"
MEASURED: Final = (OURS, OVERLAP, BARE)
"""Whose phases are shown, and who is compared with the rivals."""
RIVALS: Final = (SPARK, NAIVE)

PASS_THROUGH: Final = "pass-through"
IP_COUNT: Final = "ip_count"
LATENCY: Final = "latency"

WARM_UP_EPOCHS: Final = 2
"""Epochs that are not measured: the JVM compiles, producers connect, Python workers start."""

SESSION: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
"""Of all contenders alike, on top of the session that `sluicegate.session` makes."""

EPOCH_TIMEOUT_S: Final = 600.0
"""Of ours; the others have none. A slow machine is to give a slow figure, not an anomaly."""

COMPRESSION: Final = "lz4"
"""Of every producer: Sluicegate's default, which Spark's sink is given too."""


@dataclass(frozen=True)
class Workload:
    """One comparison.

    Args:
        name: what `--only` takes.
        kind: PASS_THROUGH or IP_COUNT; LATENCY is a paced PASS_THROUGH.
        value_bytes: of a record; 0 for access-log lines.
        records: in the source topic.
        epoch_records: maxOffsetsPerTrigger.
        contenders: who takes part.
        note: what a reader of the table must know.
    """

    name: str
    kind: str
    value_bytes: int
    records: int
    epoch_records: int
    contenders: tuple[str, ...] = (OURS, OVERLAP, SPARK, NAIVE)
    note: str = ""

    def of_size(self, records: int) -> Workload:
        """Return it with another number of records, in at least ten epochs."""
        per_epoch = max(1, min(self.epoch_records, records // 10))
        return Workload(**{**self.__dict__, "records": records, "epoch_records": per_epoch})


WORKLOADS: Final = (
    Workload("pass-through-100", PASS_THROUGH, 100, 3_000_000, 200_000),
    Workload("pass-through-1k", PASS_THROUGH, 1000, 1_000_000, 100_000),
    Workload(
        "ip_count",
        IP_COUNT,
        0,
        2_000_000,
        200_000,
        contenders=(OURS, OVERLAP, BARE, SPARK, NAIVE),
        note=(
            f"{OURS} is the packaged job, dead letters and trace headers included; {BARE} the same "
            f"query as the others'. {SPARK} writes Kafka ONLY: it has no way into MySQL"
        ),
    ),
)


@dataclass(frozen=True)
class Pace:
    """How the latency workload is fed.

    Args:
        records_s: records a second.
        seconds: how long the measured part is.
        trigger: interval between epochs.
    """

    records_s: int = 5000
    seconds: float = 20.0
    trigger: str = "1 second"

    @property
    def records(self) -> int:
        """How many records are measured."""
        return int(self.records_s * self.seconds)


LATENCY_VALUE_BYTES: Final = 100
LATENCY_EPOCH_RECORDS: Final = 200_000


def shuffled(contenders: Sequence[str], *, seed: int, round_: int, workload: str) -> list[str]:
    """Return the contenders in the order of a round; the same seed gives the same order."""
    return random.Random(f"{seed}/{round_}/{workload}").sample(list(contenders), len(contenders))


@dataclass(frozen=True)
class Order:
    """What a contender's process is told: a file in its folder. Holds no password.

    Args:
        kind: PASS_THROUGH or IP_COUNT.
        contender: who it is.
        bootstrap: of Kafka.
        source: topic that it reads.
        sink: topic that it writes.
        dead_letters: topic for lines that cannot be counted.
        table: that it writes, for IP_COUNT.
        epoch_records: maxOffsetsPerTrigger.
        trigger: an interval, or 'available-now'.
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

    def write(self, folder: Path) -> None:
        """Leave the order in a folder."""
        (folder / "order.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Order:
        """Read the order of a folder."""
        return cls(**json.loads((folder / "order.json").read_text(encoding="utf-8")))
