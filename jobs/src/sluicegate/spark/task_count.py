"""How many tasks stage an epoch: a task has a cost of its own, so partitions with few rows share one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sluicegate.spark.query_execution import KafkaSource

TASK_ROWS: Final = 10_000
"""If the partitions of an epoch have fewer rows on average, they share tasks. A task takes 10 to 16 ms of CPU
time, as much as 2,000 to 5,000 rows. Partitions with 25,000 rows and more were faster with a task each."""

FEW_ROWS: Final = 20_000
"""An epoch with fewer rows has one task for each core, whatever the sizes of its partitions."""

LARGEST: Final = 1.5
"""If the largest partition has more than this times the average, each partition has its task: Spark does not
look at their sizes when it lets partitions share a task, and a core could be idle."""


def rows_by_partition(
    before: Sequence[KafkaSource], now: Sequence[KafkaSource], scans: Mapping[int, int]
) -> list[int] | None:
    """Return how many rows an epoch reads of each Kafka partition that has some, in each scan.

    Args:
        before: up to where the epoch before has read.
        now: up to where this one reads.
        scans: how often the plan reads a source, by `KafkaSource.number`.

    Returns:
        None if the start of a partition is not known: it is new, or there was no epoch before.
    """
    starts, ends = _offsets(before), _offsets(now)
    if not ends.keys() <= starts.keys():
        return None
    rows = [(end - starts[at], scans[at[0]]) for at, end in ends.items()]
    return [number for number, times in rows for _ in range(times) if number > 0]


def _offsets(sources: Sequence[KafkaSource]) -> dict[tuple[int, str, str], int]:
    """Return the end of each partition, by source and topic."""
    return {
        (source.number, topic, partition): offset
        for source in sources
        for topic, partitions in source.end.items()
        for partition, offset in partitions.items()
    }


def most_tasks(rows: Sequence[int], cores: int) -> int | None:
    """Return how many tasks stage the partitions of an epoch.

    Args:
        rows: of each partition, as often as the plan reads it.
        cores: how many tasks run at a time.

    Returns:
        The number of cores; None if each partition is to have a task of its own.
    """
    total, partitions = sum(rows), len(rows)
    if partitions <= cores or total >= partitions * TASK_ROWS:
        return None
    balanced = max(rows) * partitions <= LARGEST * total
    return cores if balanced or total < FEW_ROWS else None
