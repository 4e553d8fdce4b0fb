"""Batches and schedules of jobs: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.schedule import RunSchedule
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.streaming_job.reconciler import reconcile_job
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    ended,
    failures,
    job,
    observed,
    pod,
    requested,
    spec,
)
from tests.unit.operator.rule_cases import RuleCase, check
from tests.unit.operator.scheduled_jobs import HOURLY, ON_TIME, ONCE, REPLACING

AT_7_30, AT_7_57 = (
    dataclasses.replace(
        REPLACING,
        schedule=RunSchedule(cron=cron, concurrency_policy="Replace", starting_deadline_s=60),
    )
    for cron in ("30 7 * * *", "57 7 * * *")
)

BATCHES = (
    RuleCase(
        "a batch whose driver exits with 0 is finished",
        job(ONCE, alive(ONCE)),
        observed(dead(0, ONCE)),
        "Finished",
        ["RemovePodFinalizer"],
        {"finished": True},
        events=["Finished"],
        conditions={"Ready": ("True", "Finished")},
    ),
    RuleCase(
        "a finished batch stays finished",
        job(ONCE, ended(ONCE, finished=True)),
        observed(),
        "Finished",
        status={"attempt": 1},
    ),
    RuleCase(
        "a batch whose driver was deleted and exits with 0 is not finished",
        job(ONCE, alive(ONCE)),
        observed(dead(0, ONCE, terminating=True)),
        "Restarting",
        ["RemovePodFinalizer"],
        {"finished": False},
        events=["Disrupted"],
    ),
    RuleCase(
        "a failed batch is restarted like a stream",
        job(ONCE, alive(ONCE)),
        observed(dead(1, ONCE)),
        "Restarting",
        ["RemovePodFinalizer"],
        events=["DriverFailed"],
    ),
    RuleCase(
        "a changed spec starts another run",
        job(spec(trigger="Once", image="jobs:2"), ended(ONCE, finished=True)),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"finished": False},
    ),
    RuleCase(
        "a schedule waits for its first time",
        job(
            HOURLY,
            created_at=NOW - 0.5,
            status=StreamingJobStatus(last_schedule_time=NOW, finished=True),
        ),
        observed(),
        "Waiting",
        status={"attempt": 0},
        requeue_in=3600,
    ),
    RuleCase(
        "a run starts when it is due",
        job(HOURLY),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "last_schedule_time": NOW},
    ),
    RuleCase(
        "after a run the job waits for the next time",
        job(HOURLY, ended(HOURLY, finished=True, last_schedule_time=NOW)),
        observed(),
        "Waiting",
        requeue_in=3600,
    ),
    RuleCase(
        "a failed run is restarted until it finishes",
        job(HOURLY, ended(HOURLY, last_schedule_time=NOW - 3600, next_start_time=NOW)),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"last_schedule_time": NOW - 3600, "attempt": 2},
    ),
    RuleCase(
        "a run that failed for good does not prevent the next one",
        job(HOURLY, ended(HOURLY, last_schedule_time=NOW - 3600, failure_reason="DriverFailed")),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"failure_reason": "", "last_schedule_time": NOW},
    ),
    RuleCase(
        "two runs never overlap",
        job(HOURLY, alive(HOURLY, last_schedule_time=NOW - 3600)),
        observed(pod(HOURLY)),
        "Running",
        status={"last_schedule_time": NOW - 3600},
    ),
    RuleCase(
        "Replace stops a run that has not ended when the next one is due",
        job(REPLACING, alive(REPLACING, last_schedule_time=NOW - 3600)),
        observed(pod(REPLACING)),
        "Stopping",
        ["StopDriver"],
        {"attempt": 1, "last_schedule_time": NOW, "finished": False},
        {"stop_reason": "Replace"},
        events=["RunReplaced", "Stopping"],
    ),
    RuleCase(
        "Replace leaves a run alone before the next one is due",
        job(REPLACING, alive(REPLACING, last_schedule_time=NOW)),
        observed(pod(REPLACING)),
        "Running",
        status={"last_schedule_time": NOW},
    ),
    RuleCase(
        "the run that replaces another one starts when its driver has ended, however late that is",
        job(
            AT_7_57,
            alive(AT_7_57, stop_reason="Replace", last_schedule_time=NOW - 180),
        ),
        observed(dead(0, AT_7_57, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "last_schedule_time": NOW - 180, "restarts": 0},
    ),
    RuleCase(
        "a driver that is killed after its grace period has decided for the next run",
        job(
            AT_7_57,
            alive(AT_7_57, stop_reason="Replace", last_schedule_time=NOW - 180),
        ),
        observed(dead(137, AT_7_57, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "all_epochs_applied": False, "failures": ()},
    ),
    RuleCase(
        "Replace starts at once in place of a run that is backing off, with full budgets",
        job(
            REPLACING,
            ended(
                REPLACING,
                last_schedule_time=NOW - 3600,
                next_start_time=NOW + 60,
                failures=failures("Application", 3),
            ),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "last_schedule_time": NOW, "failures": ()},
        events=["RunReplaced"],
    ),
    RuleCase(
        "a driver whose pod does not exist yet becomes that of the next run",
        job(REPLACING, requested(REPLACING, last_schedule_time=NOW - 3600)),
        observed(),
        "Starting",
        [],
        {"attempt": 1, "last_schedule_time": NOW},
        events=["RunReplaced"],
    ),
    RuleCase(
        "a run that is too late replaces none",
        job(AT_7_30, alive(AT_7_30, last_schedule_time=NOW - 86400)),
        observed(pod(REPLACING)),
        "Running",
        status={"last_schedule_time": NOW - 86400},
    ),
    RuleCase(
        "a suspended job replaces no run",
        job(
            dataclasses.replace(REPLACING, suspend=True),
            ended(REPLACING, last_schedule_time=NOW - 3600),
        ),
        observed(),
        "Suspended",
        status={"last_schedule_time": NOW - 3600},
    ),
    RuleCase(
        "a run that is too late is skipped",
        job(ON_TIME),
        observed(),
        "Waiting",
        [],
        {"attempt": 0, "last_schedule_time": NOW - 1800},
        events=["RunMissed"],
    ),
    RuleCase(
        "a changed spec of a scheduled job waits for the next time",
        job(
            dataclasses.replace(HOURLY, image="jobs:2"),
            ended(HOURLY, finished=True, last_schedule_time=NOW),
        ),
        observed(),
        "Waiting",
        status={"attempt": 1, "finished": True},
    ),
    RuleCase(
        "a job that is created with a restartNonce waits for its schedule",
        job(dataclasses.replace(HOURLY, restart_nonce=5), created_at=NOW),
        observed(),
        "Waiting",
        status={"attempt": 0, "observed_restart_nonce": 5},
    ),
    RuleCase(
        "a restartNonce that changes before the first run starts an unscheduled one",
        job(
            dataclasses.replace(HOURLY, restart_nonce=6),
            StreamingJobStatus(observed_generation=1, observed_restart_nonce=5),
            created_at=NOW,
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1},
    ),
    RuleCase(
        "restartNonce starts an unscheduled run",
        job(
            dataclasses.replace(HOURLY, restart_nonce=1),
            ended(HOURLY, finished=True, last_schedule_time=NOW),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2},
    ),
)


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_invalid_schedule_is_rejected_with_its_text() -> None:
    wanted = spec(trigger="Once", schedule=RunSchedule(cron="0 25 * * *"))
    with pytest.raises(SettingsInvalid, match="schedule '0 25 \\* \\* \\*' in 'UTC' is invalid"):
        reconcile_job(job(wanted), observed(), NOW)
