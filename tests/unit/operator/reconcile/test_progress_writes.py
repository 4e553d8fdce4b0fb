"""How often progress alone makes the operator write a job's status."""

from __future__ import annotations

import pytest

from sluicegate_operator.api.streaming_job_status import VerdictStatus
from sluicegate_operator.reconcile.observed import Progress
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
