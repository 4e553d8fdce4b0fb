"""Savepoints that are completed after their upgrade has continued: one row for each rule."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, UpgradeStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import SavepointState
from tests.unit.operator.builders import alive, dead, ended, job, observed, pod, spec
from tests.unit.operator.rollback_builders import LATE
from tests.unit.operator.rule_cases import RuleCase, check, decide

SEALED: dict[str, Any] = {"message": "Sealed: moved"}
STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")

LATE_SAVEPOINTS = (
    RuleCase(
        "a savepoint that failed is recorded as abandoned",
        job(
            spec(image="jobs:2", upgrade_mode="Savepoint"),
            alive(stop_reason="Savepoint", upgrade=UpgradeStatus(mode="Savepoint", savepoint=LATE)),
        ),
        observed(pod(), savepoints={LATE: SavepointState("Failed", "disk full")}),
        "Upgrading",
        ["StopDriver"],
        {"checkpoint.abandoned_savepoints": (LATE,)},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "if an abandoned savepoint sealed the checkpoint the job continues from it",
        job(status=alive(abandoned_savepoints=(LATE,))),
        observed(dead(65, **SEALED), savepoints={LATE: SavepointState("Ready")}),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {
            "checkpoint.number": 2,
            "checkpoint.restored_from": LATE,
            "checkpoint.abandoned_savepoints": (),
            "failure_reason": "",
            "all_epochs_applied": True,
        },
        events=["Sealed", "SavepointLate"],
    ),
    RuleCase(
        "the job also continues from an abandoned savepoint that completes later",
        job(status=ended(failure_reason="Sealed", abandoned_savepoints=(LATE,))),
        observed(savepoints={LATE: SavepointState("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"checkpoint.number": 2, "checkpoint.restored_from": LATE},
        events=["SavepointLate"],
    ),
    RuleCase(
        "until an abandoned savepoint completes the job stays failed",
        job(status=ended(failure_reason="Sealed", abandoned_savepoints=(LATE,))),
        observed(savepoints={LATE: SavepointState("Pending")}),
        "Failed",
        status={"checkpoint.number": 1},
    ),
    RuleCase(
        "a savepoint of another job is not used",
        job(status=ended(failure_reason="Sealed")),
        observed(savepoints={LATE: SavepointState("Ready")}),
        "Failed",
        status={"checkpoint.number": 1},
    ),
    RuleCase(
        "a completed savepoint is not used before a driver has found the seal",
        job(status=ended(abandoned_savepoints=(LATE,))),
        observed(savepoints={LATE: SavepointState("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"checkpoint.number": 1, "checkpoint.abandoned_savepoints": (LATE,)},
    ),
    RuleCase(
        "a checkpoint is not left while a driver that was adopted uses it",
        job(status=ended(failure_reason="Sealed", abandoned_savepoints=(LATE,))),
        observed(pod(attempt=2), savepoints={LATE: SavepointState("Ready")}),
        "Running",
        status={"attempt": 2, "checkpoint.number": 1},
        events=["Adopted"],
    ),
    RuleCase(
        "nor while any other driver uses it, even if somebody has edited the status",
        job(status=alive(failure_reason="Sealed", abandoned_savepoints=(LATE,))),
        observed(pod(), savepoints={LATE: SavepointState("Ready")}),
        "Running",
        status={"attempt": 1, "checkpoint.number": 1},
    ),
    RuleCase(
        "a stateless upgrade starts with an empty checkpoint although a savepoint was completed late",
        job(
            STATELESS,
            alive(
                STATELESS,
                mode=APPLY_ONLY,
                upgrade=UpgradeStatus(mode="Stateless"),
                abandoned_savepoints=(LATE,),
            ),
        ),
        observed(
            dead(65, STATELESS, mode=APPLY_ONLY, **SEALED),
            savepoints={LATE: SavepointState("Ready")},
        ),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 2, "checkpoint.restored_from": ""},
        events=["Sealed"],
    ),
    RuleCase(
        "an apply-only driver that finds the seal has nothing to apply",
        job(status=alive(mode=APPLY_ONLY, phase="Deleting"), deleted=True),
        observed(dead(65, mode=APPLY_ONLY, **SEALED)),
        "Deleting",
        ["DeletePod"],
        events=["Sealed"],
    ),
)


@pytest.mark.parametrize("case", LATE_SAVEPOINTS, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_warning_says_that_the_job_resumes_from_a_late_savepoint() -> None:
    status = ended(failure_reason="Sealed", abandoned_savepoints=(LATE,))
    outcome = decide(job(status=status), observed(savepoints={LATE: SavepointState("Ready")}))
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert (event.reason, event.warning, LATE in event.message) == ("SavepointLate", True, True)
