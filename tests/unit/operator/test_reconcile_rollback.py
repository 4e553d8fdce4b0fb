"""Rollback of a spec that makes no epoch, and rescue by a savepoint that was late: one row a rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Node, Progress, Taken
from sluicegate_operator.resources.job import PodSettings, RollbackSettings, StreamingJobSpec
from sluicegate_operator.resources.job_status import (
    FINISH,
    GoodStatus,
    RollbackStatus,
    StreamingJobStatus,
    UpgradeStatus,
)

from .made import NOW, alive, asked, dead, decide, ended, job, pod, reports, spec, view
from .rows import Row, check

ON = RollbackSettings(enabled=True, deadline_s=300)
OLD = spec(rollback=ON)
NEW = spec(image="jobs:2", rollback=ON)
NEWER = spec(image="jobs:3", rollback=ON)
AGAIN = dataclasses.replace(NEW, restart_nonce=1)
OFF = spec(image="jobs:2")
NONE = dataclasses.replace(NEW, restart=dataclasses.replace(NEW.restart, restart="none"))
LATE = "clicks-upgrade-1"
QUIET: dict[str, Any] = {"attempt": 2, "progress": None}


def good(wanted: StreamingJobSpec = OLD, **changes: Any) -> GoodStatus:
    """Return what is kept of a spec that made epoch 7 with checkpoint 1."""
    given: dict[str, Any] = {"checkpoint_number": 1, "epoch": 7, **changes}
    return GoodStatus(spec=wanted.seen_by_driver(), spec_hash=wanted.running_hash(), **given)


def trial(**changes: Any) -> StreamingJobStatus:
    """Return the status of a job whose attempt 2 runs a new spec, and has made no epoch."""
    given = {"attempt": 2, "good": good(), "tried_since": NOW - 101, **changes}
    return alive(NEW, **given)


def back(*, arrived: bool = True, of: StreamingJobSpec = NEW) -> RollbackStatus:
    """Return what is written of a rollback."""
    return RollbackStatus(spec_hash=of.running_hash(), reason="NoEpoch", arrived=arrived)


def over(status: StreamingJobStatus) -> StreamingJobStatus:
    """Return a status whose driver has ended."""
    return dataclasses.replace(status, driver=dataclasses.replace(status.driver, state="Ended"))


KEPT = (
    Row(
        "a spec with which a driver has made an epoch is kept",
        job(OLD, alive(OLD)),
        view(pod(OLD)),
        "Running",
        status={"good": good()},
    ),
    Row(
        "one that made none is not",
        job(OLD, alive(OLD)),
        view(pod(OLD, progress=Progress(NOW - 5, None))),
        "Running",
        status={"good": None},
    ),
    Row(
        "nor is any where rollback is not asked for",
        job(spec(), alive()),
        view(pod()),
        "Running",
        status={"good": None},
    ),
    Row(
        "a new spec that makes an epoch is the good one then, with its checkpoint",
        job(NEW, trial(checkpoint_number=2, restored_from="moved")),
        view(pod(NEW, attempt=2, checkpoint_number=2)),
        "Running",
        status={
            "good": good(NEW, checkpoint_number=2, restored_from="moved"),
            "tried_since": None,
        },
    ),
    Row(
        "the good one goes where a savepoint moves its checkpoint: the old is sealed",
        job(
            dataclasses.replace(NEW, upgrade_mode="savepoint"),
            alive(
                OLD,
                stopping="savepoint",
                upgrade=UpgradeStatus(mode="savepoint", savepoint=LATE),
                good=good(),
            ),
        ),
        view(dead(0, OLD), savepoints={LATE: Taken("Ready")}),
        "Starting",
        ["CreateDriver", "DropPod"],
        {
            "checkpoint_number": 2,
            "good": good(checkpoint_number=2, restored_from=LATE, epoch=None),
            "tried_since": NOW,
        },
    ),
    Row(
        "rollback switched off forgets it",
        job(OFF, trial()),
        view(pod(NEW, **QUIET)),
        "Running",
        status={"good": None, "tried_since": None},
    ),
)

GIVEN_UP = (
    Row(
        "a new spec has until its deadline",
        job(NEW, trial()),
        view(pod(NEW, **QUIET)),
        "Running",
        status={"rollback": None},
        wake=199,
    ),
    Row(
        "then its driver is stopped",
        job(NEW, trial(tried_since=NOW - 300)),
        view(pod(NEW, **QUIET)),
        "Upgrading",
        ["StopDriver"],
        {"rollback": back(arrived=False)},
        {"stopping": "rollback"},
        ["RolledBack", "Stopping"],
        conditions={"RolledBack": ("True", "NoEpoch")},
    ),
    Row(
        "and the last good spec started",
        job(NEW, dataclasses.replace(trial(rollback=back(arrived=False), stopping="rollback"))),
        view(dead(0, NEW, terminating=True, **QUIET)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"attempt": 3, "rollback": back(), "checkpoint_number": 1, "tried_since": None},
        {"spec_hash": OLD.running_hash()},
    ),
    Row(
        "a new spec that failed for good is given up at once",
        job(NONE, trial()),
        view(dead(1, NEW, **QUIET)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"attempt": 3, "failed": "", "failures": ()},
        {"spec_hash": OLD.running_hash()},
        ["DriverFailed", "RolledBack"],
        conditions={"RolledBack": ("True", "DriverFailed")},
    ),
    Row(
        "one that fails and is restarted is not, before its deadline",
        job(NEW, trial()),
        view(dead(1, NEW, **QUIET)),
        "Restarting",
        ["ReleasePod"],
        {"rollback": None},
        reports=["DriverFailed"],
    ),
    Row(
        "nor one that reports that there is nothing to do",
        job(NEW, trial(tried_since=NOW - 9999)),
        view(pod(NEW, attempt=2, progress=Progress(NOW - 5, None))),
        "Running",
        status={"rollback": None},
    ),
    Row(
        "nor one whose node is silent",
        job(NEW, trial(tried_since=NOW - 9999)),
        view(pod(NEW, node=Node(silent_since=NOW - 9999), **QUIET)),
        "Running",
        status={"rollback": None},
    ),
    Row(
        "nor one that was told Sealed: no spec can go on there",
        job(NEW, trial()),
        view(dead(65, NEW, message="Sealed: moved", **QUIET)),
        "Failed",
        ["ReleasePod"],
        {"rollback": None, "failed": "Sealed"},
        reports=["Sealed"],
    ),
    Row(
        "a pod that the API server never made is waited for until it cannot come",
        job(NEW, asked(NEW, attempt=2, good=good(), tried_since=NOW - 300)),
        view(),
        "Upgrading",
        status={"rollback": back(arrived=False)},
        reports=["RolledBack"],
        wake=29,
    ),
    Row(
        "last-state: the good spec has the checkpoint as it is",
        job(NEW, trial(tried_since=NOW - 300, last_epoch=9)),
        view(dead(1, NEW, **QUIET)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 1, "last_epoch": 9},
        reports=["DriverFailed", "RolledBack"],
    ),
    Row(
        "savepoint: it stays on the new checkpoint, for the old one is sealed",
        job(
            NEW,
            trial(
                tried_since=NOW - 300,
                checkpoint_number=2,
                restored_from=LATE,
                good=good(checkpoint_number=2, restored_from=LATE, epoch=None),
            ),
        ),
        view(dead(1, NEW, checkpoint_number=2, **QUIET), savepoints={LATE: Taken("Ready")}),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 2, "restored_from": LATE},
        reports=["DriverFailed", "RolledBack"],
    ),
    Row(
        "stateless: it goes back to the old checkpoint",
        job(NEW, trial(tried_since=NOW - 300, checkpoint_number=2, newest_checkpoint=2)),
        view(dead(1, NEW, checkpoint_number=2, **QUIET)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 1, "newest_checkpoint": 2, "last_epoch": 7, "settled": False},
        reports=["DriverFailed", "RolledBack"],
    ),
    Row(
        "a good spec that somebody has changed in the status is not run",
        job(NEW, trial(failed="DriverFailed", good=dataclasses.replace(good(), spec_hash="x"))),
        view(pod(NEW, **QUIET)),
        "Running",
        status={"good": None, "rollback": None},
        reports=["NoRollback"],
    ),
)

AFTERWARDS = (
    Row(
        "it stays so",
        job(NEW, alive(OLD, good=good(), rollback=back())),
        view(pod(OLD)),
        "Running",
        status={"rollback": back(), "good": good()},
        conditions={"RolledBack": ("True", "NoEpoch"), "Ready": ("True", "Running")},
    ),
    Row(
        "what no driver sees is the resource's still",
        job(dataclasses.replace(NEW, suspend=True), alive(OLD, good=good(), rollback=back())),
        view(pod(OLD)),
        "Stopping",
        ["StopDriver"],
        {"rollback": back()},
        reports=["Stopping"],
    ),
    Row(
        "a good spec that fails then is restarted like any",
        job(NEW, alive(OLD, good=good(), rollback=back())),
        view(dead(1, OLD)),
        "Restarting",
        ["ReleasePod"],
        {"rollback": back()},
        reports=["DriverFailed"],
    ),
    Row(
        "and may fail for good",
        job(NONE, alive(OLD, good=good(), rollback=back())),
        view(dead(1, OLD)),
        "Failed",
        ["ReleasePod"],
        {"failed": "DriverFailed", "rollback": back()},
        reports=["DriverFailed"],
    ),
    Row(
        "another spec is an upgrade from the good one",
        job(NEWER, alive(OLD, good=good(), rollback=back())),
        view(pod(OLD)),
        "Upgrading",
        ["StopDriver"],
        {"rollback": None, "upgrade": UpgradeStatus(mode="last-state")},
        reports=["Upgrading"],
    ),
    Row(
        "the good spec in the resource again ends it without a restart",
        job(OLD, alive(OLD, good=good(), rollback=back())),
        view(pod(OLD)),
        "Running",
        status={"rollback": None, "upgrade": None},
    ),
    Row(
        "another restartNonce tries the new spec again",
        job(AGAIN, over(alive(OLD, good=good(), rollback=back(), failed="DriverFailed"))),
        view(),
        "Starting",
        ["CreateDriver"],
        {"rollback": None, "handled_nonce": 1, "tried_since": NOW},
        {"spec_hash": NEW.running_hash()},
    ),
    Row(
        "a number that was given to a checkpoint is not given again",
        job(
            dataclasses.replace(AGAIN, upgrade_mode="stateless"),
            over(alive(OLD, good=good(), rollback=back(), newest_checkpoint=2, settled=True)),
        ),
        view(),
        "Starting",
        ["CreateDriver"],
        {"checkpoint_number": 3, "newest_checkpoint": 3},
    ),
    Row(
        "an upgrade on the way back begins where the way ends",
        job(NEWER, trial(rollback=back(arrived=False), stopping="rollback", checkpoint_number=2)),
        view(dead(0, NEW, terminating=True, checkpoint_number=2, **QUIET)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 1, "rollback": None},
        {"spec_hash": NEWER.running_hash()},
    ),
    Row(
        "what the old checkpoint has decided is finished by the spec that decided it",
        job(
            dataclasses.replace(NEW, upgrade_mode="stateless"),
            alive(OLD, stopping="upgrade", upgrade=UpgradeStatus(mode="stateless"), good=good()),
        ),
        view(dead(137, OLD, terminating=True)),
        "Upgrading",
        ["CreateDriver", "DropPod"],
        {"checkpoint_number": 1},
        {"purpose": FINISH, "spec_hash": OLD.running_hash()},
    ),
)

SEALED: dict[str, Any] = {"message": "Sealed: moved"}

RESCUE = (
    Row(
        "a savepoint that is given up is kept in mind",
        job(
            spec(image="jobs:2", upgrade_mode="savepoint"),
            alive(stopping="savepoint", upgrade=UpgradeStatus(mode="savepoint", savepoint=LATE)),
        ),
        view(pod(), savepoints={LATE: Taken("Failed", "disk full")}),
        "Upgrading",
        ["StopDriver"],
        {"given_up": (LATE,)},
        reports=["SavepointFailed"],
    ),
    Row(
        "if it has sealed the checkpoint after all, the job goes on from it",
        job(status=alive(given_up=(LATE,))),
        view(dead(65, **SEALED), savepoints={LATE: Taken("Ready")}),
        "Starting",
        ["CreateDriver", "DropPod"],
        {
            "checkpoint_number": 2,
            "restored_from": LATE,
            "given_up": (),
            "failed": "",
            "settled": True,
        },
        reports=["Sealed", "SavepointLate"],
    ),
    Row(
        "also when it is ready only later",
        job(status=ended(failed="Sealed", given_up=(LATE,))),
        view(savepoints={LATE: Taken("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"checkpoint_number": 2, "restored_from": LATE},
        reports=["SavepointLate"],
    ),
    Row(
        "until then the job is failed",
        job(status=ended(failed="Sealed", given_up=(LATE,))),
        view(savepoints={LATE: Taken("Pending")}),
        "Failed",
        status={"checkpoint_number": 1},
    ),
    Row(
        "a savepoint of another's is no way on",
        job(status=ended(failed="Sealed")),
        view(savepoints={LATE: Taken("Ready")}),
        "Failed",
        status={"checkpoint_number": 1},
    ),
    Row(
        "a driver that finishes and is told Sealed has nothing to finish: all is in the sinks",
        job(status=alive(purpose=FINISH, phase="Deleting"), deleted=True),
        view(dead(65, purpose=FINISH, **SEALED)),
        "Deleting",
        ["RemoveFinalizer", "DropPod"],
        reports=["Sealed"],
    ),
)


@pytest.mark.parametrize("row", [*KEPT, *GIVEN_UP, *AFTERWARDS, *RESCUE], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


def test_after_a_rollback_the_driver_is_made_of_the_good_spec_under_the_new_one_s_controls() -> (
    None
):
    wanted = dataclasses.replace(NEW, stuck_after_s=77.0)
    outcome = decide(job(wanted, over(alive(OLD, good=good(), rollback=back()))), view())
    (made,) = [a for a in outcome.actions if isinstance(a, CreateDriver)]
    assert made.spec == dataclasses.replace(OLD, stuck_after_s=77.0)
    assert made.spec_hash == OLD.running_hash()


def test_a_spec_too_large_to_be_kept_cannot_be_gone_back_to_which_is_said() -> None:
    large = spec(rollback=ON, driver=PodSettings(template={"x": "y" * 9000}))
    kept = decide(job(large, alive(large)), view(pod(large))).status
    assert kept.good is not None
    assert not kept.good.spec
    outcome = decide(job(NONE, trial(good=kept.good)), view(dead(1, NEW, **QUIET)))
    assert reports(outcome) == ["DriverFailed", "NoRollback"]
    assert outcome.status.phase == "Failed"
