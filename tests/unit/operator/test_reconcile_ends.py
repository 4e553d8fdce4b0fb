"""Batches, schedules and deletion: one row a rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.reconcile.actions import CreateDriver, DeleteCheckpoint
from sluicegate_operator.reconcile.job import reconcile
from sluicegate_operator.reconcile.observed import Node
from sluicegate_operator.reconcile.schedule import next_tick
from sluicegate_operator.resources.job import Schedule, StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.resources.parsing import to_instant, to_text

from .made import (
    NOW,
    alive,
    asked,
    dead,
    decide,
    ended,
    job,
    pod,
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


def gone(wanted: StreamingJobSpec | None = None, **changes: Any) -> StreamingJobStatus:
    """Return the status of a deleted job whose driver has ended well."""
    return ended(wanted, **{"phase": "Deleting", "settled": True, **changes})


def never_ran() -> StreamingJobStatus:
    """Return the status of a deleted job whose driver was stopped before it began."""
    status = alive(settled=True, stopping="delete", phase="Deleting")
    return dataclasses.replace(status, driver=dataclasses.replace(status.driver, running_at=None))


NEVER_RAN = never_ran()

BATCHES = (
    Row(
        "a batch that exits 0 is done",
        job(ONCE, alive(ONCE)),
        view(dead(0, ONCE)),
        "Finished",
        ["ReleasePod"],
        {"finished": True},
        reports=["Finished"],
        conditions={"Ready": ("True", "Finished")},
    ),
    Row(
        "and stays so",
        job(ONCE, ended(ONCE, finished=True)),
        view(),
        "Finished",
        status={"attempt": 1},
    ),
    Row(
        "one that somebody stopped exits 0 and is not done",
        job(ONCE, alive(ONCE)),
        view(dead(0, ONCE, terminating=True)),
        "Restarting",
        ["ReleasePod"],
        {"finished": False},
        reports=["Disrupted"],
    ),
    Row(
        "one that failed is restarted like a stream",
        job(ONCE, alive(ONCE)),
        view(dead(1, ONCE)),
        "Restarting",
        ["ReleasePod"],
        reports=["DriverFailed"],
    ),
    Row(
        "another spec is another run",
        job(spec(trigger="once", image="jobs:2"), ended(ONCE, finished=True)),
        view(),
        "Starting",
        ["CreateDriver"],
        {"finished": False},
    ),
    Row(
        "a schedule waits for its first time",
        job(
            HOURLY,
            created_at=NOW - 0.5,
            status=StreamingJobStatus(last_schedule_time=NOW, finished=True),
        ),
        view(),
        "Waiting",
        status={"attempt": 0},
        wake=3600,
    ),
    Row(
        "a run starts when it is due",
        job(HOURLY),
        view(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "last_schedule_time": NOW},
    ),
    Row(
        "a run that is done waits for the next time",
        job(HOURLY, ended(HOURLY, finished=True, last_schedule_time=NOW)),
        view(),
        "Waiting",
        wake=3600,
    ),
    Row(
        "a run that fails goes on until it is done",
        job(HOURLY, ended(HOURLY, last_schedule_time=NOW - 3600, next_start_time=NOW)),
        view(),
        "Starting",
        ["CreateDriver"],
        {"last_schedule_time": NOW - 3600, "attempt": 2},
    ),
    Row(
        "a run that failed for good does not stop the next",
        job(HOURLY, ended(HOURLY, last_schedule_time=NOW - 3600, failed="DriverFailed")),
        view(),
        "Starting",
        ["CreateDriver"],
        {"failed": "", "last_schedule_time": NOW},
    ),
    Row(
        "two runs never overlap",
        job(HOURLY, alive(HOURLY, last_schedule_time=NOW - 3600)),
        view(pod(HOURLY)),
        "Running",
        status={"last_schedule_time": NOW - 3600},
    ),
    Row(
        "a run that is too late is left out",
        job(ON_TIME),
        view(),
        "Waiting",
        [],
        {"attempt": 0, "last_schedule_time": NOW - 1800},
        reports=["RunMissed"],
    ),
    Row(
        "a new spec waits for the next time",
        job(
            dataclasses.replace(HOURLY, image="jobs:2"),
            ended(HOURLY, finished=True, last_schedule_time=NOW),
        ),
        view(),
        "Waiting",
        status={"attempt": 1, "finished": True},
    ),
    Row(
        "restartNonce is a run out of turn",
        job(
            dataclasses.replace(HOURLY, restart_nonce=1),
            ended(HOURLY, finished=True, last_schedule_time=NOW),
        ),
        view(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2},
    ),
)

DELETION = (
    Row("a job that holds nothing may go", job(held=False, deleted=True), view(), "Deleting"),
    Row(
        "the driver is stopped first",
        job(status=alive(), deleted=True),
        view(pod()),
        "Deleting",
        ["StopDriver"],
        driver={"stopping": "delete"},
        reports=["Stopping"],
    ),
    Row(
        "one that has ended well has applied all: the checkpoint stays, the job goes",
        job(status=alive(stopping="delete", phase="Deleting"), deleted=True),
        view(dead(0, terminating=True)),
        "Deleting",
        ["RemoveFinalizer", "DropPod"],
    ),
    Row(
        "else a driver applies what is decided",
        job(status=alive(stopping="delete", phase="Deleting"), deleted=True),
        view(dead(137, terminating=True)),
        "Deleting",
        ["CreateDriver", "DropPod"],
        {"attempt": 2},
        {"purpose": "finish"},
    ),
    Row(
        "and is let finish",
        job(status=alive(purpose="finish", phase="Deleting"), deleted=True),
        view(pod(purpose="finish")),
        "Deleting",
        driver={"stopping": ""},
    ),
    Row(
        "when it is done the job goes",
        job(status=alive(purpose="finish", phase="Deleting"), deleted=True),
        view(dead(0, purpose="finish")),
        "Deleting",
        ["RemoveFinalizer", "DropPod"],
    ),
    Row(
        "a job that failed for good finishes too",
        job(status=ended(failed="DriverFailed", phase="Failed"), deleted=True),
        view(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 2},
        {"purpose": "finish"},
    ),
    Row(
        "if that fails for good, deletion says why, and tries again in a minute",
        job(status=ended(failed="HistoryBroken", phase="Deleting"), deleted=True),
        view(),
        "Deleting",
        status={"next_start_time": NOW + 60, "finish_failures": 1, "attempt": 1},
        conditions={"Ready": ("False", "FinishFailed")},
        wake=60,
    ),
    Row(
        "then in two, and so on, to an hour",
        job(
            status=ended(failed="HistoryBroken", phase="Deleting", finish_failures=30), deleted=True
        ),
        view(),
        "Deleting",
        status={"next_start_time": NOW + 3600},
        wake=3600,
    ),
    Row(
        "when that time has come another driver tries to apply it",
        job(
            status=ended(
                failed="HistoryBroken", phase="Deleting", finish_failures=2, next_start_time=NOW
            ),
            deleted=True,
        ),
        view(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 2, "failed": "", "finish_failures": 2, "next_start_time": None},
        {"purpose": "finish"},
    ),
    Row(
        "restartNonce tries it at once",
        job(
            NONCE,
            ended(
                NONCE,
                failed="HistoryBroken",
                phase="Deleting",
                finish_failures=9,
                next_start_time=NOW + 999,
            ),
            deleted=True,
        ),
        view(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 2, "finish_failures": 0, "handled_nonce": 1},
        {"purpose": "finish"},
    ),
    Row(
        "a volume that is being deleted too is used to the end",
        job(status=ended(phase="Deleting"), deleted=True),
        view(volume_ready=False, volume_usable=True),
        "Deleting",
        ["CreateDriver"],
        driver={"purpose": "finish"},
    ),
    Row(
        "but no driver that runs the job is started on it",
        job(),
        view(volume_ready=False, volume_usable=True),
        "Pending",
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    Row(
        "a job whose spec cannot be read is let go when nothing is owed",
        job(status=ended(settled=True), deleted=True),
        view(unreadable="no such field"),
        "Deleting",
        ["RemoveFinalizer"],
        conditions={"Accepted": ("False", "SpecInvalid")},
    ),
    Row(
        "its driver is stopped",
        job(status=alive(), deleted=True),
        view(pod(), unreadable="no such field"),
        "Deleting",
        ["StopDriver"],
        reports=["Stopping"],
    ),
    Row(
        "an epoch that it owes cannot be applied, and that is said",
        job(status=ended(phase="Deleting"), deleted=True),
        view(unreadable="no such field"),
        "Deleting",
        conditions={
            "Accepted": ("False", "SpecInvalid"),
            "Ready": ("False", "FinishFailed"),
        },
    ),
    Row(
        "until someone gives it up",
        job(status=ended(phase="Deleting"), deleted=True, skip_finish=True),
        view(unreadable="no such field"),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "a driver that was to finish and was never seen is not asked for again",
        job(
            status=dataclasses.replace(
                asked(phase="Deleting", settled=False),
                driver=dataclasses.replace(asked().driver, purpose="finish", asked_at=NOW - 60),
            ),
            deleted=True,
        ),
        view(unreadable="no such field"),
        "Deleting",
        conditions={"Ready": ("False", "FinishFailed")},
    ),
    Row(
        "until someone gives the epoch up",
        job(status=ended(failed="HistoryBroken", phase="Deleting"), deleted=True, skip_finish=True),
        view(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "a driver on a silent node keeps a stateful job",
        job(status=alive(stopping="delete", phase="Deleting"), deleted=True),
        view(pod(node=Node(silent_since=NOW - 9999), terminating=True)),
        "Deleting",
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    Row(
        "a checkpoint is deleted if so told, before the job goes",
        job(DELETING, gone(DELETING), deleted=True),
        view(),
        "Deleting",
        ["DeleteCheckpoint"],
    ),
    Row(
        "which is waited for",
        job(DELETING, gone(DELETING), deleted=True),
        view(checkpoint_exists=True),
        "Deleting",
        ["DeleteCheckpoint"],
    ),
    Row(
        "then the job goes",
        job(DELETING, gone(DELETING), deleted=True),
        view(checkpoint_exists=False),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "a job that never ran has nothing to finish",
        job(status=NEVER_RAN, deleted=True),
        view(dead(None, running_at=None)),
        "Deleting",
        ["RemoveFinalizer", "DropPod"],
    ),
)


@pytest.mark.parametrize("row", [*BATCHES, *DELETION], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


def test_a_checkpoint_is_deleted_for_one_job_not_for_the_next_of_its_name() -> None:
    outcome = decide(job(DELETING, gone(DELETING), deleted=True), view())
    assert DeleteCheckpoint("u-job") in outcome.actions


def test_a_driver_that_finishes_is_asked_for_again_when_it_fails() -> None:
    status = alive(purpose="finish", phase="Deleting")
    failed = decide(job(status=status, deleted=True), view(dead(1, purpose="finish")))
    assert failed.status.next_start_time == NOW + 1
    again = decide(job(status=failed.status, deleted=True), view(), NOW + 1)
    assert [a.purpose for a in again.actions if isinstance(a, CreateDriver)] == ["finish"]


@pytest.mark.parametrize(
    ("zone", "due"), [("UTC", "2026-03-29T02:30"), ("Europe/Berlin", "2026-03-29T01:00")]
)
def test_a_schedule_is_read_in_its_time_zone(zone: str, due: str) -> None:
    """02:30 does not exist in Berlin on that day; cron runs the job at the change."""
    start = to_instant("2026-03-29T00:00:00Z")
    tick = next_tick(Schedule(cron="30 2 * * *", time_zone=zone), start)
    assert tick is not None
    assert to_text(tick).startswith(due)


def test_a_schedule_that_cannot_be_read_is_refused_by_name() -> None:
    wanted = spec(trigger="once", schedule=Schedule(cron="0 25 * * *"))
    with pytest.raises(
        SettingsInvalid, match="schedule '0 25 \\* \\* \\*' in 'UTC' cannot be read"
    ):
        reconcile(job(wanted), view(), NOW)
