"""The workloads of growth: one thing grows, the rest stays. Pure.

Partitions, cores and executors: throughput of a copy. Keys: the time of an epoch against the size of a
state. Epochs: the start of a driver against the length of its log (`start_time` measures it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.plan import KEY_COUNT, PASS_THROUGH, SLUICEGATE, SPARK, Workload

PARTITIONS: Final = "growth-partitions"
EXECUTORS: Final = "growth-executors"
STATE: Final = "growth-state"
START: Final = "growth-start"
NAMES: Final = (PARTITIONS, EXECUTORS, STATE, START)
"""Values of `--only`."""

PARTITION_COUNTS: Final = (1, 2, 4, 8, 48)
CORES: Final = (2,)
EXECUTOR_COUNTS: Final = (1, 2, 4)
"""Of one thread each."""
KEY_COUNTS: Final = (10_000, 100_000, 1_000_000)
MANY_KEYS: Final = 10_000_000
"""Ten minutes a run and 2 GB in the checker, so only with `--many-keys`."""

LOG_LENGTHS: Final = (10, 100, 1_000, 10_000)
"""Epochs in the log before the start that is measured."""

CONTENDERS: Final = (SLUICEGATE, SPARK)
"""Spark's own sink shows what grows without Sluicegate."""

_COPIED: Final = 4_000_000
_COPY_EPOCH: Final = 200_000
_KEY_EPOCH: Final = 50_000
_MEASURED_EPOCHS: Final = 20


@dataclass(frozen=True)
class Start:
    """A start of a driver with this many epochs in its log."""

    epochs: int

    @property
    def name(self) -> str:
        """The name of the workload."""
        return f"{START}-{self.epochs}"


def partition_workloads(cores: Sequence[int] = CORES) -> list[Workload]:
    """Return a copy of 100 B records for each number of partitions and cores."""
    return [
        Workload(
            f"{PARTITIONS}-{partitions}-cores-{used}",
            PASS_THROUGH,
            100,
            _COPIED,
            _COPY_EPOCH,
            CONTENDERS,
            partitions=partitions,
            cores=used,
        )
        for used in cores
        for partitions in PARTITION_COUNTS
    ]


def executor_workloads() -> list[Workload]:
    """Return a copy of 100 B records for each number of executors."""
    return [
        Workload(
            f"{EXECUTORS}-{executors}",
            PASS_THROUGH,
            100,
            _COPIED,
            _COPY_EPOCH,
            CONTENDERS,
            cores=1,
            executors=executors,
        )
        for executors in EXECUTOR_COUNTS
    ]


def state_workloads(*, many_keys: bool = False) -> list[Workload]:
    """Return a running count for each number of keys: epochs that fill the state, then 20 measured ones."""
    return [
        Workload(
            f"{STATE}-{keys}",
            KEY_COUNT,
            0,
            -(-keys // _KEY_EPOCH) * _KEY_EPOCH + _MEASURED_EPOCHS * _KEY_EPOCH,
            _KEY_EPOCH,
            CONTENDERS,
            keys=keys,
        )
        for keys in (*KEY_COUNTS, *([MANY_KEYS] if many_keys else []))
    ]
