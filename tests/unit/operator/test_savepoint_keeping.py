"""Schedules and the end of a Savepoint, one row a rule; and what others read of one."""

from __future__ import annotations

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile.actions import TakeSavepoint
from sluicegate_operator.reconcile.observed import Taken
from sluicegate_operator.resources.job import Schedule
from sluicegate_operator.resources.marks import ATTEMPT, JOB_UID
from sluicegate_operator.resources.parsing import parse
from sluicegate_operator.resources.savepoint import (
    DisposalStatus,
    SavepointSpec,
    SavepointStatus,
)
from sluicegate_operator.volumes import reading
from sluicegate_operator.volumes.observed import (
    SavepointObserved,
)
from sluicegate_operator.volumes.savepoint import reconcile_savepoint
from sluicegate_operator.volumes.tasks import (
    Dispose,
    Disposed,
    Done,
    Running,
)
from sluicegate_operator.volumes.upgrade import savepoint_of_upgrade

from . import made
from .made import NOW
from .savepoints import (
    FOLDER,
    FOUND,
    HOURLY,
    OWNED,
    Row,
    broken,
    check,
    decide,
    one,
    ready,
    savepoint,
    seen,
    spec,
    store,
    take,
    taking,
)

TICK = NOW
"""08:00 UTC; the Savepoint was made at half past seven."""
AT_8 = f"{FOLDER}-20270115T0800Z"
DAILY = spec(schedule=HOURLY, history=2)

SCHEDULES = (
    Row(
        "a schedule takes one when it is due",
        savepoint(DAILY),
        seen(),
        "Taking",
        ["RunTask"],
        [take(folder=AT_8)],
        status={"last_schedule_time": TICK, "folder": AT_8},
        wake=3600,
    ),
    Row(
        "and not before",
        savepoint(DAILY, created_at=NOW),
        seen(),
        "Pending",
        wake=3600,
    ),
    Row(
        "they never overlap",
        savepoint(DAILY, taking(last_schedule_time=NOW - 3600)),
        seen(tasks={take(): Running(NOW - 3600)}),
        "Taking",
        status={"last_schedule_time": NOW - 3600},
    ),
    Row(
        "one that comes too late is left out",
        savepoint(
            spec(schedule=Schedule(cron="30 7 * * *", starting_deadline_s=60)),
            created_at=NOW - 7200,
        ),
        seen(),
        "Pending",
        status={"last_schedule_time": NOW - 1800},
        reports=["SavepointMissed"],
    ),
    Row(
        "what is over the history is only forgotten, with Retain",
        savepoint(DAILY, ready(taken=(one("c"), one("b"), one("a")), last_schedule_time=TICK)),
        seen(),
        "Ready",
        status={"taken": (one("c"), one("b")), "doomed": ()},
    ),
    Row(
        "and removed, with Delete",
        savepoint(
            spec(schedule=HOURLY, history=2, reclaim_policy="Delete"),
            ready(taken=(one("c"), one("b"), one("a")), last_schedule_time=TICK),
            held=True,
        ),
        seen(),
        "Ready",
        ["RunTask"],
        [Dispose((f"{FOLDER}/a",))],
        status={"doomed": (f"{FOLDER}/a",)},
    ),
    Row(
        "until that is done",
        savepoint(
            spec(schedule=HOURLY, reclaim_policy="Delete"),
            ready(doomed=(f"{FOLDER}/a",), last_schedule_time=TICK),
            held=True,
        ),
        seen(tasks={Dispose((f"{FOLDER}/a",)): Done(NOW, Disposed(1))}),
        "Ready",
        ["ForgetTask"],
        status={"doomed": ()},
    ),
    Row(
        "one that failed for good leaves the schedule going",
        savepoint(DAILY, taking(last_schedule_time=TICK, taken=(one(),), failures=9)),
        seen(tasks={take(): broken()}),
        "Ready",
        ["ForgetTask"],
        is_ready=("False", "StoreUnavailable"),
        status={"folder": ""},
        reports=["SavepointFailed"],
        wake=3600,
    ),
    Row(
        "a schedule without its volume waits, and misses nothing",
        savepoint(DAILY),
        SavepointObserved(),
        "Pending",
        is_ready=("False", "JobMissing"),
        status={"last_schedule_time": None},
    ),
)

GONE = (
    Row(
        "it is held if its data is to go with it",
        savepoint(OWNED, ready()),
        seen(),
        "Ready",
        ["AddFinalizer"],
    ),
    Row(
        "and else it is not",
        savepoint(status=ready(), held=True),
        seen(),
        "Ready",
        ["RemoveFinalizer"],
    ),
    Row(
        "deleted, all that was taken is removed",
        savepoint(OWNED, ready(), deleted=True, held=True),
        seen(),
        "Deleting",
        ["RunTask"],
        [Dispose((f"{FOLDER}/a",), FOLDER)],
        ("False", "Disposing"),
    ),
    Row(
        "then it is let go",
        savepoint(OWNED, ready(phase="Deleting"), deleted=True, held=True),
        seen(tasks={Dispose((f"{FOLDER}/a",), FOLDER): Done(NOW, Disposed(1))}),
        "Deleting",
        ["RemoveFinalizer", "ForgetTask"],
        status={"disposed": True},
    ),
    Row(
        "one that is being taken is waited for",
        savepoint(OWNED, taking(), deleted=True, held=True),
        seen(tasks={take(): Running(NOW)}),
        "Deleting",
        is_ready=("False", "Taking"),
    ),
    Row(
        "one that a job is still to be restored from stays",
        savepoint(OWNED, ready(), deleted=True, held=True),
        seen(needed_by=("orders",)),
        "Deleting",
        is_ready=("False", "InUse"),
    ),
    Row(
        "what the library refuses to remove stays, and the way past is said",
        savepoint(OWNED, ready(phase="Deleting"), deleted=True, held=True),
        seen(tasks={Dispose((f"{FOLDER}/a",), FOLDER): broken("SavepointRefused")}),
        "Deleting",
        ["ForgetTask"],
        is_ready=("False", "SavepointRefused"),
        reports=["NotDisposed"],
        wake=5,
    ),
    Row(
        "which is tried at once",
        savepoint(
            OWNED,
            ready(
                phase="Deleting",
                disposal=DisposalStatus(
                    tries=3, tried_time=NOW - 9, next_try_time=NOW + 99, failed="SavepointRefused"
                ),
            ),
            deleted=True,
            held=True,
            force=True,
        ),
        seen(),
        "Deleting",
        ["RunTask"],
        [Dispose((f"{FOLDER}/a",), FOLDER, force=True)],
    ),
    Row(
        "with Retain it is let go at once",
        savepoint(status=ready(), deleted=True, held=True),
        seen(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "so is one that never began",
        savepoint(OWNED, deleted=True, held=True),
        seen(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    Row(
        "its data is removed also when its job is there no more",
        savepoint(OWNED, ready(volume="store"), deleted=True, held=True),
        SavepointObserved(volumes={"store": store()}),
        "Deleting",
        ["RunTask"],
        [Dispose((f"{FOLDER}/a",), FOLDER)],
    ),
    Row(
        "without its volume it waits",
        savepoint(OWNED, ready(volume="store"), deleted=True, held=True),
        SavepointObserved(),
        "Deleting",
        is_ready=("False", "VolumeMissing"),
    ),
)


@pytest.mark.parametrize("row", [*SCHEDULES, *GONE], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


def test_the_newest_of_a_schedule_comes_first() -> None:
    status = taking(last_schedule_time=TICK, taken=(one("old"),))
    outcome = decide(savepoint(DAILY, status), seen(tasks={take(): Done(NOW, FOUND)}))
    assert [t.location for t in outcome.status.taken] == [FOUND.location, f"{FOLDER}/old"]


def test_a_schedule_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SettingsInvalid):
        reconcile_savepoint(savepoint(spec(schedule=Schedule(cron="61 * * * *"))), seen(), NOW)


# --- what others read --------------------------------------------------------------------------------

LOST = taking(phase="Failed", folder="", failed="EpochLogBroken", last_error="torn")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (ready(), Taken("Ready")),
        (taking(last_error="later"), Taken("Pending", "later")),
        (LOST, Taken("Failed", "EpochLogBroken: torn")),
    ],
)
def test_a_job_reads_whether_it_is_taken(status: SavepointStatus, told: Taken) -> None:
    assert reading.taken(status) == told


@pytest.mark.parametrize(
    ("status", "address", "why"),
    [
        (ready(), f"{FOLDER}/a", ""),
        (taking(), "", "the Savepoint is not taken yet"),
        (LOST, "", "the Savepoint was not taken: EpochLogBroken: torn"),
    ],
)
def test_a_job_is_restored_from_the_newest(status: SavepointStatus, address: str, why: str) -> None:
    assert reading.restore_address(status) == (address, why)


def test_retention_is_told_what_is_named_and_where_one_is_being_taken() -> None:
    assert reading.named(ready()) == (f"{FOLDER}/a",)
    assert reading.busy(taking()) == (FOLDER,)


def test_an_upgrades_savepoint_is_bound_to_its_job_and_driver() -> None:
    body = savepoint_of_upgrade(made.job(), TakeSavepoint("clicks-upgrade-4", 4))
    assert parse(SavepointSpec, body["spec"], "spec") == SavepointSpec(job="clicks", stop=True)
    assert body["metadata"]["annotations"] == {ATTEMPT: "4", JOB_UID: "u-job"}
