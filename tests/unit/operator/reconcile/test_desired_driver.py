"""Suspension, restartNonce and upgrades: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.streaming_job_status import UpgradeStatus
from sluicegate_operator.reconcile.actions import CreateDriver, CreateSavepoint
from sluicegate_operator.reconcile.context import reject_spec
from sluicegate_operator.reconcile.observed import SavepointState
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
from tests.unit.operator.rule_cases import (
    RuleCase,
    action_names,
    check,
    condition,
    decide,
    event_reasons,
)

SUSPENDED = spec(suspend=True)
RESTARTED = spec(restart_nonce=1)
NEW = spec(image="jobs:2")
BY_SAVEPOINT = spec(image="jobs:2", upgrade_mode="Savepoint")
STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")
DELETING = spec(epochs=EpochSettings(on_cancel="delete"))

NAME = "clicks-upgrade-u-job-1"
UPGRADE_BY_SAVEPOINT = UpgradeStatus(mode="Savepoint", savepoint=NAME)
UPGRADE_STATELESS = UpgradeStatus(mode="Stateless")
WAITS_LONG = alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)
WAITS_LONG = dataclasses.replace(
    WAITS_LONG, driver=dataclasses.replace(WAITS_LONG.driver, stop_time=NOW - 3000)
)
KEEPS_TWO = spec(upgrade_savepoint_history=2)
OLD_SAVEPOINTS = {
    "clicks-upgrade-u-job-1": SavepointState("Ready"),
    "clicks-upgrade-u-job-2": SavepointState("Ready", deleted=True),
    "clicks-upgrade-u-job-9": SavepointState("Ready"),
    "clicks-upgrade-u-job-11": SavepointState("Ready"),
    "clicks-upgrade-u-old-1": SavepointState("Ready"),
    "clicks-upgrade-u-job-by-hand": SavepointState("Ready"),
    "by-hand": SavepointState("Ready"),
    "20260101": SavepointState("Ready"),
}


CONTROL = (
    RuleCase(
        "a suspended job starts no driver",
        job(SUSPENDED),
        observed(),
        "Suspended",
        status={"attempt": 0},
    ),
    RuleCase(
        "suspending stops the driver",
        job(SUSPENDED, alive()),
        observed(pod()),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Suspend"},
        events=["Stopping"],
    ),
    RuleCase(
        "a stopped driver is not a failure",
        job(SUSPENDED, alive(stop_reason="Suspend")),
        observed(dead(0, terminating=True)),
        "Suspended",
        ["RemovePodFinalizer"],
        {"failures": (), "all_epochs_applied": True, "next_start_time": None},
    ),
    RuleCase(
        "the exit code of a stopped driver is recorded but is not a failure",
        job(SUSPENDED, alive(stop_reason="Suspend")),
        observed(dead(137, terminating=True)),
        "Suspended",
        ["RemovePodFinalizer"],
        {
            "failures": (),
            "all_epochs_applied": False,
            "last_error": "attempt 1: exit code 137: no termination message",
        },
    ),
    RuleCase(
        "a suspended job waits for a requested pod that may still appear",
        job(SUSPENDED, requested()),
        observed(),
        "Starting",
        requeue_in=29,
    ),
    RuleCase(
        "a suspended job stops waiting once the requested pod cannot appear",
        job(SUSPENDED, requested()),
        observed(as_of=NOW + 29),
        "Suspended",
        driver={"state": "Terminated"},
    ),
    RuleCase(
        "resuming starts a driver without counting a restart",
        job(status=ended(all_epochs_applied=True)),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "restarts": 0},
    ),
    RuleCase(
        "suspending a failed job resets its failures",
        job(SUSPENDED, ended(failure_reason="DriverFailed")),
        observed(),
        "Suspended",
        status={"failure_reason": ""},
    ),
    RuleCase(
        "a changed restartNonce stops the driver",
        job(RESTARTED, alive()),
        observed(pod()),
        "Stopping",
        ["StopDriver"],
        {"observed_restart_nonce": 0},
        {"stop_reason": "Restart"},
        ["Stopping"],
    ),
    RuleCase(
        "a changed restartNonce starts the next driver after the old one has ended",
        job(RESTARTED, alive(stop_reason="Restart")),
        observed(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"observed_restart_nonce": 1, "attempt": 2},
    ),
    RuleCase(
        "a changed restartNonce restarts a failed job",
        job(RESTARTED, ended(failure_reason="Sealed")),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"failure_reason": "", "attempt": 2},
    ),
    RuleCase(
        "the restartNonce of a new job restarts nothing",
        job(RESTARTED),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "observed_restart_nonce": 1},
    ),
)

UPGRADES = (
    RuleCase(
        "LastState: the old driver is stopped",
        job(NEW, alive()),
        observed(pod()),
        "Upgrading",
        ["StopDriver"],
        {"upgrade": UpgradeStatus(mode="LastState")},
        events=["Upgrading"],
    ),
    RuleCase(
        "LastState: the next driver continues with the same checkpoint",
        job(NEW, alive(stop_reason="Upgrade", upgrade=UpgradeStatus(mode="LastState"))),
        observed(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "checkpoint.number": 1, "upgrade": None},
        {"spec_hash": NEW.running_hash()},
    ),
    RuleCase(
        "a change that no driver sees restarts nothing",
        job(spec(progress_deadline_s=700), alive()),
        observed(pod()),
        "Running",
    ),
    RuleCase(
        "a changed spec restarts a failed job",
        job(NEW, ended(failure_reason="SettingsRefused")),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"failure_reason": "", "attempt": 2},
    ),
    RuleCase(
        "a change is not acted on before the requested pod was observed",
        job(NEW, requested()),
        observed(),
        "Starting",
        driver={"spec_hash": spec().running_hash()},
    ),
    RuleCase(
        "Stateless: the next driver starts with an empty checkpoint",
        job(STATELESS, alive(stop_reason="Upgrade", upgrade=UPGRADE_STATELESS)),
        observed(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 2, "checkpoint.restored_from": "", "checkpoint.last_epoch": None},
    ),
    RuleCase(
        "Stateless: decided epochs are applied to the old checkpoint first",
        job(STATELESS, alive(stop_reason="Upgrade", upgrade=UPGRADE_STATELESS)),
        observed(dead(137, terminating=True)),
        "Upgrading",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "attempt": 2},
        {"mode": "ApplyOnly"},
    ),
    RuleCase(
        "Stateless: the upgrade waits for the apply-only driver",
        job(STATELESS, alive(STATELESS, mode="ApplyOnly", upgrade=UPGRADE_STATELESS)),
        observed(pod(STATELESS, mode="ApplyOnly")),
        "Upgrading",
        status={"checkpoint.number": 1},
    ),
    RuleCase(
        "Stateless: the next driver starts after the apply-only driver has finished",
        job(STATELESS, alive(STATELESS, mode="ApplyOnly", upgrade=UPGRADE_STATELESS)),
        observed(dead(0, STATELESS, mode="ApplyOnly")),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 2, "attempt": 2},
        {"mode": "Run"},
    ),
    RuleCase(
        "Savepoint: the savepoint is requested before the driver ends",
        job(BY_SAVEPOINT, alive()),
        observed(pod()),
        "Upgrading",
        ["CreateSavepoint"],
        {"upgrade": UPGRADE_BY_SAVEPOINT},
        {"stop_reason": "Savepoint"},
        ["Upgrading"],
        595,
    ),
    RuleCase(
        "Savepoint: the upgrade waits while the driver runs",
        job(BY_SAVEPOINT, alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)),
        observed(pod(), savepoints={NAME: SavepointState("Pending")}),
        "Upgrading",
        requeue_in=599,
    ),
    RuleCase(
        "Savepoint: waiting for the savepoints of other jobs has no deadline",
        job(BY_SAVEPOINT, WAITS_LONG),
        observed(pod(), savepoints={NAME: SavepointState("Pending", queued=True)}),
        "Upgrading",
        conditions={"Ready": ("False", "SavepointQueued")},
    ),
    RuleCase(
        "Savepoint: the deadline counts from when it began to be taken",
        job(BY_SAVEPOINT, WAITS_LONG),
        observed(pod(), savepoints={NAME: SavepointState("Pending", started_at=NOW - 100)}),
        "Upgrading",
        requeue_in=500,
    ),
    RuleCase(
        "Savepoint: the oldest beyond the history are deleted",
        job(KEEPS_TWO, ended(KEEPS_TWO, attempt=12, next_start_time=NOW + 9)),
        observed(savepoints=OLD_SAVEPOINTS),
        "Restarting",
        ["DeleteSavepoint"],
    ),
    RuleCase(
        "Savepoint: one that the job may still be restored from is kept",
        job(KEEPS_TWO, ended(KEEPS_TWO, restored_from="clicks-upgrade-u-job-1", attempt=12)),
        observed(savepoints=OLD_SAVEPOINTS),
        "Starting",
        ["CreateDriver"],
    ),
    RuleCase(
        "Savepoint: the upgrade waits after the driver has ended",
        job(BY_SAVEPOINT, alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)),
        observed(dead(0), savepoints={NAME: SavepointState("Pending")}),
        "Upgrading",
        ["RemovePodFinalizer"],
        {"attempt": 1},
    ),
    RuleCase(
        "Savepoint: of a driver that died nobody waits for it: only the next one can apply what is decided",
        job(BY_SAVEPOINT, alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)),
        observed(dead(137), savepoints={NAME: SavepointState("Pending")}),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "upgrade": None, "attempt": 2},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "Savepoint: nobody waits for a queued one without a driver, however long the queue is",
        job(BY_SAVEPOINT, alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)),
        observed(
            dead(0, terminating=True), savepoints={NAME: SavepointState("Pending", queued=True)}
        ),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "upgrade": None, "attempt": 2},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "Savepoint: the next driver restores the savepoint into a new checkpoint",
        job(BY_SAVEPOINT, alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)),
        observed(dead(0), savepoints={NAME: SavepointState("Ready")}),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 2, "checkpoint.restored_from": NAME, "upgrade": None, "attempt": 2},
    ),
    RuleCase(
        "Savepoint: if the savepoint fails the upgrade continues with the checkpoint",
        job(BY_SAVEPOINT, alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)),
        observed(pod(), savepoints={NAME: SavepointState("Failed", "disk full")}),
        "Upgrading",
        ["StopDriver"],
        {"upgrade": UpgradeStatus(mode="LastState")},
        {"stop_reason": "Upgrade"},
        ["SavepointFailed"],
    ),
    RuleCase(
        "Stateless: a driver that has no pod yet does not get one on the old checkpoint",
        job(STATELESS, requested(attempt=2, last_epoch=9)),
        observed(as_of=NOW + 9),
        "Upgrading",
        status={"attempt": 2, "checkpoint.number": 1, "upgrade": UPGRADE_STATELESS},
    ),
    RuleCase(
        "an upgrade in progress becomes stateless if the newest spec says so",
        job(STATELESS, alive(stop_reason="Upgrade", upgrade=UpgradeStatus(mode="LastState"))),
        observed(dead(0)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "checkpoint.number": 2},
    ),
    RuleCase(
        "a stateless upgrade in progress keeps the checkpoint if the newest spec says so",
        job(NEW, alive(stop_reason="Upgrade", upgrade=UPGRADE_STATELESS)),
        observed(dead(0)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "checkpoint.number": 1},
    ),
    RuleCase(
        "Savepoint: no savepoint is taken of a driver that never ran",
        job(BY_SAVEPOINT, requested()),
        observed(pod(phase="Pending", running_at=None, progress=None)),
        "Upgrading",
        ["StopDriver"],
        {"upgrade": UpgradeStatus(mode="LastState")},
        events=["Upgrading"],
    ),
    RuleCase(
        "suspending during an upgrade stops the driver without a savepoint",
        job(
            dataclasses.replace(BY_SAVEPOINT, suspend=True),
            alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT),
        ),
        observed(pod()),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Suspend"},
        events=["Stopping"],
    ),
)


@pytest.mark.parametrize("case", [*CONTROL, *UPGRADES], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_savepoint_of_upgrade_names_the_driver_that_it_stops() -> None:
    """An operator with a stale cache must not stop a later driver with it."""
    outcome = decide(job(BY_SAVEPOINT, alive()), observed(pod()))
    assert CreateSavepoint(NAME, 1) in outcome.actions


def test_savepoint_that_takes_too_long_is_abandoned() -> None:
    status = alive(stop_reason="Savepoint", upgrade=UPGRADE_BY_SAVEPOINT)
    outcome = decide(job(BY_SAVEPOINT, status), observed(pod(), as_of=NOW + 600), NOW + 600)
    assert event_reasons(outcome) == ["SavepointFailed"]
    assert action_names(outcome) == ["StopDriver"]


def test_once_no_pod_can_appear_a_stateless_upgrade_starts_on_an_empty_checkpoint() -> None:
    before = requested(attempt=2, last_epoch=9, upgrade=UPGRADE_STATELESS)
    after = decide(job(STATELESS, before), observed(as_of=NOW + 29), NOW + 29).status
    assert (after.attempt, after.checkpoint.number, after.upgrade) == (3, 2, None)


def test_an_upgrade_stops_the_driver_now() -> None:
    driver = decide(job(NEW, alive()), observed(pod())).status.driver
    assert (driver.stop_reason, driver.stop_time) == ("Upgrade", NOW)


def test_an_upgrade_leaves_the_reason_of_a_driver_that_is_stopping() -> None:
    """A driver that was stuck counts against its restart budget, an upgraded one does not."""
    driver = decide(job(NEW, alive(stop_reason="Stuck")), observed(pod())).status.driver
    assert (driver.stop_reason, driver.stop_time) == ("Stuck", NOW - 1)


def test_the_new_spec_begins_without_the_failures_of_the_old() -> None:
    upgrade = UpgradeStatus(mode="LastState")
    before = alive(stop_reason="Upgrade", upgrade=upgrade, failures=failures("Application", 2))
    after = decide(job(NEW, before), observed(dead(0))).status
    assert (after.attempt, after.failures, after.finished) == (2, (), False)


def test_a_stateless_upgrade_of_a_failed_job_applies_what_it_had_decided() -> None:
    before = ended(all_epochs_applied=False, failure_reason="DriverFailed")
    outcome = decide(job(STATELESS, before), observed())
    (created,) = [a for a in outcome.actions if isinstance(a, CreateDriver)]
    assert (created.mode, outcome.status.checkpoint.number) == ("ApplyOnly", 1)


def test_valid_spec_is_accepted() -> None:
    assert condition(decide(job(), observed()), "Accepted") == ("True", "SpecValid")


def test_invalid_spec_is_reported_and_changes_nothing_else() -> None:
    error = SettingsInvalid("spec.image is 3", data="a driver that runs is left", do="correct it")
    outcome = reject_spec(alive(), 4, error, NOW)
    assert condition(outcome, "Accepted") == ("False", "SpecInvalid")
    assert dataclasses.replace(outcome.status, conditions=()) == alive()
    assert reject_spec(outcome.status, 4, error, NOW + 60).status == outcome.status
