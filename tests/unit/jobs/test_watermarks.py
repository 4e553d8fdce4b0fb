"""The judgement of late rows: by the watermarks in `offsets/N`, which must agree with the events."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.sinks.kafka.reader import Record
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.verification.findings import Findings
from sluicegate_jobs.verification.watermarks import (
    EpochPlan,
    Late,
    Watermarks,
    read_plan,
    read_watermarks,
)

LATENESS_MS = 5


def record(offset: int, partition: int = 0) -> Record:
    return Record(partition, offset, None, b"")


def plans(*watermarks_ms: int, first: int = 0) -> list[EpochPlan]:
    """Return epochs of ten records each."""
    return [EpochPlan(first + i, {0: 10 * (i + 1)}, w) for i, w in enumerate(watermarks_ms)]


@pytest.mark.parametrize(
    ("offset", "window_end_ms", "expected"),
    [
        (9, 1, Late.NO),  # epoch 0 has no watermark
        (10, 1, Late.NO),  # epoch 1 drops by that of epoch 0
        (20, 50, Late.YES),
        (20, 51, Late.NO),
        (29, 80, Late.NO),
        (30, 1, Late.NO),  # no epoch has read it
    ],
)
def test_a_row_is_late_by_the_watermark_of_the_epoch_before(
    offset: int, window_end_ms: int, expected: Late
) -> None:
    watermarks = Watermarks(plans(0, 50, 90))
    assert watermarks.judge(record(offset), 1, window_end_ms) is expected


@pytest.mark.parametrize(("window_end_ms", "expected"), [(50, Late.UNKNOWN), (51, Late.NO)])
def test_rows_of_pruned_epochs_are_bounded_by_the_oldest_retained_watermark(
    window_end_ms: int, expected: Late
) -> None:
    watermarks = Watermarks(plans(50, 90, first=100))
    assert watermarks.judge(record(3), 1, window_end_ms) is expected


def test_a_missing_plan_is_bounded_by_the_next_one() -> None:
    first, _, third = plans(0, 50, 90)
    watermarks = Watermarks([first, third])
    assert watermarks.judge(record(25), 1, 90) is Late.UNKNOWN
    assert watermarks.judge(record(25), 1, 91) is Late.NO


def test_a_partition_that_was_added_later_belongs_to_the_epoch_that_read_it_first() -> None:
    watermarks = Watermarks(
        [EpochPlan(0, {0: 5}, 0), EpochPlan(1, {0: 5}, 50), EpochPlan(2, {0: 5, 1: 5}, 50)]
    )
    assert watermarks.judge(record(0, partition=1), 1, 50) is Late.YES


@pytest.mark.parametrize(
    ("watermark_ms", "at_ms", "count"),
    [(50, 55, 0), (51, 55, 1), (0, 2, 0), (1, None, 1)],
    ids=["equal", "too high", "never negative", "without an event"],
)
def test_a_watermark_needs_an_earlier_event(
    watermark_ms: int, at_ms: int | None, count: int
) -> None:
    watermarks, findings = Watermarks(plans(0, watermark_ms)), Findings()
    if at_ms is not None:
        watermarks.judge(record(0), at_ms, at_ms + 5)
    watermarks.judge(record(10), 999, 1000)  # read by the epoch itself: does not move its watermark
    watermarks.check(LATENESS_MS, findings)
    assert len(findings.result()) == count


def test_plans_are_read_from_the_offset_log(tmp_path: Path) -> None:
    """Spark's scratch files and epochs that are not decided are left out."""
    folder = tmp_path / "offsets"
    folder.mkdir()
    for epoch in range(3):
        content = f'v1\n{{"batchWatermarkMs":{epoch * 10}}}\n{{"t":{{"0":{epoch}}}}}'
        (folder / str(epoch)).write_text(content)
    (folder / ".1.crc").write_text("")
    objects = open_store(str(tmp_path))
    assert read_plan(objects, 1, "t") == EpochPlan(1, {0: 1}, 10)
    assert read_plan(objects, 1, "other") is None
    watermarks = read_watermarks(objects, "t", newest=1)
    assert watermarks.judge(record(1), 1, 1) is Late.NO
    assert [plan.epoch for plan in watermarks._plans] == [0, 1]
