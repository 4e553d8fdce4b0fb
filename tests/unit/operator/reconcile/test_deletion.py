"""Deletion of jobs: one row for each rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.actions import CreateDriver, DeleteCheckpoint, EmitEvent
from sluicegate_operator.reconcile.observed import Node
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
from tests.unit.operator.rule_cases import RuleCase, action_names, check, decide, event_reasons

RESTARTED = spec(restart_nonce=1)
DELETES_CHECKPOINT = spec(epochs=EpochSettings(on_cancel="delete"))


def stopped(wanted: StreamingJobSpec | None = None, **changes: Any) -> StreamingJobStatus:
    """Return the status of a deleted job whose driver has ended with exit code 0."""
    return ended(wanted, **{"phase": "Deleting", "all_epochs_applied": True, **changes})


def never_ran() -> StreamingJobStatus:
    """Return the status of a deleted job whose driver was stopped before it started."""
    status = alive(all_epochs_applied=True, stop_reason="Delete", phase="Deleting")
    return dataclasses.replace(status, driver=dataclasses.replace(status.driver, start_time=None))


def apply_requested() -> StreamingJobStatus:
    """Return the status of a deleted job whose apply-only driver was requested a minute ago."""
    status = requested(phase="Deleting", all_epochs_applied=False)
    driver = dataclasses.replace(status.driver, mode="ApplyOnly", request_time=NOW - 60)
    return dataclasses.replace(status, driver=driver)


DELETION = (
    RuleCase(
        "a job without our finalizer needs nothing",
        job(has_finalizer=False, deleted=True),
        observed(),
        "Deleting",
    ),
    RuleCase(
        "deletion stops the driver first",
        job(status=alive(), deleted=True),
        observed(pod()),
        "Deleting",
        ["StopDriver"],
        driver={"stop_reason": "Delete"},
        events=["Stopping"],
    ),
    RuleCase(
        "a driver that exits with 0 has applied everything, so its pod is released first",
        job(status=alive(stop_reason="Delete", phase="Deleting"), deleted=True),
        observed(dead(0, terminating=True)),
        "Deleting",
        ["DeletePod"],
    ),
    RuleCase(
        "after any other exit an apply-only driver is started",
        job(status=alive(stop_reason="Delete", phase="Deleting"), deleted=True),
        observed(dead(137, terminating=True)),
        "Deleting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2},
        {"mode": "ApplyOnly"},
    ),
    RuleCase(
        "the apply-only driver is not stopped",
        job(status=alive(mode="ApplyOnly", phase="Deleting"), deleted=True),
        observed(pod(mode="ApplyOnly")),
        "Deleting",
        driver={"stop_reason": ""},
    ),
    RuleCase(
        "the pod is released after the apply-only driver has finished",
        job(status=alive(mode="ApplyOnly", phase="Deleting"), deleted=True),
        observed(dead(0, mode="ApplyOnly")),
        "Deleting",
        ["DeletePod"],
    ),
    RuleCase(
        "a failed job also applies its decided epochs before it is released",
        job(status=ended(failure_reason="DriverFailed", phase="Failed"), deleted=True),
        observed(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 2},
        {"mode": "ApplyOnly"},
    ),
    RuleCase(
        "an apply that fails for good is reported and retried in a minute",
        job(status=ended(failure_reason="HistoryBroken", phase="Deleting"), deleted=True),
        observed(),
        "Deleting",
        status={"next_start_time": NOW + 60, "apply_failures": 1, "attempt": 1},
        conditions={"Ready": ("False", "ApplyFailed")},
        requeue_in=60,
    ),
    RuleCase(
        "the delay between retries doubles up to an hour",
        job(
            status=ended(failure_reason="HistoryBroken", phase="Deleting", apply_failures=30),
            deleted=True,
        ),
        observed(),
        "Deleting",
        status={"next_start_time": NOW + 3600},
        requeue_in=3600,
    ),
    RuleCase(
        "an apply is retried after its delay",
        job(
            status=ended(
                failure_reason="HistoryBroken",
                phase="Deleting",
                apply_failures=2,
                next_start_time=NOW,
            ),
            deleted=True,
        ),
        observed(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 2, "failure_reason": "", "apply_failures": 2, "next_start_time": None},
        {"mode": "ApplyOnly"},
    ),
    RuleCase(
        "a clock that was set back delays the next apply by an hour at most",
        job(
            status=ended(
                failure_reason="HistoryBroken",
                phase="Deleting",
                apply_failures=2,
                next_start_time=NOW + 7200,
            ),
            deleted=True,
        ),
        observed(),
        "Deleting",
        [],
        {"next_start_time": NOW + 3600},
        requeue_in=3600,
    ),
    RuleCase(
        "restartNonce retries the apply now",
        job(
            RESTARTED,
            ended(
                RESTARTED,
                failure_reason="HistoryBroken",
                phase="Deleting",
                apply_failures=9,
                next_start_time=NOW + 999,
            ),
            deleted=True,
        ),
        observed(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 2, "apply_failures": 0, "observed_restart_nonce": 1},
        {"mode": "ApplyOnly"},
    ),
    RuleCase(
        "an apply-only driver may use a volume that is being deleted",
        job(status=ended(phase="Deleting"), deleted=True),
        observed(volume_ready=False, volume_usable_for_apply=True),
        "Deleting",
        ["CreateDriver"],
        driver={"mode": "ApplyOnly"},
    ),
    RuleCase(
        "a driver that runs the job may not start on a volume that is being deleted",
        job(),
        observed(volume_ready=False, volume_usable_for_apply=True),
        "Pending",
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    RuleCase(
        "a job with an invalid spec is released if every epoch is applied",
        job(status=ended(all_epochs_applied=True), deleted=True),
        observed(spec_error="no such field", spec_missing=True),
        "Deleting",
        ["RemoveFinalizer"],
        conditions={"Accepted": ("False", "SpecInvalid")},
    ),
    RuleCase(
        "the driver of a job with an invalid spec is stopped",
        job(status=alive(), deleted=True),
        observed(pod(), spec_error="no such field", spec_missing=True),
        "Deleting",
        ["StopDriver"],
        events=["Stopping"],
    ),
    RuleCase(
        "a decided epoch of a job with an invalid spec cannot be applied, which is reported",
        job(status=ended(phase="Deleting"), deleted=True),
        observed(spec_error="no such field", spec_missing=True),
        "Deleting",
        conditions={
            "Accepted": ("False", "SpecInvalid"),
            "Ready": ("False", "ApplyFailed"),
        },
    ),
    RuleCase(
        "skip-apply releases a job with an invalid spec",
        job(status=ended(phase="Deleting"), deleted=True, skip_apply=True),
        observed(spec_error="no such field", spec_missing=True),
        "Deleting",
        ["RemoveFinalizer"],
        events=["ApplySkipped"],
    ),
    RuleCase(
        "an apply-only driver that never appeared is not requested again with an invalid spec",
        job(status=apply_requested(), deleted=True),
        observed(spec_error="no such field", spec_missing=True),
        "Deleting",
        conditions={"Ready": ("False", "ApplyFailed")},
    ),
    RuleCase(
        "the job is released once no pod has our finalizer",
        job(status=ended(phase="Deleting", all_epochs_applied=True), deleted=True),
        observed(dead(0, terminating=True, has_finalizer=False)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "skip-apply releases a job whose apply failed",
        job(
            status=ended(failure_reason="HistoryBroken", phase="Deleting"),
            deleted=True,
            skip_apply=True,
        ),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
        events=["ApplySkipped"],
    ),
    RuleCase(
        "skip-apply of a job whose epochs are all applied skips nothing",
        job(status=stopped(), deleted=True, skip_apply=True),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "a stateful job with a driver on a lost node is not released",
        job(status=alive(stop_reason="Delete", phase="Deleting"), deleted=True),
        observed(pod(node=Node(unresponsive_since=NOW - 9999), terminating=True)),
        "Deleting",
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    RuleCase(
        "onCancel Delete deletes the checkpoint before the job is released",
        job(DELETES_CHECKPOINT, stopped(DELETES_CHECKPOINT), deleted=True),
        observed(),
        "Deleting",
        ["DeleteCheckpoint"],
    ),
    RuleCase(
        "with skip-apply a checkpoint is deleted although it has an epoch that is not applied",
        job(
            DELETES_CHECKPOINT,
            stopped(DELETES_CHECKPOINT, all_epochs_applied=False),
            deleted=True,
            skip_apply=True,
        ),
        observed(),
        "Deleting",
        ["DeleteCheckpoint"],
        events=["ApplySkipped"],
    ),
    RuleCase(
        "the deletion of a checkpoint is waited for",
        job(DELETES_CHECKPOINT, stopped(DELETES_CHECKPOINT), deleted=True),
        observed(checkpoint_exists=True),
        "Deleting",
        ["DeleteCheckpoint"],
        conditions={"Ready": ("False", "DeletingCheckpoint")},
    ),
    RuleCase(
        "the job is released after its checkpoint was deleted",
        job(DELETES_CHECKPOINT, stopped(DELETES_CHECKPOINT), deleted=True),
        observed(checkpoint_exists=False),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "the pod of a job that never ran is released without an apply",
        job(status=never_ran(), deleted=True),
        observed(dead(None, running_at=None, progress=None)),
        "Deleting",
        ["DeletePod"],
    ),
)

APPLY_ONLY_DRIVERS = (
    RuleCase(
        "an apply-only driver that never appeared is requested again",
        job(status=apply_requested(), deleted=True),
        observed(),
        "Deleting",
        ["CreateDriver"],
        {"attempt": 1},
        {"requests": 2},
    ),
    RuleCase(
        "an apply-only driver that runs is not stopped if the spec becomes invalid",
        job(status=alive(mode="ApplyOnly", phase="Deleting"), deleted=True),
        observed(pod(mode="ApplyOnly"), spec_error="no such field", spec_missing=True),
        "Deleting",
        driver={"stop_reason": ""},
    ),
    RuleCase(
        "skip-apply stops an apply-only driver that runs",
        job(status=alive(mode="ApplyOnly", phase="Deleting"), deleted=True, skip_apply=True),
        observed(pod(mode="ApplyOnly")),
        "Deleting",
        ["StopDriver"],
        driver={"stop_reason": "Delete"},
        events=["Stopping"],
    ),
    RuleCase(
        "a restartNonce that changes during an apply is not used up before that apply has ended",
        job(RESTARTED, alive(RESTARTED, mode="ApplyOnly", phase="Deleting"), deleted=True),
        observed(pod(RESTARTED, mode="ApplyOnly")),
        "Deleting",
        status={"observed_restart_nonce": 0},
    ),
)

RELEASE = (
    RuleCase(
        "a job is not released while a driver of an earlier attempt is alive",
        job(status=stopped(attempt=2), deleted=True),
        observed(pod()),
        "Deleting",
        ["StopDriver"],
        conditions={"Ready": ("False", "OldDriverAlive")},
    ),
    RuleCase(
        "a job is not released before its last pod is deleted, although that has no finalizer",
        job(status=stopped(), deleted=True),
        observed(dead(0, has_finalizer=False)),
        "Deleting",
        ["DeletePod"],
    ),
    RuleCase(
        "a job gives up the pod of a driver that was replaced without proof that it ended",
        job(status=stopped(unconfirmed_attempts=(1,)), deleted=True),
        observed(pod(node=Node(unresponsive_since=NOW - 9999), terminating=True)),
        "Deleting",
        ["DeletePod"],
        {"unconfirmed_attempts": (1,)},
    ),
)


@pytest.mark.parametrize(
    "case", [*DELETION, *APPLY_ONLY_DRIVERS, *RELEASE], ids=lambda case: case.rule
)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_checkpoint_is_deleted_for_this_job_only() -> None:
    outcome = decide(job(DELETES_CHECKPOINT, stopped(DELETES_CHECKPOINT), deleted=True), observed())
    assert DeleteCheckpoint("u-job") in outcome.actions


@pytest.mark.parametrize(
    ("wanted", "fate"), [(None, "stays in"), (DELETES_CHECKPOINT, "is deleted with")]
)
def test_an_apply_that_is_skipped_is_reported_once_with_what_becomes_of_the_epoch(
    wanted: StreamingJobSpec | None, fate: str
) -> None:
    """Also if the checkpoint must be deleted before the job is released."""
    given: Any = {"deleted": True, "skip_apply": True}
    first = decide(job(wanted, ended(wanted, phase="Deleting"), **given), observed())
    (event,) = [one for one in first.actions if isinstance(one, EmitEvent)]
    assert event.warning
    assert f"epoch, which {fate} the checkpoint" in event.message
    released = decide(job(wanted, first.status, **given), observed(checkpoint_exists=False))
    assert action_names(released) == ["RemoveFinalizer"]
    assert not event_reasons(released)


def test_failed_apply_only_driver_is_replaced_by_another() -> None:
    status = alive(mode="ApplyOnly", phase="Deleting")
    failed = decide(job(status=status, deleted=True), observed(dead(1, mode="ApplyOnly")))
    assert failed.status.next_start_time == NOW + 1
    again = decide(job(status=failed.status, deleted=True), observed(), NOW + 1)
    assert [a.mode for a in again.actions if isinstance(a, CreateDriver)] == ["ApplyOnly"]
