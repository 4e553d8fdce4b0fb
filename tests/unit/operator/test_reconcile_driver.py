"""What is done about a job's driver: one row a rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Progress, Taken
from sluicegate_operator.resources.job import CheckpointSettings
from sluicegate_operator.resources.job_status import DriverStatus, StreamingJobStatus

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
from .rows import BACKOFF, Row, check, failures, strategy

RESTORED = spec(checkpoint=CheckpointSettings(volume="store", restore_from="moved"))

STARTING = (
    Row(
        "a new job's attempt is raised, and its pod made, held",
        job(held=False),
        view(),
        "Starting",
        ["AddFinalizer", "CreateDriver"],
        {"attempt": 1},
        {"state": "Asked", "asked_at": NOW},
    ),
    Row(
        "a job whose volume is not ready waits and says so",
        job(),
        view(volume_ready=False, volume_message="no such bucket"),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "VolumeNotReady"), "VolumeReady": ("False", "NotReady")},
    ),
    Row(
        "a restart waits for its volume too, and stays due",
        job(status=ended(next_start_time=NOW - 1)),
        view(dead(held=False), volume_ready=False, volume_message="no such bucket"),
        "Restarting",
        status={"attempt": 1, "next_start_time": NOW - 1, "restarts": 0},
        conditions={"Ready": ("False", "VolumeNotReady")},
    ),
    Row(
        "the first checkpoint begins with the savepoint that the spec names",
        job(RESTORED),
        view(savepoints={"moved": Taken("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "restored_from": "moved"},
    ),
    Row(
        "which the first start waits for, while it is taken",
        job(RESTORED),
        view(savepoints={"moved": Taken("Pending")}),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    Row(
        "or where it failed",
        job(RESTORED),
        view(savepoints={"moved": Taken("Failed", "no such job")}),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    Row(
        "or where it does not exist",
        job(RESTORED),
        view(),
        "Pending",
        status={"attempt": 0},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    Row(
        "another savepoint may be named before the first start",
        job(RESTORED, StreamingJobStatus(restored_from="another")),
        view(savepoints={"moved": Taken("Ready")}),
        "Starting",
        ["CreateDriver"],
        {"restored_from": "moved"},
    ),
    Row(
        "a restart before the first epoch needs the savepoint still",
        job(RESTORED, ended(RESTORED, restored_from="moved")),
        view(dead(held=False)),
        "Pending",
        status={"attempt": 1},
        conditions={"Ready": ("False", "SavepointNotReady")},
    ),
    Row(
        "once there was an epoch, the savepoint may go",
        job(RESTORED, ended(RESTORED, restored_from="moved", last_epoch=0)),
        view(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2},
    ),
    Row(
        "a driver that runs does not mind its volume's condition",
        job(status=alive()),
        view(pod(), volume_ready=False),
        "Running",
    ),
    Row(
        "a pod that was asked for a moment ago is waited for",
        job(status=asked()),
        view(),
        "Starting",
        wake=4,
    ),
    Row(
        "a pod that is not there after a while is asked for again, by the same name",
        job(status=asked()),
        view(as_of=NOW + 4),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1},
        {"tries": 2, "asked_at": NOW},
    ),
    Row(
        "a view that is too old says nothing about a pod",
        job(status=asked()),
        view(as_of=NOW - 600),
        "Starting",
        driver={"tries": 1},
    ),
    Row(
        "a pod that is seen is known by its uid",
        job(status=asked()),
        view(pod(phase="Pending", running_at=None, progress=None)),
        "Starting",
        driver={"state": "Alive", "uid": "u-1"},
    ),
    Row(
        "a driver that runs makes the job ready",
        job(status=asked()),
        view(pod()),
        "Running",
        status={"last_epoch": 7, "settled": False},
        conditions={"Ready": ("True", "Running"), "Failed": ("False", "NotFailed")},
        wake=595,
    ),
    Row(
        "a pod that the status does not know is adopted, not doubled",
        job(status=StreamingJobStatus()),
        view(pod(attempt=7, checkpoint_number=3)),
        "Running",
        status={"attempt": 7, "checkpoint_number": 3},
        driver={"state": "Alive", "uid": "u-7"},
        reports=["Adopted"],
    ),
    Row(
        "an older driver that lives is stopped, and waited for",
        job(status=dataclasses.replace(ended(), attempt=2)),
        view(pod(attempt=1)),
        "Pending",
        ["StopDriver"],
        {"attempt": 2},
        conditions={"Ready": ("False", "OldDriverAlive")},
    ),
    Row(
        "an older driver's pod that is dead is dropped",
        job(status=dataclasses.replace(alive(), attempt=2)),
        view(pod(attempt=2), dead(attempt=1)),
        "Running",
        ["DropPod"],
    ),
)

ENDING = (
    Row(
        "a driver that failed is replaced after its strategy's delay",
        job(status=alive()),
        view(dead(1, message="StageFailed: executor gone")),
        "Restarting",
        ["ReleasePod"],
        {**BACKOFF, "last_error": "attempt 1: exit code 1: StageFailed: executor gone"},
        {"state": "Ended"},
        ["DriverFailed"],
        1,
    ),
    Row(
        "the next attempt starts when the delay is over, and the dead pod goes",
        job(status=ended(next_start_time=NOW - 1)),
        view(dead(held=False)),
        "Starting",
        ["CreateDriver", "DropPod"],
        {"attempt": 2, "restarts": 1, "next_start_time": None},
    ),
    Row(
        "75 is a failure like others",
        job(status=alive()),
        view(dead(75)),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["DriverFailed"],
    ),
    Row(
        "64 is for good: settings do not change by themselves",
        job(status=alive()),
        view(dead(64, message="SettingsInvalid: no")),
        "Failed",
        ["ReleasePod"],
        {"failed": "SettingsRefused", "failures": ()},
        reports=["SettingsRefused"],
        conditions={"Failed": ("True", "SettingsRefused")},
    ),
    Row(
        "66 is for good: history is broken",
        job(status=alive()),
        view(dead(66)),
        "Failed",
        ["ReleasePod"],
        {"failed": "HistoryBroken"},
        reports=["HistoryBroken"],
    ),
    Row(
        "Fenced is reported and spends no budget",
        job(strategy(restart="none"), alive(strategy(restart="none"))),
        view(dead(65, message="Fenced: another driver")),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["Fenced"],
        conditions={"Fenced": ("True", "Fenced")},
    ),
    Row(
        "Sealed ends the job, and spends no budget",
        job(status=alive()),
        view(dead(65, message="Sealed: moved")),
        "Failed",
        ["ReleasePod"],
        {"failed": "Sealed", "failures": ()},
        reports=["Sealed"],
    ),
    Row(
        "a stream that exits 0 unasked has failed",
        job(status=alive()),
        view(dead(0)),
        "Restarting",
        ["ReleasePod"],
        {**BACKOFF, "settled": True},
        reports=["EndedUnasked"],
    ),
    Row(
        "a pod that somebody deleted spends no budget",
        job(strategy(restart="none"), alive(strategy(restart="none"))),
        view(dead(143, terminating=True)),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["Disrupted"],
    ),
    Row(
        "an evicted driver spends no budget",
        job(strategy(restart="none"), alive(strategy(restart="none"))),
        view(dead(137, disrupted=True)),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["Disrupted"],
    ),
    Row(
        "a strategy that says none fails the job",
        job(strategy(restart="none"), alive(strategy(restart="none"))),
        view(dead(1)),
        "Failed",
        ["ReleasePod"],
        {"failed": "DriverFailed"},
        reports=["DriverFailed"],
    ),
    Row(
        "a budget that is spent fails the job for good",
        job(
            strategy(restart="fixed-delay", restart_attempts=2),
            alive(strategy(), failures=failures("application", 2)),
        ),
        view(dead(1)),
        "Failed",
        ["ReleasePod"],
        {"failed": "DriverFailed"},
        reports=["DriverFailed"],
    ),
    Row(
        "failures of other kinds do not spend the application's budget",
        job(
            strategy(restart="fixed-delay", restart_attempts=1),
            alive(strategy(), failures=failures("disrupted", 9) + failures("fenced", 9)),
        ),
        view(dead(1)),
        "Restarting",
        ["ReleasePod"],
        {"next_start_time": NOW + 10},
        reports=["DriverFailed"],
    ),
    Row(
        "a long healthy run forgets earlier failures",
        job(
            strategy(restart="fixed-delay", restart_attempts=1),
            alive(strategy(), failures=failures("application", 1)),
        ),
        view(dead(1, ended_at=NOW + 900)),
        "Restarting",
        ["ReleasePod"],
        {"failed": ""},
        reports=["DriverFailed"],
    ),
    Row(
        "a failed job stays so",
        job(status=ended(failed="DriverFailed")),
        view(dead(held=False)),
        "Failed",
        status={"attempt": 1},
    ),
    Row(
        "a pod that vanished, finalizer and all, is a person's word, but a view that is old is none",
        job(status=alive()),
        view(as_of=NOW - 90),
        "Starting",
        driver={"state": "Alive"},
    ),
    Row(
        "a pod that vanished is replaced",
        job(status=alive()),
        view(),
        "Restarting",
        [],
        BACKOFF,
        {"state": "Ended"},
        ["Disrupted"],
    ),
)


@pytest.mark.parametrize("row", [*STARTING, *ENDING], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)


def test_a_new_pod_gets_what_the_status_says() -> None:
    status = ended(checkpoint_number=3, restored_from="moved")
    outcome = decide(job(status=status), view(savepoints={"moved": Taken("Ready")}))
    (made,) = [a for a in outcome.actions if isinstance(a, CreateDriver)]
    assert made == CreateDriver(2, "run", spec().running_hash(), 3, "moved", spec())


def test_the_same_failure_gives_the_same_delay_on_every_operator() -> None:
    """Jitter is drawn by the job's uid and attempt: a pass that is repeated must not change it."""
    wanted = spec(restart=RestartSettings(restart_jitter=1.0))
    times = {
        decide(job(wanted, alive(wanted)), view(dead(1, wanted))).status.next_start_time
        for _ in range(3)
    }
    assert len(times) == 1


def test_times_in_the_future_are_taken_for_now() -> None:
    """A clock that went back must not make the job wait for hours."""
    status = asked()
    later = dataclasses.replace(status.driver, asked_at=NOW + 7200)
    outcome = decide(job(status=dataclasses.replace(status, driver=later)), view())
    assert outcome.status.driver.asked_at == NOW
    assert outcome.wake_at == NOW + 5


def test_progress_alone_is_written_twice_a_minute_at_most() -> None:
    first = decide(job(status=alive()), view(pod(progress=Progress(NOW, 7)))).status
    for later, epoch in ((29.0, 7), (30.0, 9)):
        seen = view(pod(progress=Progress(NOW + later, 9)), as_of=NOW + later)
        after = decide(job(status=first), seen, NOW + later).status
        assert after.last_epoch == epoch
        assert (after == first) is (epoch == 7)


def test_image_failures_are_over_when_a_driver_has_run() -> None:
    before = alive(failures=failures("image", 3))
    after = decide(job(status=before), view(dead(1))).status
    assert [f.kind for f in after.failures] == ["application"]


def test_a_driver_of_a_wiped_status_is_not_taken_for_none() -> None:
    assert decide(job(status=StreamingJobStatus()), view(pod())).status.driver == DriverStatus(
        state="Alive",
        uid="u-1",
        asked_at=NOW - 101,
        running_at=NOW - 100,
        spec_hash=spec().running_hash(),
    )
