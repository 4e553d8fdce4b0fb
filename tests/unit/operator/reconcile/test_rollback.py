"""Which spec is the last stable one, and when a job returns to it: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.streaming_job_settings import PodSettings
from sluicegate_operator.api.streaming_job_status import UpgradeStatus
from sluicegate_operator.reconcile.observed import Node, Progress, SavepointState
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod, requested, spec
from tests.unit.operator.rollback_builders import (
    LATE,
    NEW,
    NO_PROGRESS,
    NO_RESTART,
    OFF,
    ON,
    STABLE,
    rolled_back,
    stable,
    trial,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide, event_reasons

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
        "an epoch of the driver before proves no spec: its successor idles, or applies what was decided",
        job(NEW, trial(last_epoch=6)),
        observed(pod(NEW, attempt=2, progress=Progress(NOW - 5, 7, decided=False))),
        "Running",
        status={"last_stable_spec": stable(), "trial_start_time": None},
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


@pytest.mark.parametrize("case", [*RECORDING, *ROLLING_BACK], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


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
