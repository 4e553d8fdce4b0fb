"""A job after its rollback: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, UpgradeStatus
from sluicegate_operator.reconcile.actions import CreateDriver
from tests.unit.operator.builders import NOW, alive, dead, ended, job, observed, pod
from tests.unit.operator.rollback_builders import (
    NEW,
    NEWER,
    NO_PROGRESS,
    NO_RESTART,
    RESTARTED,
    STABLE,
    rolled_back,
    stable,
    terminated,
    trial,
)
from tests.unit.operator.rule_cases import RuleCase, action_names, check, decide

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


@pytest.mark.parametrize("case", ROLLED_BACK, ids=lambda case: case.rule)
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


@pytest.mark.parametrize(
    ("before", "newest", "action"),
    [("delete", "retain", "RemoveFinalizer"), ("retain", "delete", "DeleteCheckpoint")],
)
def test_a_deletion_does_with_the_checkpoint_what_the_resource_says(
    before: str, newest: str, action: str
) -> None:
    """The stable spec may be of before the edit that was meant to keep the data."""
    old = dataclasses.replace(STABLE, epochs=EpochSettings(on_cancel=before))
    new = dataclasses.replace(NEW, epochs=EpochSettings(on_cancel=newest))
    back = rolled_back(of=new)
    status = ended(
        old, last_stable_spec=stable(old), rollback=back, all_epochs_applied=True, phase="Deleting"
    )
    outcome = decide(job(new, status, deleted=True, generation=2), observed())
    assert action_names(outcome) == [action]
