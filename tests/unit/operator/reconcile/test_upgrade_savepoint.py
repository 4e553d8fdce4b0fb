"""The savepoint of an upgrade, and an upgrade that continues without it: one row for each rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.reconcile.actions import CreateSavepoint, EmitEvent
from sluicegate_operator.reconcile.observed import Observed, Progress, SavepointState
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod, spec
from tests.unit.operator.rule_cases import RuleCase, check, decide

NEW = spec(image="jobs:2")
BY_SAVEPOINT = spec(image="jobs:2", upgrade_mode="Savepoint")
STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")

NAME, SECOND = "clicks-upgrade-u-job-1", "clicks-upgrade-u-job-2"
READY, PENDING = {NAME: SavepointState("Ready")}, {NAME: SavepointState("Pending")}
QUEUED = {NAME: SavepointState("Pending", queued=True)}
FAILED = {NAME: SavepointState("Failed", "disk full")}
STALLED: dict[str, Any] = {"running_at": NOW - 900, "progress": Progress(NOW - 601, 7)}
LAST_STATE = UpgradeStatus(mode="LastState")


def upgrading(stop_reason: str = "Savepoint") -> StreamingJobStatus:
    """Return the status of a job whose upgrade waits for the savepoint of attempt 1."""
    upgrade = UpgradeStatus(mode="Savepoint", savepoint=NAME)
    return alive(stop_reason=stop_reason, upgrade=upgrade)


WAITING = (
    RuleCase(
        "the job says that its savepoint is being taken",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(), savepoints=PENDING),
        "Upgrading",
        conditions={"Ready": ("False", "TakingSavepoint")},
    ),
    RuleCase(
        "a driver exits by itself after its savepoint is ready",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(), savepoints=READY),
        "Upgrading",
        status={"attempt": 1, "checkpoint.number": 1},
        driver={"stop_reason": "Savepoint"},
        conditions={"Ready": ("False", "TakingSavepoint")},
    ),
    RuleCase(
        "the savepoint is created although the driver has ended in the meantime",
        job(BY_SAVEPOINT, upgrading()),
        observed(dead(0, terminating=True)),
        "Upgrading",
        ["CreateSavepoint", "RemovePodFinalizer"],
        {"attempt": 1, "checkpoint.number": 1},
    ),
    RuleCase(
        "the savepoint is also created for a driver that was adopted during the upgrade",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(attempt=2)),
        "Upgrading",
        ["CreateSavepoint"],
        {"attempt": 2},
        events=["Adopted"],
    ),
    RuleCase(
        "an adopted driver keeps running while the savepoint is queued",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(attempt=2), savepoints=QUEUED),
        "Upgrading",
        driver={"stop_reason": ""},
        events=["Adopted"],
        conditions={"Ready": ("False", "SavepointQueued")},
    ),
    RuleCase(
        "a driver without progress is stopped while its savepoint is queued",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(**STALLED), savepoints=QUEUED),
        "Upgrading",
        ["StopDriver"],
        driver={"stop_reason": "Stuck"},
        events=["Stuck"],
    ),
    RuleCase(
        "the deadline of its progress is waited for while its savepoint is queued",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(), savepoints=QUEUED),
        "Upgrading",
        driver={"stop_reason": "Savepoint"},
        requeue_in=595,
    ),
    RuleCase(
        "a driver whose savepoint is being taken has until the timeout of that",
        job(BY_SAVEPOINT, upgrading()),
        observed(pod(**STALLED), savepoints=PENDING),
        "Upgrading",
        driver={"stop_reason": "Savepoint"},
    ),
)

TAKEN = RuleCase(
    "the new checkpoint has no epoch to be applied, however the driver ended that sealed the old one",
    job(BY_SAVEPOINT, upgrading()),
    observed(dead(137), savepoints=READY),
    "Starting",
    ["CreateDriver", "DeletePod"],
    {"checkpoint.number": 2, "checkpoint.restored_from": NAME, "all_epochs_applied": True},
)

ABANDONED = (
    RuleCase(
        "a driver that was stuck while its savepoint was queued is replaced by one of the new spec",
        job(BY_SAVEPOINT, upgrading("Stuck")),
        observed(dead(137, terminating=True), savepoints=QUEUED),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "checkpoint.abandoned_savepoints": (NAME,), "failures": ()},
        {"spec_hash": BY_SAVEPOINT.running_hash()},
        ["Stuck", "SavepointFailed"],
    ),
    RuleCase(
        "an upgrade that becomes stateless abandons its savepoint, which may still seal the checkpoint",
        job(STATELESS, upgrading()),
        observed(pod(), savepoints=PENDING),
        "Upgrading",
        ["StopDriver"],
        {
            "upgrade": UpgradeStatus(mode="Stateless"),
            "checkpoint.abandoned_savepoints": (NAME,),
        },
        {"stop_reason": "Upgrade", "stop_time": NOW},
    ),
    RuleCase(
        "an upgrade without a savepoint abandons none",
        job(NEW, alive(stop_reason="Upgrade", upgrade=UpgradeStatus(mode="Stateless"))),
        observed(pod(terminating=True)),
        "Upgrading",
        status={"upgrade": LAST_STATE, "checkpoint.abandoned_savepoints": ()},
    ),
    RuleCase(
        "savepoints that earlier upgrades abandoned may still seal the checkpoint too",
        job(
            BY_SAVEPOINT,
            alive(
                attempt=2,
                stop_reason="Savepoint",
                upgrade=UpgradeStatus(mode="Savepoint", savepoint=SECOND),
                abandoned_savepoints=(NAME,),
            ),
        ),
        observed(pod(attempt=2), savepoints={SECOND: SavepointState("Failed", "disk full")}),
        "Upgrading",
        ["StopDriver"],
        {"checkpoint.abandoned_savepoints": (NAME, SECOND)},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "a stuck driver is still reported as stuck after its savepoint has failed",
        job(BY_SAVEPOINT, upgrading("Stuck")),
        observed(pod(terminating=True), savepoints=FAILED),
        "Upgrading",
        driver={"stop_reason": "Stuck", "stop_time": NOW - 1},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "the status still says why and when a driver was stopped that ended before its savepoint failed",
        job(BY_SAVEPOINT, upgrading()),
        observed(dead(137), volume_ready=False, savepoints=FAILED),
        "Pending",
        ["RemovePodFinalizer"],
        {"attempt": 1, "upgrade": None},
        {"state": "Terminated", "stop_reason": "Savepoint", "stop_time": NOW - 1},
        ["SavepointFailed"],
    ),
)


@pytest.mark.parametrize("case", [*WAITING, TAKEN, *ABANDONED], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("view", "after_s", "why"),
    [
        (observed(pod(), savepoints=FAILED), 0, "disk full"),
        (observed(dead(137), savepoints=PENDING), 0, "its driver has ended"),
        (observed(pod(), savepoints=PENDING), 600, "it timed out"),
    ],
    ids=["failed", "driver died", "too late"],
)
def test_a_warning_says_why_the_upgrade_continues_without_its_savepoint(
    view: Observed, after_s: float, why: str
) -> None:
    now = NOW + after_s
    outcome = decide(job(BY_SAVEPOINT, upgrading()), dataclasses.replace(view, as_of=now), now)
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert (event.reason, event.warning) == ("SavepointFailed", True)
    assert f"({why})" in event.message


def test_a_savepoint_is_abandoned_at_the_time_that_its_upgrade_waits_for() -> None:
    view = observed(pod(), savepoints=PENDING)
    waiting = decide(job(BY_SAVEPOINT, upgrading()), view)
    assert waiting.requeue_at is not None
    late = decide(job(BY_SAVEPOINT, waiting.status), view, waiting.requeue_at)
    assert late.status.upgrade == LAST_STATE


def test_a_driver_that_does_not_exit_after_its_savepoint_is_stopped() -> None:
    view = observed(pod(), savepoints=READY)
    waiting = decide(job(BY_SAVEPOINT, upgrading()), view)
    assert waiting.requeue_at is not None
    late = decide(job(BY_SAVEPOINT, waiting.status), view, waiting.requeue_at)
    assert [type(one).__name__ for one in late.actions] == ["StopDriver"]
    assert late.status.upgrade == UpgradeStatus(mode="Savepoint", savepoint=NAME)
    assert late.status.driver.stop_time == waiting.requeue_at


def test_the_savepoint_of_an_adopted_driver_is_abandoned_in_time_too() -> None:
    first = decide(job(BY_SAVEPOINT, upgrading()), observed(pod(attempt=2)))
    view = observed(pod(attempt=2), savepoints=PENDING)
    later = decide(job(BY_SAVEPOINT, first.status), view, NOW + 300)
    late = decide(job(BY_SAVEPOINT, later.status), view, NOW + 600)
    assert later.status.upgrade == UpgradeStatus(mode="Savepoint", savepoint=NAME)
    assert late.status.upgrade == LAST_STATE


def test_the_name_of_a_savepoint_has_eight_characters_of_the_uid_of_its_job() -> None:
    upgraded = dataclasses.replace(job(BY_SAVEPOINT, alive()), uid="0123456789abcdef")
    assert (
        CreateSavepoint("clicks-upgrade-01234567-1", 1) in decide(upgraded, observed(pod())).actions
    )
