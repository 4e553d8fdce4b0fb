"""Finalizer and deletion of a Savepoint: one row for each rule; and its state as others see it."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.labels import ATTEMPT, JOB_UID, SAVEPOINT_FINALIZER
from sluicegate_operator.api.savepoint import DeletionStatus, SavepointSpec, SavepointStatus
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.controllers.savepoint import upgrade_savepoint
from sluicegate_operator.reconcile import readiness
from sluicegate_operator.reconcile.actions import CreateSavepoint
from sluicegate_operator.reconcile.observed import SavepointObserved, SavepointState
from sluicegate_operator.reconcile.storage_tasks import Dispose, Disposed, Done, Running
from tests.unit.operator import builders, rollback_builders, volume_builders
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.savepoint_builders import (
    FOLDER,
    OWNING,
    failed_now,
    observed,
    ready,
    savepoint,
    store,
    take,
    taking,
)

DELETION = (
    RuleCase(
        "reclaimPolicy Delete needs a finalizer",
        savepoint(OWNING, ready()),
        observed(),
        "Ready",
        ["AddFinalizer"],
    ),
    RuleCase(
        "reclaimPolicy Retain needs no finalizer",
        savepoint(status=ready(), has_finalizer=True),
        observed(),
        "Ready",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "Delete: deleting the Savepoint deletes its data",
        savepoint(OWNING, ready(), deleted=True, has_finalizer=True),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((f"{FOLDER}/a",), FOLDER)],
        conditions={"Ready": ("False", "Disposing")},
    ),
    RuleCase(
        "Delete: the Savepoint is released after its data was deleted",
        savepoint(OWNING, ready(phase="Deleting"), deleted=True, has_finalizer=True),
        observed(tasks={Dispose((f"{FOLDER}/a",), FOLDER): Done(NOW, Disposed(1))}),
        "Deleting",
        ["RemoveFinalizer", "ForgetTask"],
        status={"data_deleted": True},
    ),
    RuleCase(
        "Delete: a savepoint in progress is waited for",
        savepoint(OWNING, taking(), deleted=True, has_finalizer=True),
        observed(tasks={take(): Running(NOW)}),
        "Deleting",
        conditions={"Ready": ("False", "Taking")},
    ),
    RuleCase(
        "Delete: a savepoint that a job is still to be restored from is kept",
        savepoint(OWNING, ready(), deleted=True, has_finalizer=True),
        observed(needed_by=("orders",)),
        "Deleting",
        conditions={"Ready": ("False", "InUse")},
    ),
    RuleCase(
        "Retain: a savepoint that a job needs gets a finalizer",
        savepoint(status=ready()),
        observed(needed_by=("clicks",)),
        "Ready",
        ["AddFinalizer"],
    ),
    RuleCase(
        "Retain: it is held although somebody has deleted it",
        savepoint(status=ready(), deleted=True, has_finalizer=True),
        observed(needed_by=("clicks",)),
        "Deleting",
        conditions={"Ready": ("False", "InUse")},
    ),
    RuleCase(
        "Retain: it is released when no job needs it any more",
        savepoint(status=ready(), deleted=True, has_finalizer=True),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "a forced deletion does not wait for jobs",
        savepoint(status=ready(), deleted=True, has_finalizer=True, force=True),
        observed(needed_by=("clicks",)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "a savepoint that was not taken holds nothing that a job could need",
        savepoint(status=taking(), deleted=True, has_finalizer=True),
        observed(needed_by=("clicks",)),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "Delete: a refusal of the library is reported with the way to force it",
        savepoint(OWNING, ready(phase="Deleting"), deleted=True, has_finalizer=True),
        observed(tasks={Dispose((f"{FOLDER}/a",), FOLDER): failed_now("SavepointRefused")}),
        "Deleting",
        ["ForgetTask"],
        conditions={"Ready": ("False", "SavepointRefused")},
        events=["NotDisposed"],
        requeue_in=5,
    ),
    RuleCase(
        "Delete: a forced deletion is tried now",
        savepoint(
            OWNING,
            ready(
                phase="Deleting",
                deletion=DeletionStatus(
                    failures=3,
                    failed_time=NOW - 9,
                    next_retry_time=NOW + 99,
                    failure_reason="SavepointRefused",
                ),
            ),
            deleted=True,
            has_finalizer=True,
            force=True,
        ),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((f"{FOLDER}/a",), FOLDER, force=True)],
    ),
    RuleCase(
        "Retain: the Savepoint is released at once",
        savepoint(status=ready(), deleted=True, has_finalizer=True),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "a Savepoint that was never started is released at once",
        savepoint(OWNING, deleted=True, has_finalizer=True),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "data is deleted even without the job",
        savepoint(OWNING, ready(volume="store"), deleted=True, has_finalizer=True),
        SavepointObserved(volumes={"store": store()}),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((f"{FOLDER}/a",), FOLDER)],
    ),
    RuleCase(
        "data cannot be deleted without its volume",
        savepoint(OWNING, ready(volume="store"), deleted=True, has_finalizer=True),
        SavepointObserved(),
        "Deleting",
        conditions={"Ready": ("False", "VolumeMissing")},
    ),
)


@pytest.mark.parametrize("case", DELETION, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


# --- the state of a Savepoint as other resources see it -------------------------------------------

FAILED = taking(phase="Failed", folder="", failure_reason="EpochLogBroken", last_error="torn")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (ready(), SavepointState("Ready")),
        (taking(last_error="later"), SavepointState("Pending", "later", queued=True)),
        (taking(start_time=NOW), SavepointState("Pending", started_at=NOW)),
        (taking(phase="Pending"), SavepointState("Pending")),
        (FAILED, SavepointState("Failed", "EpochLogBroken: torn")),
    ],
)
def test_job_sees_the_state_of_a_savepoint(status: SavepointStatus, state: SavepointState) -> None:
    assert readiness.savepoint_state(status) == state
    deleted = dataclasses.replace(state, deleted=True)
    assert readiness.savepoint_state(status, deleted=True) == deleted


def test_job_sees_what_its_savepoint_waits_for() -> None:
    waiting = decide(savepoint(), SavepointObserved()).status
    message = "there is no StreamingJob clicks, and spec.volume is not set"
    assert readiness.savepoint_state(waiting).message == message


@pytest.mark.parametrize(("phase", "usable"), [("Failed", False), ("Deleting", True)])
def test_epochs_are_applied_on_a_deleted_volume_but_not_on_one_whose_check_fails(
    phase: str, *, usable: bool
) -> None:
    """Both have passed a check before."""
    status = volume_builders.healthy(phase=phase)
    assert readiness.usable_for_apply(volume_builders.spec(), status) == usable


@pytest.mark.parametrize(
    ("status", "address", "why"),
    [
        (ready(), f"{FOLDER}/a", ""),
        (taking(), "", "the Savepoint has not been taken yet"),
        (FAILED, "", "the Savepoint failed: EpochLogBroken: torn"),
    ],
)
def test_job_is_restored_from_the_latest_savepoint(
    status: SavepointStatus, address: str, why: str
) -> None:
    assert readiness.restore_address(status) == (address, why)


def test_retention_knows_referenced_savepoints_and_folders_in_progress() -> None:
    assert readiness.referenced_savepoints(ready()) == (f"{FOLDER}/a",)
    assert readiness.folders_in_progress(taking()) == (FOLDER,)
    assert readiness.folders_in_progress(ready()) == ()


def test_savepoint_of_upgrade_is_bound_to_its_job_and_driver() -> None:
    body = upgrade_savepoint(builders.job(), CreateSavepoint("clicks-upgrade-4", 4))
    spec = SavepointSpec(job="clicks", stop=True, reclaim_policy="Delete")
    assert parse(SavepointSpec, body["spec"], "spec") == spec
    assert body["metadata"]["finalizers"] == [SAVEPOINT_FINALIZER], "the job needs it from now on"
    assert body["metadata"]["annotations"] == {ATTEMPT: "4", JOB_UID: "u-job"}


STABLE = rollback_builders.stable


@pytest.mark.parametrize(
    ("status", "needed"),
    [
        (StreamingJobStatus(), {"old"}),
        (builders.alive(restored_from="sp"), {"sp"}),
        (builders.alive(restored_from="sp", last_epoch=3), set()),
        (builders.alive(upgrade=UpgradeStatus(mode="Savepoint", savepoint="sp")), {"sp"}),
        (builders.alive(abandoned_savepoints=("late",), last_epoch=3), {"late"}),
        (
            builders.alive(
                last_epoch=3, last_stable_spec=STABLE(restored_from="sp", last_epoch=None)
            ),
            {"sp"},
        ),
    ],
    ids=["first start", "restored", "has an epoch", "upgrade", "abandoned", "rollback"],
)
def test_savepoints_that_a_job_may_still_be_restored_from(
    status: StreamingJobStatus, needed: set[str]
) -> None:
    its_spec = builders.spec(checkpoint=CheckpointSettings(volume="store", restore_from="old"))
    assert readiness.needed_savepoints(its_spec, status) == needed
