"""When what a driver reports of its progress and its executors makes the operator write a job's status."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.streaming_job_status import VerdictStatus
from sluicegate_operator.reconcile.observed import Executors, Progress
from tests.unit.operator.builders import NOW, alive, job, observed, pod
from tests.unit.operator.rule_cases import decide

HOUR_S = 3600.0


@pytest.mark.parametrize(
    "intervals_s",
    [
        pytest.param((60.0,), id="a driver of this release"),
        pytest.param((60.0, 62.5, 60.1), id="a driver whose reports are delayed"),
        pytest.param((10.0,), id="a driver of an older release"),
    ],
)
def test_reports_make_at_most_one_write_a_minute(intervals_s: tuple[float, ...]) -> None:
    written = _write_times(intervals_s)
    assert HOUR_S / 60 * 0.9 <= len(written) <= HOUR_S / 60 + 1


def test_each_report_that_comes_once_a_minute_is_written_when_it_is_seen() -> None:
    """Otherwise the status would be two minutes late."""
    assert len(_write_times((60.0, 59.0, 61.0))) == int(HOUR_S / 60)


@pytest.mark.parametrize(
    ("later_s", "writes"), [(-1.0, True), (0.0, False), (0.5, False), (54.0, False), (55.0, True)]
)
def test_progress_alone_is_written_if_it_is_55_s_newer_or_the_clock_was_set_back_by_a_second(
    later_s: float,
    writes: bool,  # noqa: FBT001
) -> None:
    status = decide(job(status=alive()), observed(pod(progress=Progress(NOW, 7)))).status
    newer = observed(pod(progress=Progress(NOW + later_s, 8)))
    found = decide(job(status=status), newer, NOW + 60).status
    assert (found != status, found.checkpoint.last_epoch) == (writes, 8 if writes else 7)


def test_a_report_that_was_written_is_not_written_again_when_its_time_is_read_in_milliseconds() -> (
    None
):
    """Otherwise half of the reports cost two requests: the status read back is later than the report."""
    report = observed(pod(progress=Progress(NOW + 0.0006, 7)))
    status = decide(job(status=alive()), report).status
    written = round(status.checkpoint.last_epoch_time or 0.0, 3)
    checkpoint = dataclasses.replace(status.checkpoint, last_epoch_time=written)
    read = dataclasses.replace(status, checkpoint=checkpoint)
    assert decide(job(status=read), report, NOW + 1).status == read


def test_the_first_progress_of_a_job_is_written_when_it_is_seen() -> None:
    started = decide(job(status=alive()), observed(pod(progress=None))).status
    found = decide(job(status=started), observed(pod(progress=Progress(NOW, 0)))).status.checkpoint
    assert (found.last_epoch, found.last_epoch_time) == (0, NOW)


def test_a_driver_that_has_found_no_input_yet_leaves_the_last_epoch_of_the_one_before() -> None:
    idle = observed(pod(progress=Progress(NOW)))
    found = decide(job(status=alive(last_epoch=7)), idle).status.checkpoint
    assert (found.last_epoch, found.last_epoch_time) == (7, NOW)


def test_whatever_is_newest_is_written_with_any_other_change() -> None:
    first = observed(pod(progress=Progress(NOW, 7), executors=Executors(2, 2)))
    status = decide(job(status=alive()), first).status
    newer = observed(pod(progress=Progress(NOW + 1, 8), executors=Executors(1, 2)))
    assert decide(job(status=status), newer, NOW + 2).status == status
    found = decide(job(status=status, generation=2), newer, NOW + 2).status
    assert (found.checkpoint.last_epoch, found.executors.running) == (8, 1)


def _write_times(intervals_s: tuple[float, ...]) -> list[float]:
    """Return when the status is written, with reports in these intervals, another verdict in each."""
    status, written, now, number = decide(job(status=alive()), observed(pod())).status, [], NOW, 0
    while now + intervals_s[number % len(intervals_s)] <= NOW + HOUR_S:
        now += intervals_s[number % len(intervals_s)]
        number += 1
        verdict = VerdictStatus(reason="BoundByPlan", message=f"busy for {number} %")
        driver = pod(progress=Progress(now, number, verdict))
        outcome = decide(job(status=status), observed(driver), now)
        if outcome.status != status:
            written.append(now)
            status = outcome.status
    return written
