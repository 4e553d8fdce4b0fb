"""How a Savepoint is taken, retried and given up: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.savepoint import TakenStatus
from sluicegate_operator.api.streaming_job_status import UpgradeStatus
from sluicegate_operator.reconcile.observed import SavepointObserved
from sluicegate_operator.reconcile.storage_tasks import REQUEST, SEAL, Done, Running, TakeSavepoint
from tests.unit.operator.builders import NOW, alive, ended, requested
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.savepoint_builders import (
    CHECKPOINT,
    FOLDER,
    OF_AN_UPGRADE,
    RESULT,
    STOP,
    UPGRADING,
    URL,
    failed_now,
    job,
    observed,
    ready,
    savepoint,
    spec,
    store,
    take,
    taking,
)

METHODS = (
    RuleCase(
        "the checkpoint of a running job is copied and the folder is recorded first",
        savepoint(),
        observed(),
        "Taking",
        ["RunTask"],
        tasks=[take()],
        conditions={"Ready": ("False", "Taking")},
        status={"folder": FOLDER},
    ),
    RuleCase(
        "the checkpoint of a stopped job is copied",
        savepoint(),
        observed(job(ended())),
        "Taking",
        ["RunTask"],
        tasks=[take()],
    ),
    RuleCase(
        "stop: the running driver receives a request",
        savepoint(STOP),
        observed(),
        "Taking",
        ["RunTask"],
        tasks=[take(REQUEST)],
    ),
    RuleCase(
        "the time at which an attempt leaves the queue is recorded",
        savepoint(STOP, taking()),
        observed(tasks={take(REQUEST): Running(NOW - 900, NOW - 5)}),
        "Taking",
        status={"start_time": NOW - 5},
    ),
    RuleCase(
        "an attempt in the queue has not begun",
        savepoint(STOP, taking()),
        observed(tasks={take(REQUEST): Running(NOW - 900)}),
        "Taking",
        status={"start_time": None},
    ),
    RuleCase(
        "an attempt that a restart of the operator has ended waits in the queue again",
        savepoint(STOP, taking(start_time=NOW - 500)),
        observed(),
        "Taking",
        ["RunTask"],
        status={"start_time": None},
    ),
    RuleCase(
        "one that follows a failed attempt does not extend the time",
        savepoint(STOP, taking(start_time=NOW - 500, attempts=1, next_retry_time=NOW - 1)),
        observed(),
        "Taking",
        ["RunTask"],
        status={"start_time": NOW - 500},
    ),
    RuleCase(
        "stop: the checkpoint of a job without a driver is sealed",
        savepoint(STOP),
        observed(job(ended())),
        "Taking",
        ["RunTask"],
        tasks=[take(SEAL)],
    ),
    RuleCase(
        "stop: the checkpoint of a failed job is sealed",
        savepoint(STOP),
        observed(job(ended(failure_reason="Sealed"))),
        "Taking",
        ["RunTask"],
        tasks=[take(SEAL)],
    ),
    RuleCase(
        "stop: a driver that is only requested is waited for",
        savepoint(STOP),
        observed(job(requested())),
        "Pending",
        conditions={"Ready": ("False", "JobUnsettled")},
    ),
    RuleCase(
        "stop: a driver that is stopping is waited for",
        savepoint(STOP),
        observed(job(alive(stop_reason="Suspend"))),
        "Pending",
        conditions={"Ready": ("False", "JobUnsettled")},
    ),
    RuleCase(
        "stop: an apply-only driver is waited for",
        savepoint(STOP),
        observed(job(alive(mode="ApplyOnly"))),
        "Pending",
        conditions={"Ready": ("False", "JobUnsettled")},
    ),
    RuleCase(
        "the current checkpoint of the job is used",
        savepoint(),
        observed(job(alive(number=3))),
        "Taking",
        ["RunTask"],
        tasks=[TakeSavepoint(f"{URL}/clicks/3", FOLDER)],
    ),
    RuleCase(
        "the target may be another volume of the same store",
        savepoint(spec(volume="cold")),
        observed(None, store(), store("cold", bucket="cold", prefix="")),
        "Taking",
        ["RunTask"],
        tasks=[TakeSavepoint(CHECKPOINT, "s3://cold/savepoints/clicks/move/u-savepo")],
    ),
    RuleCase(
        "the target cannot be on another store",
        savepoint(spec(volume="cold")),
        observed(None, store(), store("cold", credentials_secret="others")),
        "Pending",
        conditions={"Ready": ("False", "OtherStore")},
    ),
    RuleCase(
        "a job that was deleted is waited for",
        savepoint(status=taking()),
        SavepointObserved(volumes={"store": store()}),
        "Pending",
        conditions={"Ready": ("False", "JobMissing")},
    ),
    RuleCase(
        "a job that never existed is waited for",
        savepoint(),
        SavepointObserved(),
        "Pending",
        conditions={"Ready": ("False", "JobMissing")},
        status={"folder": ""},
    ),
    RuleCase(
        "a volume that is not ready is waited for",
        savepoint(),
        observed(None, store(ready=False)),
        "Pending",
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    RuleCase(
        "a volume that does not exist is waited for",
        savepoint(spec(volume="cold")),
        observed(),
        "Pending",
        conditions={"Ready": ("False", "VolumeMissing")},
    ),
)

RESULTS = (
    RuleCase(
        "an attempt in progress is waited for",
        savepoint(status=taking()),
        observed(tasks={take(): Running(NOW - 5)}),
        "Taking",
    ),
    RuleCase(
        "an attempt in progress is waited for even if its method is obsolete",
        savepoint(STOP, taking()),
        observed(job(ended()), tasks={take(REQUEST): Running(NOW - 5)}),
        "Taking",
    ),
    RuleCase(
        "a successful attempt makes the savepoint ready",
        savepoint(status=taking(attempts=2, last_error="no")),
        observed(tasks={take(): Done(NOW, RESULT)}),
        "Ready",
        ["ForgetTask"],
        conditions={"Ready": ("True", "Taken")},
        status={
            "folder": "",
            "attempts": 0,
            "last_error": "",
            "taken": (TakenStatus(location=RESULT.location, epoch=7, completion_time=NOW - 2),),
        },
        events=["Taken"],
    ),
    RuleCase(
        "a savepoint stays ready without its job",
        savepoint(status=ready()),
        SavepointObserved(),
        "Ready",
    ),
    RuleCase(
        "the result of an attempt for another folder is ignored",
        savepoint(status=taking()),
        observed(tasks={take(folder="s3://else"): Done(NOW, RESULT)}),
        "Taking",
        ["RunTask", "ForgetTask"],
        status={"taken": ()},
    ),
    RuleCase(
        "a failed attempt is retried after a delay",
        savepoint(status=taking()),
        observed(tasks={take(): failed_now()}),
        "Pending",
        ["ForgetTask"],
        conditions={"Ready": ("False", "BackingOff")},
        status={
            "attempts": 1,
            "failures": 1,
            "next_retry_time": NOW + 5,
            "last_error": "no; mend it",
        },
        events=["NotTakenYet"],
        requeue_in=5,
    ),
    RuleCase(
        "the tenth failure ends the savepoint",
        savepoint(status=taking(attempts=9, failures=9)),
        observed(tasks={take(): failed_now()}),
        "Failed",
        ["ForgetTask"],
        conditions={"Ready": ("False", "StoreUnavailable")},
        status={"failure_reason": "StoreUnavailable", "folder": ""},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "a job without an epoch is waited for without limit",
        savepoint(status=taking(attempts=40)),
        observed(tasks={take(): failed_now("SavepointRefused")}),
        "Pending",
        ["ForgetTask"],
        status={"attempts": 41, "failures": 0, "next_retry_time": NOW + 300},
    ),
    RuleCase(
        "a broken checkpoint ends the savepoint",
        savepoint(status=taking()),
        observed(tasks={take(): failed_now("EpochLogBroken")}),
        "Failed",
        ["ForgetTask"],
        status={"failure_reason": "EpochLogBroken"},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "a failed savepoint stays failed",
        savepoint(status=taking(phase="Failed", folder="", failure_reason="EpochLogBroken")),
        observed(),
        "Failed",
    ),
    RuleCase(
        "a changed spec tries a failed savepoint again",
        savepoint(
            status=taking(phase="Failed", folder="", failure_reason="EpochLogBroken"), generation=2
        ),
        observed(),
        "Taking",
        ["RunTask"],
        status={"failure_reason": ""},
    ),
    RuleCase(
        "a retry waits until its delay is over",
        savepoint(status=taking(attempts=1, next_retry_time=NOW + 4, last_error="no")),
        observed(),
        "Pending",
        conditions={"Ready": ("False", "BackingOff")},
        requeue_in=4,
    ),
)

UPGRADES = (
    RuleCase(
        "upgrade: the driver of the upgrade receives a request",
        savepoint(STOP, **OF_AN_UPGRADE),
        observed(job(UPGRADING)),
        "Taking",
        ["RunTask"],
        tasks=[take(REQUEST)],
    ),
    RuleCase(
        "upgrade: the checkpoint is sealed if that driver has ended",
        savepoint(STOP, **OF_AN_UPGRADE),
        observed(job(dataclasses.replace(ended(), upgrade=UPGRADING.upgrade))),
        "Taking",
        ["RunTask"],
        tasks=[take(SEAL)],
    ),
    RuleCase(
        "upgrade: a later driver is never stopped",
        savepoint(STOP, **OF_AN_UPGRADE),
        observed(job(dataclasses.replace(UPGRADING, attempt=2))),
        "Failed",
        status={"failure_reason": "NotWanted"},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "upgrade: a job that continued without the savepoint is not sealed",
        savepoint(STOP, **OF_AN_UPGRADE),
        observed(job(dataclasses.replace(UPGRADING, upgrade=UpgradeStatus(mode="LastState")))),
        "Failed",
        status={"failure_reason": "NotWanted"},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "upgrade: a later job of the same name is not sealed",
        savepoint(STOP, attempt=1, job_uid="u-old"),
        observed(job(UPGRADING)),
        "Failed",
        status={"failure_reason": "NotWanted"},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "upgrade: a job without an epoch ends the savepoint",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        observed(job(UPGRADING), tasks={take(REQUEST): failed_now("SavepointRefused")}),
        "Failed",
        ["ForgetTask"],
        status={"failure_reason": "SavepointRefused"},
        events=["SavepointFailed"],
    ),
)


@pytest.mark.parametrize("case", [*METHODS, *RESULTS, *UPGRADES], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_result_that_is_reported_again_is_recorded_once_with_its_seal() -> None:
    """The operator died after it wrote the status and before it forgot the task."""
    known = TakenStatus(location=RESULT.location, epoch=7, completion_time=NOW - 9)
    result = Done(NOW, dataclasses.replace(RESULT, sealed=True))
    before = savepoint(status=taking(taken=(known,)))
    (taken,) = decide(before, observed(tasks={take(): result})).status.taken
    assert (taken.location, taken.sealed) == (RESULT.location, True)
