"""The runs that the status of a scheduled job lists."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import RunStatus
from tests.unit.operator.builders import NOW, alive, dead, ended, job, observed, pod
from tests.unit.operator.rule_cases import decide
from tests.unit.operator.scheduled_jobs import HOURLY, ON_TIME, ONCE, REPLACING


def results(*runs: tuple[float, str, int, float | None]) -> tuple[RunStatus, ...]:
    """Return runs from when they were due, their result, their latest attempt and their end."""
    return tuple(
        RunStatus(schedule_time=due, result=result, attempt=attempt, finish_time=finished)
        for due, result, attempt, finished in runs
    )


(YESTERDAY,) = results((NOW - 88200, "Finished", 1, NOW - 88000))


def test_a_run_is_listed_from_its_start_to_its_end() -> None:
    started = decide(job(HOURLY), observed()).status
    assert started.runs == results((NOW, "Running", 1, None))
    running = alive(HOURLY, last_schedule_time=NOW, runs=started.runs)
    done = decide(job(HOURLY, running), observed(dead(0, HOURLY)), NOW + 9).status
    assert done.runs == results((NOW, "Finished", 1, NOW + 9))
    later = decide(job(HOURLY, done), observed(), NOW + 60).status
    assert later.runs == done.runs


def test_a_run_that_failed_for_good_is_listed_before_the_next_one() -> None:
    failed = ended(
        HOURLY,
        last_schedule_time=NOW - 3600,
        failure_reason="DriverFailed",
        runs=results((NOW - 3600, "Failed", 1, NOW - 3000)),
    )
    found = decide(job(HOURLY, failed), observed()).status.runs
    assert found == (*failed.runs, *results((NOW, "Running", 2, None)))


def test_a_run_that_was_skipped_is_listed_as_missed_and_had_no_driver() -> None:
    before = ended(ON_TIME, finished=True, last_schedule_time=NOW - 88200, runs=(YESTERDAY,))
    found = decide(job(ON_TIME, before), observed()).status.runs
    assert found == (YESTERDAY, *results((NOW - 1800, "Missed", 0, NOW)))


def test_the_first_run_is_listed_although_it_was_skipped() -> None:
    found = decide(job(ON_TIME), observed()).status.runs
    assert found == results((NOW - 1800, "Missed", 0, NOW))


def test_a_run_that_waits_for_its_volume_has_no_driver_yet() -> None:
    before = ended(HOURLY, finished=True, last_schedule_time=NOW - 88200, runs=(YESTERDAY,))
    found = decide(job(HOURLY, before), observed(volume_ready=False)).status.runs
    assert found == (YESTERDAY, *results((NOW, "Running", 0, None)))


@pytest.mark.parametrize(
    ("wanted", "code", "result"),
    [
        (HOURLY, 0, ("Finished", 1, NOW)),
        (HOURLY, 64, ("Failed", 1, NOW)),
        (ONCE, 0, ("Finished", 1, NOW)),
    ],
    ids=["finished", "failed for good", "its schedule was removed"],
)
def test_the_end_of_a_run_is_listed(
    wanted: StreamingJobSpec, code: int, result: tuple[str, int, float]
) -> None:
    runs = results((NOW, "Running", 1, None))
    status = alive(wanted, last_schedule_time=NOW, runs=runs)
    assert decide(job(wanted, status), observed(dead(code, wanted))).status.runs == results(
        (NOW, *result)
    )


@pytest.mark.parametrize(("code", "result"), [(0, "Finished"), (64, "Failed")])
def test_the_end_of_a_run_is_listed_although_the_next_one_is_due(code: int, result: str) -> None:
    runs = results((NOW - 3600, "Running", 1, None))
    status = alive(HOURLY, last_schedule_time=NOW - 3600, runs=runs)
    found = decide(job(HOURLY, status), observed(dead(code, HOURLY))).status.runs
    assert found == results((NOW - 3600, result, 1, NOW), (NOW, "Running", 2, None))


def test_a_run_that_another_one_replaces_has_failed() -> None:
    wanted = dataclasses.replace(HOURLY, restart_nonce=1)
    open_run = results((NOW - 3600, "Running", 1, None))
    stopped = ended(HOURLY, last_schedule_time=NOW - 3600, runs=(YESTERDAY, *open_run))
    found = decide(job(wanted, stopped), observed()).status.runs
    replaced = results((NOW - 3600, "Failed", 1, NOW), (NOW, "Running", 2, None))
    assert found == (YESTERDAY, *replaced)


def test_a_run_that_the_next_one_replaces_is_listed_as_replaced() -> None:
    """The new run has no attempt until the old one's driver has ended."""
    open_run = results((NOW - 3600, "Running", 1, None))
    running = alive(REPLACING, last_schedule_time=NOW - 3600, runs=open_run)
    stopping = decide(job(REPLACING, running), observed(pod(REPLACING))).status
    replaced = (NOW - 3600, "Replaced", 1, NOW)
    assert stopping.runs == results(replaced, (NOW, "Running", 0, None))
    ended_pod = observed(dead(0, REPLACING, terminating=True))
    started = decide(job(REPLACING, stopping), ended_pod, NOW + 5).status
    assert started.runs == results(replaced, (NOW, "Running", 2, None))


def test_the_last_ten_runs_are_listed() -> None:
    old = results(*((NOW - 3600 * (10 - i), "Finished", i, NOW - 9) for i in range(10)))
    before = ended(HOURLY, finished=True, last_schedule_time=NOW - 3600, runs=old)
    found = decide(job(HOURLY, before), observed()).status.runs
    assert found[:-1] == old[1:]
    assert found[-1].result == "Running"


@pytest.mark.parametrize("over", [{"finished": True}, {"failure_reason": "DriverFailed"}])
def test_a_run_from_before_this_history_is_not_made_up(over: dict[str, Any]) -> None:
    before = ended(HOURLY, last_schedule_time=NOW, **over)
    assert decide(job(HOURLY, before), observed()).status.runs == ()


def test_a_run_that_began_before_this_history_is_listed() -> None:
    before = alive(HOURLY, last_schedule_time=NOW)
    found = decide(job(HOURLY, before), observed(pod(HOURLY))).status.runs
    assert found == results((NOW, "Running", 1, None))


def test_a_run_that_this_history_lacks_is_not_listed_as_missed_when_it_finishes() -> None:
    """A release without the history was in use meanwhile."""
    before = alive(HOURLY, last_schedule_time=NOW, runs=(YESTERDAY,))
    found = decide(job(HOURLY, before), observed(dead(0, HOURLY))).status.runs
    assert [one.result for one in found] == ["Finished", "Finished"]
