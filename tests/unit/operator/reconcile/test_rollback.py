"""Rollback to the last stable spec, and late savepoints of upgrades: one row for each rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job import PodSettings, RollbackSettings, StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    CheckpointStatus,
    RollbackStatus,
    StableSpecStatus,
    StreamingJobStatus,
    UpgradeStatus,
)
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Node, Progress, SavepointState
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    ended,
    job,
    observed,
    pod,
    requested,
    spec,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide, event_reasons

ON = RollbackSettings(enabled=True, deadline_s=300)
STABLE = spec(rollback=ON)
NEW = spec(image="jobs:2", rollback=ON)
NEWER = spec(image="jobs:3", rollback=ON)
RESTARTED = dataclasses.replace(NEW, restart_nonce=1)
OFF = spec(image="jobs:2")
NO_RESTART = dataclasses.replace(NEW, restart=dataclasses.replace(NEW.restart, restart="none"))
LATE = "clicks-upgrade-1"
NO_PROGRESS: dict[str, Any] = {"attempt": 2, "progress": None}


def stable(wanted: StreamingJobSpec = STABLE, **changes: Any) -> StableSpecStatus:
    """Return the last stable spec, which created epoch 7 on checkpoint 1."""
    given: dict[str, Any] = {"number": 1, "last_epoch": 7, **changes}
    return StableSpecStatus(
        spec=wanted.seen_by_driver(),
        spec_hash=wanted.running_hash(),
        checkpoint=CheckpointStatus(**given),
    )


def trial(**changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 2 runs a new spec and has created no epoch."""
    given = {"attempt": 2, "last_stable_spec": stable(), "trial_start_time": NOW - 101, **changes}
    return alive(NEW, **given)


def rolled_back(*, completed: bool = True, of: StreamingJobSpec = NEW) -> RollbackStatus:
    """Return the status of a rollback."""
    return RollbackStatus(spec_hash=of.running_hash(), reason="NoEpoch", completed=completed)


def terminated(status: StreamingJobStatus) -> StreamingJobStatus:
    """Return a status whose driver has ended."""
    return dataclasses.replace(
        status, driver=dataclasses.replace(status.driver, state="Terminated")
    )


RECORDING = (
    RuleCase(
        "a spec whose driver has made an epoch becomes the last stable one",
        job(STABLE, alive(STABLE)),
        observed(pod(STABLE)),
        "Running",
        status={"last_stable_spec": stable()},
    ),
    RuleCase(
        "a spec without an epoch does not",
        job(STABLE, alive(STABLE)),
        observed(pod(STABLE, progress=Progress(NOW - 5, None))),
        "Running",
        status={"last_stable_spec": None},
    ),
    RuleCase(
        "nothing is recorded without spec.rollback",
        job(spec(), alive()),
        observed(pod()),
        "Running",
        status={"last_stable_spec": None},
    ),
    RuleCase(
        "a new spec that makes an epoch becomes the last stable one with its checkpoint",
        job(NEW, trial(number=2, restored_from="moved")),
        observed(pod(NEW, attempt=2, checkpoint_number=2)),
        "Running",
        status={
            "last_stable_spec": stable(NEW, number=2, restored_from="moved"),
            "trial_start_time": None,
        },
    ),
    RuleCase(
        "the last stable spec moves to the new checkpoint if a savepoint seals the old one",
        job(
            dataclasses.replace(NEW, upgrade_mode="Savepoint"),
            alive(
                STABLE,
                stop_reason="Savepoint",
                upgrade=UpgradeStatus(mode="Savepoint", savepoint=LATE),
                last_stable_spec=stable(),
            ),
        ),
        observed(dead(0, STABLE), savepoints={LATE: SavepointState("Ready")}),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {
            "checkpoint.number": 2,
            "last_stable_spec": stable(number=2, restored_from=LATE, last_epoch=None),
            "trial_start_time": NOW,
        },
    ),
    RuleCase(
        "switching rollback off drops the last stable spec",
        job(OFF, trial()),
        observed(pod(NEW, **NO_PROGRESS)),
        "Running",
        status={"last_stable_spec": None, "trial_start_time": None},
    ),
)

ROLLING_BACK = (
    RuleCase(
        "a new spec has until its deadline to make an epoch",
        job(NEW, trial()),
        observed(pod(NEW, **NO_PROGRESS)),
        "Running",
        status={"rollback": None},
        requeue_in=199,
    ),
    RuleCase(
        "after the deadline its driver is stopped",
        job(NEW, trial(trial_start_time=NOW - 300)),
        observed(pod(NEW, **NO_PROGRESS)),
        "Upgrading",
        ["StopDriver"],
        {"rollback": rolled_back(completed=False)},
        {"stop_reason": "Rollback"},
        ["RolledBack", "Stopping"],
        conditions={"RolledBack": ("True", "NoEpoch")},
    ),
    RuleCase(
        "then the last stable spec is started",
        job(
            NEW,
            dataclasses.replace(
                trial(rollback=rolled_back(completed=False), stop_reason="Rollback")
            ),
        ),
        observed(dead(0, NEW, terminating=True, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 3, "rollback": rolled_back(), "checkpoint.number": 1, "trial_start_time": None},
        {"spec_hash": STABLE.running_hash()},
    ),
    RuleCase(
        "a new spec that failed for good is rolled back at once",
        job(NO_RESTART, trial()),
        observed(dead(1, NEW, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 3, "failure_reason": "", "failures": ()},
        {"spec_hash": STABLE.running_hash()},
        ["DriverFailed", "RolledBack"],
        conditions={"RolledBack": ("True", "DriverFailed")},
    ),
    RuleCase(
        "a new spec that is restarted is not rolled back before its deadline",
        job(NEW, trial()),
        observed(dead(1, NEW, **NO_PROGRESS)),
        "Restarting",
        ["RemovePodFinalizer"],
        {"rollback": None},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a new spec without input is not rolled back",
        job(NEW, trial(trial_start_time=NOW - 9999)),
        observed(pod(NEW, attempt=2, progress=Progress(NOW - 5, None))),
        "Running",
        status={"rollback": None},
    ),
    RuleCase(
        "a new spec on a lost node is not rolled back",
        job(NEW, trial(trial_start_time=NOW - 9999)),
        observed(pod(NEW, node=Node(unresponsive_since=NOW - 9999), **NO_PROGRESS)),
        "Running",
        status={"rollback": None},
    ),
    RuleCase(
        "a sealed checkpoint causes no rollback because no spec can continue on it",
        job(NEW, trial()),
        observed(dead(65, NEW, message="Sealed: moved", **NO_PROGRESS)),
        "Failed",
        ["RemovePodFinalizer"],
        {"rollback": None, "failure_reason": "Sealed"},
        events=["Sealed"],
    ),
    RuleCase(
        "a requested pod that may still appear delays the rollback",
        job(NEW, requested(NEW, attempt=2, last_stable_spec=stable(), trial_start_time=NOW - 300)),
        observed(),
        "Upgrading",
        status={"rollback": rolled_back(completed=False)},
        events=["RolledBack"],
        requeue_in=29,
    ),
    RuleCase(
        "LastState: the last stable spec continues with the same checkpoint",
        job(NEW, trial(trial_start_time=NOW - 300, last_epoch=9)),
        observed(dead(1, NEW, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "checkpoint.last_epoch": 9},
        events=["DriverFailed", "RolledBack"],
    ),
    RuleCase(
        "Savepoint: the last stable spec continues with the new checkpoint because the old one is sealed",
        job(
            NEW,
            trial(
                trial_start_time=NOW - 300,
                number=2,
                restored_from=LATE,
                last_stable_spec=stable(number=2, restored_from=LATE, last_epoch=None),
            ),
        ),
        observed(
            dead(1, NEW, checkpoint_number=2, **NO_PROGRESS),
            savepoints={LATE: SavepointState("Ready")},
        ),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 2, "checkpoint.restored_from": LATE},
        events=["DriverFailed", "RolledBack"],
    ),
    RuleCase(
        "Stateless: the last stable spec returns to the old checkpoint",
        job(NEW, trial(trial_start_time=NOW - 300, number=2, latest_checkpoint_number=2)),
        observed(dead(1, NEW, checkpoint_number=2, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {
            "checkpoint.number": 1,
            "latest_checkpoint_number": 2,
            "checkpoint.last_epoch": 7,
            "all_epochs_applied": False,
        },
        events=["DriverFailed", "RolledBack"],
    ),
    RuleCase(
        "a last stable spec that somebody edited in the status is not used",
        job(
            NEW,
            trial(
                failure_reason="DriverFailed",
                last_stable_spec=dataclasses.replace(stable(), spec_hash="x"),
            ),
        ),
        observed(pod(NEW, **NO_PROGRESS)),
        "Running",
        status={"last_stable_spec": None, "rollback": None},
        events=["NoRollback"],
    ),
)

ROLLED_BACK = (
    RuleCase(
        "a rollback lasts",
        job(NEW, alive(STABLE, last_stable_spec=stable(), rollback=rolled_back())),
        observed(pod(STABLE)),
        "Running",
        status={"rollback": rolled_back(), "last_stable_spec": stable()},
        conditions={"RolledBack": ("True", "NoEpoch"), "Ready": ("True", "Running")},
    ),
    RuleCase(
        "settings that no driver sees still come from the resource",
        job(
            dataclasses.replace(NEW, suspend=True),
            alive(STABLE, last_stable_spec=stable(), rollback=rolled_back()),
        ),
        observed(pod(STABLE)),
        "Stopping",
        ["StopDriver"],
        {"rollback": rolled_back()},
        events=["Stopping"],
    ),
    RuleCase(
        "the last stable spec is restarted like any other",
        job(NEW, alive(STABLE, last_stable_spec=stable(), rollback=rolled_back())),
        observed(dead(1, STABLE)),
        "Restarting",
        ["RemovePodFinalizer"],
        {"rollback": rolled_back()},
        events=["DriverFailed"],
    ),
    RuleCase(
        "the last stable spec may fail for good",
        job(NO_RESTART, alive(STABLE, last_stable_spec=stable(), rollback=rolled_back())),
        observed(dead(1, STABLE)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "DriverFailed", "rollback": rolled_back()},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a third spec is an upgrade from the last stable one",
        job(NEWER, alive(STABLE, last_stable_spec=stable(), rollback=rolled_back())),
        observed(pod(STABLE)),
        "Upgrading",
        ["StopDriver"],
        {"rollback": None, "upgrade": UpgradeStatus(mode="LastState")},
        events=["Upgrading"],
    ),
    RuleCase(
        "returning to the last stable spec in the resource needs no restart",
        job(STABLE, alive(STABLE, last_stable_spec=stable(), rollback=rolled_back())),
        observed(pod(STABLE)),
        "Running",
        status={"rollback": None, "upgrade": None},
    ),
    RuleCase(
        "a changed restartNonce tries the new spec again",
        job(
            RESTARTED,
            terminated(
                alive(
                    STABLE,
                    last_stable_spec=stable(),
                    rollback=rolled_back(),
                    failure_reason="DriverFailed",
                )
            ),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"rollback": None, "observed_restart_nonce": 1, "trial_start_time": NOW},
        {"spec_hash": NEW.running_hash()},
    ),
    RuleCase(
        "a checkpoint number is never used twice",
        job(
            dataclasses.replace(RESTARTED, upgrade_mode="Stateless"),
            terminated(
                alive(
                    STABLE,
                    last_stable_spec=stable(),
                    rollback=rolled_back(),
                    latest_checkpoint_number=2,
                    all_epochs_applied=True,
                )
            ),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"checkpoint.number": 3, "latest_checkpoint_number": 3},
    ),
    RuleCase(
        "an upgrade during a rollback starts from the checkpoint of the last stable spec",
        job(NEWER, trial(rollback=rolled_back(completed=False), stop_reason="Rollback", number=2)),
        observed(dead(0, NEW, terminating=True, checkpoint_number=2, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "rollback": None},
        {"spec_hash": NEWER.running_hash()},
    ),
    RuleCase(
        "decided epochs are applied by the spec that decided them",
        job(
            dataclasses.replace(NEW, upgrade_mode="Stateless"),
            alive(
                STABLE,
                stop_reason="Upgrade",
                upgrade=UpgradeStatus(mode="Stateless"),
                last_stable_spec=stable(),
            ),
        ),
        observed(dead(137, STABLE, terminating=True)),
        "Upgrading",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1},
        {"mode": APPLY_ONLY, "spec_hash": STABLE.running_hash()},
    ),
)

SEALED: dict[str, Any] = {"message": "Sealed: moved"}

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
        "an apply-only driver that finds the seal has nothing to apply",
        job(status=alive(mode=APPLY_ONLY, phase="Deleting"), deleted=True),
        observed(dead(65, mode=APPLY_ONLY, **SEALED)),
        "Deleting",
        ["RemoveFinalizer", "DeletePod"],
        events=["Sealed"],
    ),
)


@pytest.mark.parametrize(
    "case", [*RECORDING, *ROLLING_BACK, *ROLLED_BACK, *LATE_SAVEPOINTS], ids=lambda case: case.rule
)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_rollback_keeps_settings_that_no_driver_sees() -> None:
    wanted = dataclasses.replace(NEW, progress_deadline_s=77.0)
    outcome = decide(
        job(wanted, terminated(alive(STABLE, last_stable_spec=stable(), rollback=rolled_back()))),
        observed(),
    )
    (created,) = [a for a in outcome.actions if isinstance(a, CreateDriver)]
    assert created.spec == dataclasses.replace(STABLE, progress_deadline_s=77.0)
    assert created.spec_hash == STABLE.running_hash()


def test_spec_too_large_to_be_kept_prevents_a_rollback() -> None:
    large = spec(rollback=ON, driver=PodSettings(template={"x": "y" * 9000}))
    kept = decide(job(large, alive(large)), observed(pod(large))).status
    assert kept.last_stable_spec is not None
    assert not kept.last_stable_spec.spec
    outcome = decide(
        job(NO_RESTART, trial(last_stable_spec=kept.last_stable_spec)),
        observed(dead(1, NEW, **NO_PROGRESS)),
    )
    assert event_reasons(outcome) == ["DriverFailed", "NoRollback"]
    assert outcome.status.phase == "Failed"
