"""Suspend, restartNonce and upgrades: one row a rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.reconcile.actions import TakeSavepoint
from sluicegate_operator.reconcile.job import refused
from sluicegate_operator.reconcile.observed import Taken
from sluicegate_operator.resources.job import Schedule
from sluicegate_operator.resources.job_status import UpgradeStatus

from .made import (
    NOW,
    acts,
    alive,
    asked,
    condition,
    dead,
    decide,
    ended,
    job,
    pod,
    reports,
    spec,
    view,
)
from .rows import Row, check

SUSPENDED = spec(suspend=True)
NONCE = spec(restart_nonce=1)
NEW = spec(image="jobs:2")
BY_SAVEPOINT = spec(image="jobs:2", upgrade_mode="savepoint")
STATELESS = spec(image="jobs:2", upgrade_mode="stateless")
ONCE = spec(trigger="once")
HOURLY = spec(trigger="once", schedule=Schedule(cron="0 * * * *"))
ON_TIME = spec(trigger="once", schedule=Schedule(cron="30 7 * * *", starting_deadline_s=60))
DELETING = spec(epochs=EpochSettings(on_cancel="delete"))

NAME = "clicks-upgrade-1"
TAKING = UpgradeStatus(mode="savepoint", savepoint=NAME)
LEAVING = UpgradeStatus(mode="stateless")


CONTROL = (
    Row(
        "a suspended job starts nothing", job(SUSPENDED), view(), "Suspended", status={"attempt": 0}
    ),
    Row(
        "suspending stops the driver",
        job(SUSPENDED, alive()),
        view(pod()),
        "Stopping",
        ["StopDriver"],
        driver={"stopping": "suspend"},
        reports=["Stopping"],
    ),
    Row(
        "a stopped driver is no failure",
        job(SUSPENDED, alive(stopping="suspend")),
        view(dead(0, terminating=True)),
        "Suspended",
        ["ReleasePod"],
        {"failures": (), "settled": True, "next_start_time": None},
    ),
    Row(
        "even if it did not end well, which is said",
        job(SUSPENDED, alive(stopping="suspend")),
        view(dead(137, terminating=True)),
        "Suspended",
        ["ReleasePod"],
        {
            "failures": (),
            "settled": False,
            "last_error": "attempt 1: exit code 137: it left no message",
        },
    ),
    Row(
        "a pod that may still come is waited for, not forgotten",
        job(SUSPENDED, asked()),
        view(),
        "Starting",
        wake=29,
    ),
    Row(
        "until it cannot come any more",
        job(SUSPENDED, asked()),
        view(as_of=NOW + 29),
        "Suspended",
        driver={"state": "Ended"},
    ),
    Row(
        "resuming starts with a clean slate",
        job(status=ended(settled=True)),
        view(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "restarts": 0},
    ),
    Row(
        "suspending pardons a job that failed",
        job(SUSPENDED, ended(failed="DriverFailed")),
        view(),
        "Suspended",
        status={"failed": ""},
    ),
    Row(
        "another restartNonce stops the driver",
        job(NONCE, alive()),
        view(pod()),
        "Stopping",
        ["StopDriver"],
        {"handled_nonce": 0},
        {"stopping": "restart"},
        ["Stopping"],
    ),
    Row(
        "then the next starts",
        job(NONCE, alive(stopping="restart")),
        view(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"handled_nonce": 1, "attempt": 2},
    ),
    Row(
        "another restartNonce pardons a job that failed",
        job(NONCE, ended(failed="Sealed")),
        view(),
        "Starting",
        ["CreateDriver"],
        {"failed": "", "attempt": 2},
    ),
    Row(
        "a new job's restartNonce restarts nothing",
        job(NONCE),
        view(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "handled_nonce": 1},
    ),
)

UPGRADES = (
    Row(
        "last-state: the old driver is stopped",
        job(NEW, alive()),
        view(pod()),
        "Upgrading",
        ["StopDriver"],
        {"upgrade": UpgradeStatus(mode="last-state")},
        reports=["Upgrading"],
    ),
    Row(
        "and the next has its checkpoint",
        job(NEW, alive(stopping="upgrade", upgrade=UpgradeStatus(mode="last-state"))),
        view(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"attempt": 2, "checkpoint_number": 1, "upgrade": None},
        {"spec_hash": NEW.running_hash()},
    ),
    Row(
        "a change that needs no restart does none",
        job(spec(stuck_after_s=700), alive()),
        view(pod()),
        "Running",
    ),
    Row(
        "a change of a failed job's spec starts it again",
        job(NEW, ended(failed="SettingsRefused")),
        view(),
        "Starting",
        ["CreateDriver"],
        {"failed": "", "attempt": 2},
    ),
    Row(
        "a change meanwhile is taken up when the pod is seen",
        job(NEW, asked()),
        view(),
        "Starting",
        driver={"spec_hash": spec().running_hash()},
    ),
    Row(
        "stateless: a new, empty checkpoint",
        job(STATELESS, alive(stopping="upgrade", upgrade=LEAVING)),
        view(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 2, "restored_from": "", "last_epoch": None},
    ),
    Row(
        "but what the old one has decided is applied first",
        job(STATELESS, alive(stopping="upgrade", upgrade=LEAVING)),
        view(dead(137, terminating=True)),
        "Upgrading",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 1, "attempt": 2},
        {"purpose": "finish"},
    ),
    Row(
        "which is waited for",
        job(STATELESS, alive(STATELESS, purpose="finish", upgrade=LEAVING)),
        view(pod(STATELESS, purpose="finish")),
        "Upgrading",
        status={"checkpoint_number": 1},
    ),
    Row(
        "and then left",
        job(STATELESS, alive(STATELESS, purpose="finish", upgrade=LEAVING)),
        view(dead(0, STATELESS, purpose="finish")),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 2, "attempt": 2},
        {"purpose": "run"},
    ),
    Row(
        "savepoint: it is taken before the driver ends",
        job(BY_SAVEPOINT, alive()),
        view(pod()),
        "Upgrading",
        ["TakeSavepoint"],
        {"upgrade": TAKING},
        {"stopping": "savepoint"},
        ["Upgrading"],
        595,
    ),
    Row(
        "and waited for while the driver runs",
        job(BY_SAVEPOINT, alive(stopping="savepoint", upgrade=TAKING)),
        view(pod(), savepoints={NAME: Taken("Pending")}),
        "Upgrading",
        wake=599,
    ),
    Row(
        "and after it has ended",
        job(BY_SAVEPOINT, alive(stopping="savepoint", upgrade=TAKING)),
        view(dead(0), savepoints={NAME: Taken("Pending")}),
        "Upgrading",
        ["ReleasePod"],
        {"attempt": 1},
    ),
    Row(
        "the next begins a checkpoint with it",
        job(BY_SAVEPOINT, alive(stopping="savepoint", upgrade=TAKING)),
        view(dead(0), savepoints={NAME: Taken("Ready")}),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 2, "restored_from": NAME, "upgrade": None, "attempt": 2},
    ),
    Row(
        "a savepoint that failed is said, and the checkpoint taken as it is",
        job(BY_SAVEPOINT, alive(stopping="savepoint", upgrade=TAKING)),
        view(pod(), savepoints={NAME: Taken("Failed", "disk full")}),
        "Upgrading",
        ["StopDriver"],
        {"upgrade": UpgradeStatus(mode="last-state")},
        {"stopping": "upgrade"},
        ["SavepointFailed"],
    ),
    Row(
        "a savepoint of a driver that never ran is not taken",
        job(BY_SAVEPOINT, asked()),
        view(pod(phase="Pending", running_at=None, progress=None)),
        "Upgrading",
        ["StopDriver"],
        {"upgrade": UpgradeStatus(mode="last-state")},
        reports=["Upgrading"],
    ),
    Row(
        "suspending an upgrade stops the driver without waiting for the savepoint",
        job(
            dataclasses.replace(BY_SAVEPOINT, suspend=True),
            alive(stopping="savepoint", upgrade=TAKING),
        ),
        view(pod()),
        "Stopping",
        ["StopDriver"],
        driver={"stopping": "suspend"},
        reports=["Stopping"],
    ),
)


@pytest.mark.parametrize("row", [*CONTROL, *UPGRADES], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


def test_a_savepoint_names_the_driver_that_it_stops() -> None:
    """An operator with an old view must not stop the driver of today by it."""
    outcome = decide(job(BY_SAVEPOINT, alive()), view(pod()))
    assert TakeSavepoint(NAME, 1) in outcome.actions


def test_a_savepoint_that_takes_too_long_is_given_up() -> None:
    status = alive(stopping="savepoint", upgrade=TAKING)
    outcome = decide(job(BY_SAVEPOINT, status), view(pod(), as_of=NOW + 600), NOW + 600)
    assert reports(outcome) == ["SavepointFailed"]
    assert acts(outcome) == ["StopDriver"]


def test_a_spec_that_can_be_read_is_accepted() -> None:
    assert condition(decide(job(), view()), "Accepted") == ("True", "SpecValid")


def test_a_spec_that_cannot_be_read_is_said_and_changes_nothing_else() -> None:
    error = SettingsInvalid("spec.image is 3", data="a driver that runs is left", do="correct it")
    outcome = refused(alive(), 4, error, NOW)
    assert condition(outcome, "Accepted") == ("False", "SpecInvalid")
    assert dataclasses.replace(outcome.status, conditions=()) == alive()
    assert refused(outcome.status, 4, error, NOW + 60).status == outcome.status
