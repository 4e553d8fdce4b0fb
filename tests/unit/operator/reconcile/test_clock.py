"""Times in the status of a job: of a clock that was set back, and as the API server stores them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sluicegate_operator.api.codec import parse, render
from sluicegate_operator.api.streaming_job_status import (
    NONE,
    REQUESTED,
    ExecutorsStatus,
    FailureStatus,
    RunStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.observed import Executors
from tests.unit.operator.builders import NOW, alive, dead, ended, job, observed, pod
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.scheduled_jobs import HOURLY
from tests.unit.operator.standby_builders import WITH, driver, standby, status_of

AHEAD = NOW + 7200
"""A time that the clock gave before it was set back by two hours."""


def failed(at: float) -> tuple[FailureStatus, ...]:
    return (FailureStatus(kind="Application", time=at),)


SET_BACK = (
    RuleCase(
        "the next standby is requested after five minutes at the latest",
        job(WITH, status_of(standby=standby(NONE, next_start_time=AHEAD))),
        observed(driver()),
        "Running",
        requeue_in=300,
    ),
    RuleCase(
        "a request for a standby is repeated after its delay",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=AHEAD))),
        observed(driver()),
        "Running",
        status={"standby.request_time": NOW},
        requeue_in=5,
    ),
    RuleCase(
        "a driver whose failures are of before still runs",
        job(status=alive(failures=failed(AHEAD))),
        observed(pod()),
        "Running",
        status={"failures": failed(NOW), "next_start_time": None},
    ),
    RuleCase(
        "a restart is delayed by what was left of its delay, however little the clock was set back",
        job(status=ended(failures=failed(NOW + 0.5), next_start_time=NOW + 5.5)),
        observed(),
        "Restarting",
        requeue_in=5,
    ),
    RuleCase(
        "a restart is not delayed again while the clock goes on",
        job(status=ended(failures=failed(NOW - 2), next_start_time=NOW + 3)),
        observed(),
        "Restarting",
        requeue_in=3,
    ),
)


@pytest.mark.parametrize("case", SET_BACK, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_executors_are_reported_although_the_clock_was_set_back() -> None:
    known = decide(job(status=alive()), observed(pod(executors=Executors(1, 2)))).status
    before = dataclasses.replace(known, executors=ExecutorsStatus(running=1, wanted=2, time=AHEAD))
    found = decide(job(status=before), observed(pod(executors=Executors(2, 2)))).status
    assert (found.executors.running, found.executors.time) == (2, NOW)


def test_the_next_run_is_listed_although_the_clock_was_set_back() -> None:
    run = RunStatus(schedule_time=AHEAD, result="Finished", attempt=1, finish_time=AHEAD)
    before = ended(HOURLY, finished=True, last_schedule_time=AHEAD, runs=(run,))
    known = decide(job(HOURLY, before), observed()).status
    later = decide(job(HOURLY, known), observed(as_of=NOW + 3600), NOW + 3600).status
    assert [one.schedule_time for one in later.runs] == [NOW, NOW + 3600]


def test_the_status_is_the_same_after_the_api_server_has_stored_its_times() -> None:
    """Otherwise the operator would write it again."""
    written = decide(job(status=alive()), observed(dead(1)), NOW + 0.1234).status
    stored = json.loads(json.dumps(render(written)))
    assert parse(StreamingJobStatus, stored, "status") == written
