"""How attempts at a savepoint are retried, given up and reported: one row for each rule."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sluicegate_operator.api.codec import parse, render
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.storage_tasks import (
    REQUEST,
    Dispose,
    Done,
    Running,
    Task,
    TaskState,
)
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import AnyOutcome, RuleCase, check, decide, started_tasks
from tests.unit.operator.savepoint_builders import (
    FOLDER,
    HOURLY,
    OF_AN_UPGRADE,
    RESULT,
    STOP,
    UPGRADING,
    failed_now,
    job,
    observed,
    savepoint,
    spec,
    take,
    taking,
)

FRACTION_S = 0.1234
"""Clocks give more digits than a status can store."""

RETRIES = (
    RuleCase(
        "a retry that runs does not extend the time either",
        savepoint(STOP, taking(start_time=NOW - 500, attempts=1, next_retry_time=NOW - 9)),
        observed(tasks={take(REQUEST): Running(NOW - 9, NOW - 5)}),
        "Taking",
        status={"start_time": NOW - 500},
    ),
    RuleCase(
        "an attempt for another folder is not waited for",
        savepoint(status=taking()),
        observed(tasks={take(folder="s3://else"): Running(NOW - 5)}),
        "Taking",
        ["RunTask"],
        tasks=[take()],
    ),
    RuleCase(
        "a changed spec is attempted now, and may fail as often as a new one",
        savepoint(
            status=taking(attempts=9, failures=9, next_retry_time=NOW + 99, last_error="no"),
            generation=2,
        ),
        observed(),
        "Taking",
        ["RunTask"],
        status={"failures": 0, "next_retry_time": None},
        conditions={"Accepted": ("True", "SpecValid")},
    ),
    RuleCase(
        "upgrade: a store that does not answer is tried again",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        observed(job(UPGRADING), tasks={take(REQUEST): failed_now()}),
        "Pending",
        ["ForgetTask"],
        conditions={"Ready": ("False", "BackingOff")},
        status={"failure_reason": "", "failures": 1},
        events=["NotTakenYet"],
        requeue_in=5,
    ),
    RuleCase(
        "upgrade: a job without an epoch is not waited for, so this failure counts",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        observed(job(UPGRADING), tasks={take(REQUEST): failed_now("SavepointRefused")}),
        "Failed",
        ["ForgetTask"],
        status={"failures": 1},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "upgrade: a driver that ended without its savepoint is not waited for either",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        observed(job(UPGRADING), tasks={take(REQUEST): failed_now("NotStopped")}),
        "Failed",
        ["ForgetTask"],
        status={"failure_reason": "NotStopped"},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "a savepoint that failed has no time of a next attempt",
        savepoint(status=taking(attempts=9, failures=9, next_retry_time=NOW - 9)),
        observed(tasks={take(): failed_now()}),
        "Failed",
        ["ForgetTask"],
        status={"next_retry_time": None},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "nothing of earlier attempts stays in the status once the savepoint is ready",
        savepoint(
            status=taking(
                attempts=3,
                failures=2,
                start_time=NOW - 500,
                failed_time=NOW - 60,
                next_retry_time=NOW - 9,
            )
        ),
        observed(tasks={take(): Done(NOW, RESULT)}),
        "Ready",
        ["ForgetTask"],
        status={"failures": 0, "start_time": None, "next_retry_time": None},
        events=["Taken"],
    ),
    RuleCase(
        "schedule: a savepoint that failed leaves the next one all of its attempts",
        savepoint(
            spec(schedule=HOURLY),
            taking(
                phase="Failed",
                folder="",
                failure_reason="StoreUnavailable",
                last_error="no",
                attempts=12,
                failures=10,
                start_time=NOW - 3000,
                last_schedule_time=NOW - 3600,
            ),
            created_at=NOW - 9000,
        ),
        observed(),
        "Taking",
        ["RunTask"],
        status={
            "attempts": 0,
            "failures": 0,
            "failure_reason": "",
            "last_error": "",
            "start_time": None,
        },
    ),
)


@pytest.mark.parametrize("case", RETRIES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_the_next_attempt_starts_at_the_time_that_a_failed_one_was_delayed_to() -> None:
    failed = decide(savepoint(status=taking()), observed(tasks={take(): failed_now()}))
    assert failed.requeue_at is not None
    retried = decide(savepoint(status=failed.status), observed(), failed.requeue_at)
    assert started_tasks(retried) == [take()]


@pytest.mark.parametrize(
    ("earlier", "reason"),
    [(SavepointStatus(), "NotTakenYet"), (taking(attempts=9, failures=9), "SavepointFailed")],
    ids=["retried", "given up"],
)
def test_a_warning_says_why_a_savepoint_is_not_taken(earlier: SavepointStatus, reason: str) -> None:
    before = dataclasses.replace(earlier, folder=FOLDER, observed_generation=1)
    event = _event(decide(savepoint(status=before), observed(tasks={take(): failed_now()})))
    assert (event.reason, event.warning) == (reason, True)
    assert failed_now().summary in event.message


@pytest.mark.parametrize("sealed", [True, False])
def test_the_event_of_a_savepoint_says_whether_the_job_can_continue_from_it(
    *, sealed: bool
) -> None:
    result = dataclasses.replace(RESULT, sealed=sealed)
    event = _event(decide(savepoint(status=taking()), observed(tasks={take(): Done(NOW, result)})))
    assert not event.warning
    assert ("can continue from it" in event.message) == sealed


@pytest.mark.parametrize(
    ("task", "state"),
    [
        (take(), Running(NOW - 900, NOW - 9 + FRACTION_S)),
        (take(), dataclasses.replace(failed_now(), at=NOW - 9 + FRACTION_S)),
        (take(), Done(NOW, dataclasses.replace(RESULT, at=NOW - 9 + FRACTION_S))),
        (Dispose(("s3://a",)), dataclasses.replace(failed_now(), at=NOW - 9 + FRACTION_S)),
    ],
    ids=["running", "failed", "done", "not deleted"],
)
def test_the_status_is_the_same_after_the_api_server_has_stored_its_times(
    task: Task, state: TaskState
) -> None:
    """Otherwise the operator would write it again."""
    known = observed(tasks={task: state})
    written = decide(savepoint(status=taking()), known, NOW + FRACTION_S).status
    stored = json.loads(json.dumps(render(written)))
    assert parse(SavepointStatus, stored, "status") == written


def _event(outcome: AnyOutcome) -> EmitEvent:
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    return event
