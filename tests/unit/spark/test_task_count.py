"""Partitions with few rows share the tasks that stage them, and no core is left idle for that."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sluicegate.spark.query_execution import KafkaSource
from sluicegate.spark.task_count import FEW_ROWS, TASK_ROWS, most_tasks, rows_by_partition

CORES = 2


def source(number: int, ends: Mapping[str, int], topic: str = "t") -> KafkaSource:
    return KafkaSource(number, None, {topic: ends}, {topic: ends})


def test_partitions_with_few_rows_share_one_task_for_each_core() -> None:
    assert most_tasks([4_000] * 48, CORES) == CORES


def test_partitions_with_many_rows_have_a_task_each() -> None:
    assert most_tasks([TASK_ROWS] * 48, CORES) is None


def test_there_are_no_more_tasks_than_partitions() -> None:
    assert most_tasks([10, 10], CORES) is None


def test_partitions_share_no_tasks_if_one_has_much_more_than_the_others() -> None:
    """Two large ones could get the same task, and the other cores would wait for it."""
    assert most_tasks([15_000, 15_000, 1_000, 1_000], CORES) is None


def test_a_small_epoch_has_one_task_for_each_core_whatever_its_partitions_have() -> None:
    assert most_tasks([FEW_ROWS - 200, 1, 1, 1], CORES) == CORES


def test_an_epoch_without_rows_has_no_limit() -> None:
    assert most_tasks([], CORES) is None


def test_the_rows_of_a_partition_are_those_since_the_epoch_before() -> None:
    before = [source(1, {"0": 10, "1": 20}), source(2, {"0": 5}, "u")]
    now = [source(1, {"0": 110, "1": 20}), source(2, {"0": 8}, "u")]
    assert rows_by_partition(before, now, {1: 1, 2: 1}) == [100, 3]


def test_a_partition_that_two_outputs_read_counts_twice() -> None:
    assert rows_by_partition([source(1, {"0": 1})], [source(1, {"0": 3})], {1: 2}) == [2, 2]


@pytest.mark.parametrize("before", [[], [source(1, {"0": 10})], [source(2, {"0": 10, "1": 10})]])
def test_rows_are_unknown_if_the_start_of_a_partition_is(before: list[KafkaSource]) -> None:
    """In the first epoch of a driver, and when a topic has got another partition or source."""
    assert rows_by_partition(before, [source(1, {"0": 110, "1": 20})], {1: 1}) is None
