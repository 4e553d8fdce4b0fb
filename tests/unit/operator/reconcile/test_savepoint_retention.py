"""Schedule, history and deletion of a Savepoint: one row for each rule; and its state as others see it."""

from __future__ import annotations

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.labels import ATTEMPT, JOB_UID, SAVEPOINT_FINALIZER
from sluicegate_operator.api.savepoint import DeletionStatus, SavepointSpec, SavepointStatus
from sluicegate_operator.api.schedule import Schedule
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.controllers.savepoint import upgrade_savepoint
from sluicegate_operator.reconcile import readiness
from sluicegate_operator.reconcile.actions import CreateSavepoint
from sluicegate_operator.reconcile.observed import SavepointObserved, SavepointState
from sluicegate_operator.reconcile.savepoint.reconciler import reconcile_savepoint
from sluicegate_operator.reconcile.storage_tasks import Dispose, Disposed, Done, Running
from tests.unit.operator import builders, rollback_builders
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.savepoint_builders import (
    FOLDER,
    HOURLY,
    OWNING,
    RESULT,
    completed,
    failed_now,
    observed,
    ready,
    savepoint,
    spec,
    store,
    take,
    taking,
)

TICK = NOW
"""08:00 UTC; the Savepoint was created at 07:30."""
AT_8 = f"{FOLDER}-20270115T0800Z"
DAILY = spec(schedule=HOURLY, history=2)

AGING = spec(schedule=HOURLY, history_max_age_s=3600.0, reclaim_policy="Delete")


def aged(*ages_s: int) -> SavepointStatus:
    """Return the status of a schedule with savepoints of these ages, which are their names."""
    taken = tuple(completed(str(age), completion_time=NOW - age) for age in ages_s)
    return ready(taken=taken, last_schedule_time=TICK)


SCHEDULES = (
    RuleCase(
        "a scheduled savepoint is taken when it is due",
        savepoint(DAILY),
        observed(),
        "Taking",
        ["RunTask"],
        tasks=[take(folder=AT_8)],
        status={"last_schedule_time": TICK, "folder": AT_8},
        requeue_in=3600,
    ),
    RuleCase(
        "a scheduled savepoint is not taken early",
        savepoint(DAILY, created_at=NOW),
        observed(),
        "Pending",
        requeue_in=3600,
    ),
    RuleCase(
        "scheduled savepoints never overlap",
        savepoint(DAILY, taking(last_schedule_time=NOW - 3600)),
        observed(tasks={take(): Running(NOW - 3600)}),
        "Taking",
        status={"last_schedule_time": NOW - 3600},
    ),
    RuleCase(
        "a scheduled savepoint that is too late is skipped",
        savepoint(
            spec(schedule=Schedule(cron="30 7 * * *", starting_deadline_s=60)),
            created_at=NOW - 7200,
        ),
        observed(),
        "Pending",
        status={"last_schedule_time": NOW - 1800},
        events=["SavepointMissed"],
    ),
    RuleCase(
        "Retain: savepoints beyond the history are only dropped from the status",
        savepoint(
            DAILY,
            ready(taken=(completed("c"), completed("b"), completed("a")), last_schedule_time=TICK),
        ),
        observed(),
        "Ready",
        status={"taken": (completed("c"), completed("b")), "pending_deletion": ()},
    ),
    RuleCase(
        "Delete: the data of savepoints beyond the history is deleted",
        savepoint(
            spec(schedule=HOURLY, history=2, reclaim_policy="Delete"),
            ready(taken=(completed("c"), completed("b"), completed("a")), last_schedule_time=TICK),
            has_finalizer=True,
        ),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[Dispose((f"{FOLDER}/a",))],
        status={"pending_deletion": (f"{FOLDER}/a",)},
    ),
    RuleCase(
        "savepoints beyond the history stay while a job may be restored from one of them",
        savepoint(
            spec(schedule=HOURLY, history=1, reclaim_policy="Delete"),
            ready(taken=(completed("c"), completed("b"), completed("a")), last_schedule_time=TICK),
            has_finalizer=True,
        ),
        observed(needed_by=("orders",)),
        "Ready",
        status={"taken": (completed("c"), completed("b"), completed("a")), "pending_deletion": ()},
    ),
    RuleCase(
        "Retain: they stay in the status too, or the volume's retention could delete their data",
        savepoint(
            spec(schedule=HOURLY, history=1),
            ready(taken=(completed("c"), completed("b")), last_schedule_time=TICK),
            has_finalizer=True,
        ),
        observed(needed_by=("orders",)),
        "Ready",
        status={"taken": (completed("c"), completed("b"))},
    ),
    RuleCase(
        "even then their number is limited",
        savepoint(
            spec(schedule=HOURLY, history=1),
            ready(taken=tuple(completed(str(n)) for n in range(101)), last_schedule_time=TICK),
            has_finalizer=True,
        ),
        observed(needed_by=("orders",)),
        "Ready",
        status={"taken": tuple(completed(str(n)) for n in range(100))},
    ),
    RuleCase(
        "savepoints that are too old are dropped, and the next one is dropped in time",
        savepoint(AGING, aged(60, 3599, 3600), has_finalizer=True),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[Dispose((f"{FOLDER}/3600",))],
        status={"taken": aged(60, 3599).taken, "pending_deletion": (f"{FOLDER}/3600",)},
        requeue_in=1,
    ),
    RuleCase(
        "the newest savepoint is kept whatever its age",
        savepoint(AGING, aged(9000, 9001), has_finalizer=True),
        observed(),
        "Ready",
        ["RunTask"],
        tasks=[Dispose((f"{FOLDER}/9001",))],
        status={"taken": aged(9000).taken},
    ),
    RuleCase(
        "without a limit of their age old savepoints are kept",
        savepoint(spec(schedule=HOURLY), aged(9000, 9001)),
        observed(),
        "Ready",
        status={"taken": aged(9000, 9001).taken},
    ),
    RuleCase(
        "old savepoints stay while a job may be restored from one of them",
        savepoint(AGING, aged(60, 9000), has_finalizer=True),
        observed(needed_by=("orders",)),
        "Ready",
        status={"taken": aged(60, 9000).taken},
    ),
    RuleCase(
        "deleted data is removed from the status",
        savepoint(
            spec(schedule=HOURLY, reclaim_policy="Delete"),
            ready(pending_deletion=(f"{FOLDER}/a",), last_schedule_time=TICK),
            has_finalizer=True,
        ),
        observed(tasks={Dispose((f"{FOLDER}/a",)): Done(NOW, Disposed(1))}),
        "Ready",
        ["ForgetTask"],
        status={"pending_deletion": ()},
    ),
    RuleCase(
        "a failed savepoint does not stop the schedule",
        savepoint(DAILY, taking(last_schedule_time=TICK, taken=(completed(),), failures=9)),
        observed(tasks={take(): failed_now()}),
        "Ready",
        ["ForgetTask"],
        conditions={"Ready": ("False", "StoreUnavailable")},
        status={"folder": ""},
        events=["SavepointFailed"],
        requeue_in=3600,
    ),
    RuleCase(
        "a schedule without its volume waits and skips nothing",
        savepoint(DAILY),
        SavepointObserved(),
        "Pending",
        conditions={"Ready": ("False", "JobMissing")},
        status={"last_schedule_time": None},
    ),
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


@pytest.mark.parametrize("case", [*SCHEDULES, *DELETION], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_latest_scheduled_savepoint_comes_first() -> None:
    status = taking(last_schedule_time=TICK, taken=(completed("old"),))
    outcome = decide(savepoint(DAILY, status), observed(tasks={take(): Done(NOW, RESULT)}))
    assert [t.location for t in outcome.status.taken] == [RESULT.location, f"{FOLDER}/old"]


def test_invalid_schedule_is_rejected() -> None:
    with pytest.raises(SettingsInvalid):
        reconcile_savepoint(savepoint(spec(schedule=Schedule(cron="61 * * * *"))), observed(), NOW)


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
