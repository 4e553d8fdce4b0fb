"""Which run of a job is next, and what a restart or a due run leaves alone: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.schedule import RunSchedule
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, RUN, UpgradeStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import Job, SavepointState
from tests.unit.operator.builders import (
    NOW,
    alive,
    ended,
    failures,
    job,
    observed,
    pod,
    requested,
    spec,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.scheduled_jobs import ON_TIME

NAME = "clicks-upgrade-u-job-1"
BY_SAVEPOINT = UpgradeStatus(mode="Savepoint", savepoint=NAME)
AN_HOUR_AGO = NOW - 3600
REPLACE = RunSchedule(cron="0 * * * *", concurrency_policy="Replace")
REPLACING = spec(trigger="Once", schedule=REPLACE)
NO_POD = requested(REPLACING, last_schedule_time=AN_HOUR_AGO)
NO_POD = dataclasses.replace(
    NO_POD, driver=dataclasses.replace(NO_POD.driver, request_time=NOW - 40)
)

RESTARTS = (
    RuleCase(
        "a restart during an upgrade does not interrupt its savepoint",
        job(
            spec(image="jobs:2", upgrade_mode="Savepoint", restart_nonce=1),
            alive(stop_reason="Savepoint", upgrade=BY_SAVEPOINT),
        ),
        observed(pod(), savepoints={NAME: SavepointState("Pending")}),
        "Upgrading",
        status={"upgrade": BY_SAVEPOINT},
        driver={"stop_reason": "Savepoint"},
        requeue_in=599,
    ),
    RuleCase(
        "a restart requests no pod while an earlier request may still create one",
        job(spec(restart_nonce=1), requested()),
        observed(as_of=NOW + 9),
        "Starting",
        driver={"requests": 1},
        requeue_in=29,
    ),
    RuleCase(
        "a restart of a stream is no run of a schedule",
        job(spec(restart_nonce=1), ended(failure_reason="Sealed")),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "last_schedule_time": None, "runs": ()},
    ),
)

REPLACEMENTS = (
    RuleCase(
        "a run that has finished is followed by the next one and not replaced",
        job(REPLACING, ended(REPLACING, last_schedule_time=AN_HOUR_AGO, finished=True)),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "last_schedule_time": NOW},
    ),
    RuleCase(
        "no run replaces a driver that applies decided epochs",
        job(REPLACING, alive(REPLACING, mode=APPLY_ONLY, last_schedule_time=AN_HOUR_AGO)),
        observed(pod(REPLACING, mode=APPLY_ONLY)),
        "Running",
        status={"last_schedule_time": AN_HOUR_AGO},
        driver={"mode": APPLY_ONLY, "stop_reason": ""},
    ),
    RuleCase(
        "once such a driver has failed, the due run replaces the one that has not ended",
        job(
            REPLACING,
            ended(
                REPLACING,
                mode=APPLY_ONLY,
                last_schedule_time=AN_HOUR_AGO,
                next_start_time=NOW + 60,
                failures=failures("Application", 1),
            ),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"last_schedule_time": NOW},
        {"mode": RUN},
        ["RunReplaced"],
    ),
    RuleCase(
        "a pod that was requested for a run and never appeared is requested again for the next run",
        job(REPLACING, NO_POD),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "last_schedule_time": NOW},
        {"requests": 2},
        ["RunReplaced"],
    ),
    RuleCase(
        "a failed run that a new spec continues is replaced by the run that is due",
        job(
            dataclasses.replace(REPLACING, image="jobs:2"),
            ended(REPLACING, last_schedule_time=AN_HOUR_AGO, failure_reason="SettingsRefused"),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "last_schedule_time": NOW},
        events=["RunReplaced"],
    ),
    RuleCase(
        "a run that replaces another one does not interrupt the savepoint of an upgrade",
        job(
            spec(trigger="Once", schedule=REPLACE, image="jobs:2", upgrade_mode="Savepoint"),
            alive(
                REPLACING,
                stop_reason="Savepoint",
                upgrade=BY_SAVEPOINT,
                last_schedule_time=AN_HOUR_AGO,
            ),
        ),
        observed(pod(REPLACING), savepoints={NAME: SavepointState("Pending")}),
        "Upgrading",
        status={"last_schedule_time": NOW},
        driver={"stop_reason": "Savepoint"},
        events=["RunReplaced"],
    ),
)


@pytest.mark.parametrize("case", [*RESTARTS, *REPLACEMENTS], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("scheduled", "now", "delay"),
    [
        (
            job(REPLACING, ended(REPLACING, last_schedule_time=AN_HOUR_AGO)),
            NOW + 30,
            "due 30 s ago",
        ),
        (job(ON_TIME), NOW, "1800 s late"),
    ],
    ids=["a run that replaces another one", "a run that is skipped"],
)
def test_event_says_how_late_a_run_is(scheduled: Job, now: float, delay: str) -> None:
    assert delay in first_event(scheduled, now).message


def test_skipped_run_is_a_warning_and_a_replaced_one_is_not() -> None:
    """A skipped run loses its time; a replaced one is continued by the next."""
    replaced = job(REPLACING, ended(REPLACING, last_schedule_time=AN_HOUR_AGO))
    assert first_event(job(ON_TIME), NOW).warning
    assert not first_event(replaced, NOW).warning


def first_event(scheduled: Job, now: float) -> EmitEvent:
    """Return the first Event of a reconciliation."""
    outcome = decide(scheduled, observed(as_of=now), now)
    return next(one for one in outcome.actions if isinstance(one, EmitEvent))
