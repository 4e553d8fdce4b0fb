"""Drivers that are newer than the status, because somebody edited or lost it: one row for each rule."""

from __future__ import annotations

import pytest

from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    CheckpointStatus,
    StreamingJobStatus,
)
from tests.unit.operator.builders import NOW, ended, job, observed, pod
from tests.unit.operator.rollback_builders import NEW, STABLE, stable, trial
from tests.unit.operator.rule_cases import RuleCase, check

ADOPTION = (
    RuleCase(
        "of several unknown drivers the newest is adopted, and the others are stopped",
        job(status=StreamingJobStatus()),
        observed(pod(attempt=3), pod(attempt=7)),
        "Running",
        ["StopDriver"],
        {"attempt": 7},
        {"uid": "u-7"},
        ["Adopted"],
    ),
    RuleCase(
        "the drivers before an adopted one that never ran may have decided an epoch",
        job(status=StreamingJobStatus(), deleted=True),
        observed(pod(attempt=2, phase="Pending", running_at=None, progress=None, terminating=True)),
        "Deleting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 3},
        {"mode": APPLY_ONLY},
        ["Adopted", "Disrupted"],
    ),
    RuleCase(
        "an adopted driver brings its checkpoint and savepoint; the known epoch is of another one",
        job(status=ended(last_epoch=9, last_epoch_time=NOW - 50)),
        observed(pod(attempt=2, checkpoint_number=2, restore_from="moved", progress=None)),
        "Running",
        status={"checkpoint": CheckpointStatus(number=2, restored_from="moved")},
        events=["Adopted"],
    ),
    RuleCase(
        "the failure of an earlier driver is none of an adopted one, which is replaced when it ends",
        job(status=ended(failure_reason="DriverFailed", finished=True, next_start_time=NOW + 90)),
        observed(pod(attempt=2)),
        "Running",
        status={"failure_reason": "", "finished": False, "next_start_time": None},
        events=["Adopted"],
    ),
    RuleCase(
        "the trial of a new spec begins with its adopted driver",
        job(NEW, ended(STABLE, last_stable_spec=stable())),
        observed(pod(NEW, attempt=2, progress=None)),
        "Running",
        status={"trial_start_time": NOW - 101},
        events=["Adopted"],
        requeue_in=199,
    ),
    RuleCase(
        "an adopted driver does not prolong a trial that has begun",
        job(NEW, trial(trial_start_time=NOW - 299)),
        observed(pod(NEW, attempt=3, progress=None)),
        "Running",
        status={"attempt": 3, "trial_start_time": NOW - 299},
        events=["Adopted"],
        requeue_in=1,
    ),
    RuleCase(
        "an adopted driver of a job without a last stable spec is not on trial",
        job(STABLE, StreamingJobStatus()),
        observed(pod(STABLE, progress=None)),
        "Running",
        status={"trial_start_time": None},
        events=["Adopted"],
    ),
)


@pytest.mark.parametrize("case", ADOPTION, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)
