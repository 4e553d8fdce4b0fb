"""Stateless upgrades: what is applied to the old checkpoint, and what is left of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, UpgradeStatus
from tests.unit.operator.builders import NOW, alive, dead, ended, job, observed, spec
from tests.unit.operator.rollback_builders import (
    LATE,
    NEW,
    NEWER,
    NO_PROGRESS,
    STABLE,
    stable,
    trial,
)
from tests.unit.operator.rule_cases import RuleCase, check

STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")
UPGRADE: dict[str, Any] = {"upgrade": UpgradeStatus(mode="Stateless")}
STOPPING: dict[str, Any] = {"stop_reason": "Upgrade", **UPGRADE}
NOT_READY: dict[str, Any] = {"volume_ready": False, "volume_message": "no such bucket"}

APPLYING = (
    RuleCase(
        "the driver that applies decided epochs waits until the volume is ready",
        job(STATELESS, alive(**STOPPING)),
        observed(dead(137, terminating=True), **NOT_READY),
        "Upgrading",
        ["RemovePodFinalizer"],
        {"attempt": 1, "checkpoint.number": 1},
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    RuleCase(
        "it needs no savepoint: a checkpoint that has yet to be restored has nothing to apply",
        job(STATELESS, alive(restored_from="moved", **STOPPING)),
        observed(dead(137, terminating=True)),
        "Upgrading",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "checkpoint.number": 1},
        {"mode": APPLY_ONLY},
    ),
    RuleCase(
        "after it has failed the next one waits for its restart delay",
        job(STATELESS, ended(STATELESS, mode=APPLY_ONLY, next_start_time=NOW + 9, **UPGRADE)),
        observed(),
        "Upgrading",
        status={"attempt": 1, "checkpoint.number": 1},
        requeue_in=9,
        conditions={"Ready": ("False", "BackingOff")},
    ),
    RuleCase(
        "after it has failed for good the job waits for a person, on the old checkpoint",
        job(STATELESS, ended(STATELESS, mode=APPLY_ONLY, failure_reason="DriverFailed", **UPGRADE)),
        observed(),
        "Upgrading",
        status={"attempt": 1, "checkpoint.number": 1},
        conditions={"Ready": ("False", "ApplyFailed")},
    ),
    RuleCase(
        "why the job's own driver ended for good does not keep its epochs from being applied",
        job(STATELESS, ended(STATELESS, failure_reason="Stuck", **UPGRADE)),
        observed(),
        "Upgrading",
        ["CreateDriver"],
        {"attempt": 2, "checkpoint.number": 1, "failure_reason": ""},
        {"mode": APPLY_ONLY},
    ),
)

LEFT = (
    RuleCase(
        "a job that waits for its volume begins one new checkpoint",
        job(STATELESS, alive(**STOPPING)),
        observed(dead(0, terminating=True), **NOT_READY),
        "Pending",
        ["RemovePodFinalizer"],
        {"attempt": 1, "checkpoint.number": 2, "upgrade": None},
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    RuleCase(
        "a rollback returns to the old checkpoint, which an abandoned savepoint may still seal",
        job(
            dataclasses.replace(NEW, upgrade_mode="Stateless"),
            alive(
                STABLE,
                last_stable_spec=stable(),
                last_epoch=7,
                abandoned_savepoints=(LATE,),
                **STOPPING,
            ),
        ),
        observed(dead(0, STABLE, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 2, "last_stable_spec": stable(abandoned_savepoints=(LATE,))},
    ),
    RuleCase(
        "it returns to the same one if the checkpoint of a spec without an epoch is left",
        job(
            dataclasses.replace(NEWER, upgrade_mode="Stateless"),
            trial(number=2, last_stable_spec=stable(abandoned_savepoints=(LATE,)), **STOPPING),
        ),
        observed(dead(0, NEW, terminating=True, checkpoint_number=2, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 3, "last_stable_spec": stable(abandoned_savepoints=(LATE,))},
    ),
)


@pytest.mark.parametrize("case", [*APPLYING, *LEFT], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)
