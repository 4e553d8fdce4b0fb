"""What is decided about a Savepoint: one row a rule."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile.actions import Report, TakeSavepoint
from sluicegate_operator.reconcile.observed import Taken
from sluicegate_operator.resources.job import Schedule
from sluicegate_operator.resources.job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.resources.parsing import parse
from sluicegate_operator.resources.savepoint import (
    DisposalStatus,
    SavepointSpec,
    SavepointStatus,
    TakenStatus,
)
from sluicegate_operator.resources.volume import CheckpointVolumeSpec
from sluicegate_operator.volumes import reading
from sluicegate_operator.volumes.actions import RunTask
from sluicegate_operator.volumes.observed import (
    JobView,
    Savepoint,
    SavepointObserved,
    VolumeView,
)
from sluicegate_operator.volumes.passes import Outcome
from sluicegate_operator.volumes.savepoint import reconcile_savepoint
from sluicegate_operator.volumes.tasks import (
    ASK,
    BESIDE,
    SEAL,
    Broken,
    Dispose,
    Disposed,
    Done,
    Running,
    SavepointTaken,
    Take,
)
from sluicegate_operator.volumes.upgrade import ATTEMPT, JOB_UID, savepoint_of_upgrade

from . import made
from .made import NOW, acts, alive, asked, condition, ended, reports

URL = "s3://data/sluice"
CHECKPOINT = f"{URL}/clicks/1"
FOLDER = f"{URL}/savepoints/clicks/move/u-savepo"
HOURLY = Schedule(cron="0 * * * *")


def spec(**changes: Any) -> SavepointSpec:
    return SavepointSpec(**{"job": "clicks", **changes})


def savepoint(
    wanted: SavepointSpec | None = None, status: SavepointStatus | None = None, **changes: Any
) -> Savepoint:
    """Return a Savepoint that was made half an hour ago and seen since."""
    given = {
        "namespace": "shop",
        "name": "move",
        "uid": "u-savepoint",
        "generation": 1,
        "created_at": NOW - 1800,
        **changes,
    }
    was = status or SavepointStatus(observed_generation=1)
    return Savepoint(spec=wanted or spec(), status=was, **given)


def job(status: StreamingJobStatus | None = None, **changes: Any) -> JobView:
    return JobView("clicks", "u-job", made.spec(), status or alive(), **changes)


def store(name: str = "store", *, ready: bool = True, **changes: Any) -> VolumeView:
    given = {"endpoint": "http://s3:7070", "bucket": "data", "prefix": "sluice", **changes}
    return VolumeView(name, CheckpointVolumeSpec(**given), ready, "" if ready else "no keys")


def seen(a_job: JobView | None = None, *volumes: VolumeView, **changes: Any) -> SavepointObserved:
    """Return a view of a running job and its ready volume."""
    by_name = {one.name: one for one in volumes or (store(),)}
    return SavepointObserved(**{"job": a_job or job(), "volumes": by_name, **changes})


def taking(**changes: Any) -> SavepointStatus:
    """Return the status of a Savepoint that is being taken."""
    return SavepointStatus(
        **{"phase": "Taking", "folder": FOLDER, "observed_generation": 1, **changes}
    )


def one(name: str = "a", **changes: Any) -> TakenStatus:
    given = {"location": f"{FOLDER}/{name}", "epoch": 7, "taken_time": NOW - 9, **changes}
    return TakenStatus(**given)


def ready(**changes: Any) -> SavepointStatus:
    return SavepointStatus(
        **{"phase": "Ready", "taken": (one(),), "observed_generation": 1, **changes}
    )


def decide(a_savepoint: Savepoint, observed: SavepointObserved) -> Outcome[SavepointStatus]:
    """Return what is decided, after seeing that deciding again changes nothing more."""
    outcome = reconcile_savepoint(a_savepoint, observed, NOW)
    written = dataclasses.replace(a_savepoint, status=outcome.status)
    again = reconcile_savepoint(written, observed, NOW)
    assert again.status == outcome.status, "not idempotent"
    assert not any(isinstance(action, Report) for action in again.actions), "reported again"
    return outcome


def take(how: str = BESIDE, folder: str = FOLDER) -> Take:
    return Take(CHECKPOINT, folder, how)


def broken(kind: str = "StoreUnavailable") -> Broken:
    return Broken(NOW, kind, "no", "nothing", "mend it")


FOUND = SavepointTaken(f"{FOLDER}/clicks-7-x", 7, NOW - 2, sealed=False)
STOP = spec(stop=True)
OWNED = spec(reclaim_policy="Delete")
UPGRADING = dataclasses.replace(
    alive(stopping="savepoint"), upgrade=UpgradeStatus(mode="savepoint", savepoint="move")
)
OF_AN_UPGRADE: dict[str, Any] = {"attempt": 1, "job_uid": "u-job"}


@dataclass(frozen=True)
class Row:
    """A rule: what is there, and what follows; `is_ready`: status and reason of the condition."""

    rule: str
    savepoint: Savepoint
    seen: SavepointObserved
    phase: str
    acts: list[str] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    is_ready: tuple[str, str] | None = None
    status: dict[str, Any] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    wake: float | None = None


WAYS = (
    Row(
        "a savepoint is taken beside a running job; its folder is written first",
        savepoint(),
        seen(),
        "Taking",
        ["RunTask"],
        [take()],
        ("False", "Taking"),
        {"folder": FOLDER},
    ),
    Row(
        "and of one that is stopped",
        savepoint(),
        seen(job(ended())),
        "Taking",
        ["RunTask"],
        [take()],
    ),
    Row(
        "with stop the running driver is asked",
        savepoint(STOP),
        seen(),
        "Taking",
        ["RunTask"],
        [take(ASK)],
    ),
    Row(
        "with stop a job without a driver is sealed",
        savepoint(STOP),
        seen(job(ended())),
        "Taking",
        ["RunTask"],
        [take(SEAL)],
    ),
    Row(
        "also one that failed for good",
        savepoint(STOP),
        seen(job(ended(failed="Sealed"))),
        "Taking",
        ["RunTask"],
        [take(SEAL)],
    ),
    Row(
        "a driver that is only asked for is waited for",
        savepoint(STOP),
        seen(job(asked())),
        "Pending",
        is_ready=("False", "JobUnsettled"),
    ),
    Row(
        "so is one that is stopping",
        savepoint(STOP),
        seen(job(alive(stopping="suspend"))),
        "Pending",
        is_ready=("False", "JobUnsettled"),
    ),
    Row(
        "so is one that only finishes",
        savepoint(STOP),
        seen(job(alive(purpose="finish"))),
        "Pending",
        is_ready=("False", "JobUnsettled"),
    ),
    Row(
        "it is taken of the checkpoint that the job is on",
        savepoint(),
        seen(job(alive(checkpoint_number=3))),
        "Taking",
        ["RunTask"],
        [Take(f"{URL}/clicks/3", FOLDER)],
    ),
    Row(
        "it may go to another volume of the same store",
        savepoint(spec(volume="cold")),
        seen(None, store(), store("cold", bucket="cold", prefix="")),
        "Taking",
        ["RunTask"],
        [Take(CHECKPOINT, "s3://cold/savepoints/clicks/move/u-savepo")],
    ),
    Row(
        "and not to another store, since a process has one set of keys",
        savepoint(spec(volume="cold")),
        seen(None, store(), store("cold", credentials_secret="others")),
        "Pending",
        is_ready=("False", "OtherStore"),
    ),
    Row(
        "a job that is not there is waited for",
        savepoint(status=taking()),
        SavepointObserved(volumes={"store": store()}),
        "Pending",
        is_ready=("False", "JobMissing"),
    ),
    Row(
        "also if it never was",
        savepoint(),
        SavepointObserved(),
        "Pending",
        is_ready=("False", "JobMissing"),
        status={"folder": ""},
    ),
    Row(
        "so is a volume that is not ready",
        savepoint(),
        seen(None, store(ready=False)),
        "Pending",
        is_ready=("False", "VolumeNotReady"),
    ),
    Row(
        "and one that is not there",
        savepoint(spec(volume="cold")),
        seen(),
        "Pending",
        is_ready=("False", "VolumeMissing"),
    ),
)

ENDS = (
    Row(
        "one that is being taken is waited for",
        savepoint(status=taking()),
        seen(tasks={take(): Running(NOW - 5)}),
        "Taking",
    ),
    Row(
        "whichever way it is taken",
        savepoint(STOP, taking()),
        seen(job(ended()), tasks={take(ASK): Running(NOW - 5)}),
        "Taking",
    ),
    Row(
        "one that was taken is ready",
        savepoint(status=taking(tries=2, last_error="no")),
        seen(tasks={take(): Done(NOW, FOUND)}),
        "Ready",
        ["ForgetTask"],
        [],
        ("True", "Taken"),
        {
            "folder": "",
            "tries": 0,
            "last_error": "",
            "taken": (TakenStatus(location=FOUND.location, epoch=7, taken_time=NOW - 2),),
        },
        ["Taken"],
    ),
    Row("and stays so without its job", savepoint(status=ready()), SavepointObserved(), "Ready"),
    Row(
        "how a try at another folder ended says nothing",
        savepoint(status=taking()),
        seen(tasks={take(folder="s3://else"): Done(NOW, FOUND)}),
        "Taking",
        ["RunTask", "ForgetTask"],
        status={"taken": ()},
    ),
    Row(
        "one that failed is tried again, later",
        savepoint(status=taking()),
        seen(tasks={take(): broken()}),
        "Pending",
        ["ForgetTask"],
        [],
        ("False", "BackingOff"),
        {"tries": 1, "failures": 1, "next_try_time": NOW + 5, "last_error": "no; mend it"},
        ["NotTakenYet"],
        wake=5,
    ),
    Row(
        "ten times",
        savepoint(status=taking(tries=9, failures=9)),
        seen(tasks={take(): broken()}),
        "Failed",
        ["ForgetTask"],
        [],
        ("False", "StoreUnavailable"),
        {"failed": "StoreUnavailable", "folder": ""},
        ["SavepointFailed"],
    ),
    Row(
        "a job without an epoch is waited for, without end",
        savepoint(status=taking(tries=40)),
        seen(tasks={take(): broken("SavepointRefused")}),
        "Pending",
        ["ForgetTask"],
        status={"tries": 41, "failures": 0, "next_try_time": NOW + 300},
    ),
    Row(
        "a broken checkpoint is final",
        savepoint(status=taking()),
        seen(tasks={take(): broken("EpochLogBroken")}),
        "Failed",
        ["ForgetTask"],
        status={"failed": "EpochLogBroken"},
        reports=["SavepointFailed"],
    ),
    Row(
        "one that failed for good stays so",
        savepoint(status=taking(phase="Failed", folder="", failed="EpochLogBroken")),
        seen(),
        "Failed",
    ),
    Row(
        "until somebody changes it",
        savepoint(status=taking(phase="Failed", folder="", failed="EpochLogBroken"), generation=2),
        seen(),
        "Taking",
        ["RunTask"],
        status={"failed": ""},
    ),
    Row(
        "until the time has come it waits",
        savepoint(status=taking(tries=1, next_try_time=NOW + 4, last_error="no")),
        seen(),
        "Pending",
        is_ready=("False", "BackingOff"),
        wake=4,
    ),
)

UPGRADES = (
    Row(
        "an upgrade's savepoint asks the driver that waits for it",
        savepoint(STOP, **OF_AN_UPGRADE),
        seen(job(UPGRADING)),
        "Taking",
        ["RunTask"],
        [take(ASK)],
    ),
    Row(
        "if that has ended meanwhile, its checkpoint is sealed",
        savepoint(STOP, **OF_AN_UPGRADE),
        seen(job(dataclasses.replace(ended(), upgrade=UPGRADING.upgrade))),
        "Taking",
        ["RunTask"],
        [take(SEAL)],
    ),
    Row(
        "it never stops a later driver",
        savepoint(STOP, **OF_AN_UPGRADE),
        seen(job(dataclasses.replace(UPGRADING, attempt=2))),
        "Failed",
        status={"failed": "NotWanted"},
        reports=["SavepointFailed"],
    ),
    Row(
        "nor seals a job that goes on without it",
        savepoint(STOP, **OF_AN_UPGRADE),
        seen(job(dataclasses.replace(UPGRADING, upgrade=UpgradeStatus(mode="last-state")))),
        "Failed",
        status={"failed": "NotWanted"},
        reports=["SavepointFailed"],
    ),
    Row(
        "nor a later job of the same name",
        savepoint(STOP, attempt=1, job_uid="u-old"),
        seen(job(UPGRADING)),
        "Failed",
        status={"failed": "NotWanted"},
        reports=["SavepointFailed"],
    ),
    Row(
        "it does not keep an upgrade waiting for a first epoch",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        seen(job(UPGRADING), tasks={take(ASK): broken("SavepointRefused")}),
        "Failed",
        ["ForgetTask"],
        status={"failed": "SavepointRefused"},
        reports=["SavepointFailed"],
    ),
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


@pytest.mark.parametrize(
    "row", [*WAYS, *ENDS, *UPGRADES, *SCHEDULES, *GONE], ids=lambda row: row.rule
)
def test_rule(row: Row) -> None:
    outcome = decide(row.savepoint, row.seen)
    assert outcome.status.phase == row.phase
    assert acts(outcome) == row.acts
    assert reports(outcome) == row.reports
    if row.tasks:
        assert [a.task for a in outcome.actions if isinstance(a, RunTask)] == row.tasks
    if row.is_ready is not None:
        assert condition(outcome, "Ready") == row.is_ready
    assert {name: getattr(outcome.status, name) for name in row.status} == row.status
    if row.wake is not None:
        assert outcome.wake_at is not None
        assert outcome.wake_at - NOW == pytest.approx(row.wake, abs=0.01)


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
