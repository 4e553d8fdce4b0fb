"""Start of a job's driver: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.api.streaming_job_status import (
    CheckpointStatus,
    DriverStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import SavepointState
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
from tests.unit.operator.rule_cases import AnyOutcome, RuleCase, check, decide

RESTORED = spec(checkpoint=CheckpointSettings(volume="store", restore_from="moved"))

STARTING = (
    RuleCase(
        "a new job gets attempt 1 and a finalizer",
        job(has_finalizer=False),
        observed(),
        "Starting",
        ["AddFinalizer", "CreateDriver"],
        {"attempt": 1},
        {"state": "Requested", "request_time": NOW},
    ),
    RuleCase(
        "a job waits until its volume is ready",
        job(),
        observed(volume_ready=False, volume_message="no such bucket"),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "VolumeNotReady"), "VolumeReady": ("False", "NotReady")},
    ),
    RuleCase(
        "a restart waits until the volume is ready",
        job(status=ended(next_start_time=NOW - 1)),
        observed(dead(has_finalizer=False), volume_ready=False, volume_message="no such bucket"),
        "Restarting",
        status={"attempt": 1, "next_start_time": NOW - 1, "restarts": 0},
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    RuleCase(
        "the first checkpoint starts from the savepoint in the spec",
        job(RESTORED),
        observed(savepoints={"moved": SavepointState("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "checkpoint.restored_from": "moved"},
    ),
    RuleCase(
        "the first start waits for a savepoint that is being taken",
        job(RESTORED),
        observed(savepoints={"moved": SavepointState("Pending")}),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    RuleCase(
        "the first start waits if the savepoint failed",
        job(RESTORED),
        observed(savepoints={"moved": SavepointState("Failed", "no such job")}),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    RuleCase(
        "the first start waits if the savepoint does not exist",
        job(RESTORED),
        observed(),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    RuleCase(
        "the savepoint may be changed before the first start",
        job(RESTORED, StreamingJobStatus(checkpoint=CheckpointStatus(restored_from="another"))),
        observed(savepoints={"moved": SavepointState("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"checkpoint.restored_from": "moved"},
    ),
    RuleCase(
        "a restart before the first epoch still needs the savepoint",
        job(RESTORED, ended(RESTORED, restored_from="moved")),
        observed(dead(has_finalizer=False)),
        "Pending",
        status={"attempt": 1},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    RuleCase(
        "after the first epoch the savepoint is no longer needed",
        job(RESTORED, ended(RESTORED, restored_from="moved", last_epoch=0)),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2},
    ),
    RuleCase(
        "a running driver is not affected by the state of its volume",
        job(status=alive()),
        observed(pod(), volume_ready=False),
        "Running",
    ),
    RuleCase(
        "a pod that was just requested is waited for",
        job(status=requested()),
        observed(),
        "Starting",
        requeue_in=4,
    ),
    RuleCase(
        "a pod that does not appear is requested again under the same name",
        job(status=requested()),
        observed(as_of=NOW + 4),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1},
        {"requests": 2, "request_time": NOW},
    ),
    RuleCase(
        "a stale cache does not prove that a pod is absent",
        job(status=requested()),
        observed(as_of=NOW - 600),
        "Starting",
        driver={"requests": 1},
    ),
    RuleCase(
        "an observed pod is recorded by its uid",
        job(status=requested()),
        observed(pod(phase="Pending", running_at=None, progress=None)),
        "Starting",
        driver={"state": "Active", "uid": "u-1"},
    ),
    RuleCase(
        "a running driver makes the job ready",
        job(status=requested()),
        observed(pod()),
        "Running",
        status={"checkpoint.last_epoch": 7, "all_epochs_applied": False},
        conditions={"Ready": ("True", "Running"), "Failed": ("False", "NotFailed")},
        requeue_in=595,
    ),
    RuleCase(
        "a pod that the status does not know is adopted",
        job(status=StreamingJobStatus()),
        observed(pod(attempt=7, checkpoint_number=3)),
        "Running",
        status={"attempt": 7, "checkpoint.number": 3},
        driver={"state": "Active", "uid": "u-7"},
        events=["Adopted"],
    ),
    RuleCase(
        "an older driver that is alive is stopped and waited for",
        job(status=dataclasses.replace(ended(), attempt=2)),
        observed(pod(attempt=1)),
        "Pending",
        ["StopDriver"],
        {"attempt": 2},
        conditions={"Ready": ("False", "OldDriverAlive")},
    ),
    RuleCase(
        "the dead pod of an older driver is deleted",
        job(status=dataclasses.replace(alive(), attempt=2)),
        observed(pod(attempt=2), dead(attempt=1)),
        "Running",
        ["DeletePod"],
    ),
)


@pytest.mark.parametrize("case", STARTING, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def ready_message(outcome: AnyOutcome) -> str:
    """Return what the condition Ready says to people."""
    (message,) = [one.message for one in outcome.status.conditions if one.type == "Ready"]
    return str(message)


@pytest.mark.parametrize(
    ("savepoints", "why"),
    [
        ({}, "which does not exist"),
        ({"moved": SavepointState("Pending")}, "which is Pending"),
        ({"moved": SavepointState("Failed", "no such job")}, "which is Failed: no such job"),
    ],
    ids=["missing", "pending", "failed"],
)
def test_a_job_says_why_its_savepoint_cannot_be_restored(
    savepoints: dict[str, SavepointState], why: str
) -> None:
    outcome = decide(job(RESTORED), observed(savepoints=savepoints))
    assert ready_message(outcome) == f"checkpoint 1 starts from Savepoint moved, {why}"


def test_a_job_says_what_is_wrong_with_its_volume() -> None:
    outcome = decide(job(), observed(volume_ready=False, volume_message="no such bucket"))
    assert ready_message(outcome) == "no such bucket"


def test_new_pod_follows_the_status() -> None:
    status = ended(number=3, restored_from="moved")
    outcome = decide(job(status=status), observed(savepoints={"moved": SavepointState("Ready")}))
    (created,) = [a for a in outcome.actions if isinstance(a, CreateDriver)]
    assert created == CreateDriver(2, "Run", spec().running_hash(), 3, "moved", spec())


def test_recorded_times_in_the_future_count_as_now() -> None:
    """A clock that was set back must not make the job wait for hours."""
    status = requested()
    in_future = dataclasses.replace(status.driver, request_time=NOW + 7200)
    outcome = decide(job(status=dataclasses.replace(status, driver=in_future)), observed())
    assert outcome.status.driver.request_time == NOW
    assert outcome.requeue_at == NOW + 5


def test_driver_is_adopted_after_the_status_was_wiped() -> None:
    assert decide(job(status=StreamingJobStatus()), observed(pod())).status.driver == DriverStatus(
        state="Active",
        uid="u-1",
        request_time=NOW - 101,
        start_time=NOW - 100,
        spec_hash=spec().running_hash(),
    )
