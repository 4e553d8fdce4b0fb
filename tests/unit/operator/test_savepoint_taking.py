"""How a Savepoint is taken, which way and when again: one row a rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.resources.job_status import UpgradeStatus
from sluicegate_operator.resources.savepoint import (
    TakenStatus,
)
from sluicegate_operator.volumes.observed import (
    SavepointObserved,
)
from sluicegate_operator.volumes.tasks import (
    ASK,
    SEAL,
    Done,
    Running,
    Take,
)

from .made import NOW, alive, asked, ended
from .savepoints import (
    CHECKPOINT,
    FOLDER,
    FOUND,
    OF_AN_UPGRADE,
    STOP,
    UPGRADING,
    URL,
    Row,
    broken,
    check,
    job,
    ready,
    savepoint,
    seen,
    spec,
    store,
    take,
    taking,
)

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


@pytest.mark.parametrize("row", [*WAYS, *ENDS, *UPGRADES], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)
