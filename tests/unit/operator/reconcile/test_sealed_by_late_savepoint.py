"""A savepoint of an upgrade that sealed its checkpoint and was given up: it is completed, and used."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus, UpgradeStatus
from sluicegate_operator.reconcile.observed import SavepointState
from sluicegate_operator.reconcile.readiness import savepoint_state
from sluicegate_operator.reconcile.storage_tasks import (
    FINISH,
    REQUEST,
    Done,
    FailedTask,
    Running,
    SavepointTaken,
)
from tests.unit.operator import builders
from tests.unit.operator.builders import NOW, alive, dead, ended, requested
from tests.unit.operator.rule_cases import RuleCase, action_names, check, decide
from tests.unit.operator.savepoint_builders import (
    FOLDER,
    OF_AN_UPGRADE,
    STOP,
    failed_now,
    job,
    observed,
    savepoint,
    take,
    taking,
)

STUCK: dict[str, Any] = {
    "attempt": 2,
    "failure_reason": "Sealed",
    "abandoned_savepoints": ("move",),
    "phase": "Failed",
}
"""Status of a job whose second driver found the seal of the savepoint that its upgrade gave up."""
NEW = builders.spec(image="jobs:2", upgrade_mode="Savepoint")


def given_up(reason: str, **changes: Any) -> SavepointStatus:
    """Return the status of a savepoint that was given up."""
    return taking(**{"phase": "Failed", "folder": "", "failure_reason": reason, **changes})


RULES = (
    *(
        RuleCase(
            f"a savepoint that was given up ({reason}) is completed if its job cannot go on without it",
            savepoint(STOP, given_up(reason, failures=10), **OF_AN_UPGRADE),
            observed(job(ended(**STUCK))),
            "Taking",
            ["RunTask"],
            {"failure_reason": "", "failures": 0, "folder": FOLDER},
            tasks=[take(FINISH)],
        )
        for reason in ("NotWanted", "NotStopped", "StoreUnavailable")
    ),
    *(
        RuleCase(
            f"one that cannot be completed ({reason}) stays failed",
            savepoint(STOP, given_up(reason), **OF_AN_UPGRADE),
            observed(job(ended(**STUCK))),
            "Failed",
        )
        for reason in ("EpochLogBroken", "SavepointRefused")
    ),
    RuleCase(
        "it is tried without limit, with a growing delay",
        savepoint(STOP, taking(attempts=40, failures=40), **OF_AN_UPGRADE),
        observed(job(ended(**STUCK)), tasks={take(FINISH): failed_now()}),
        "Pending",
        ["ForgetTask"],
        {"next_retry_time": NOW + 300, "folder": FOLDER},
    ),
    RuleCase(
        "the answer of a driver that ended after the seal is not final",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        observed(job(ended(**STUCK)), tasks={take(REQUEST): failed_now("NotStopped")}),
        "Pending",
        ["ForgetTask"],
        {"next_retry_time": NOW + 5},
        events=["NotTakenYet"],
    ),
    RuleCase(
        "it is final if another savepoint sealed the checkpoint",
        savepoint(STOP, taking(), **OF_AN_UPGRADE),
        observed(job(ended(**STUCK)), tasks={take(FINISH): failed_now("SavepointRefused")}),
        "Failed",
        ["ForgetTask"],
        {"failure_reason": "SavepointRefused"},
        events=["SavepointFailed"],
    ),
    RuleCase(
        "a savepoint of the same name that a person created stays failed",
        savepoint(STOP, given_up("StoreUnavailable")),
        observed(job(ended(**STUCK))),
        "Failed",
    ),
    *(
        RuleCase(
            f"it is not wanted by {what}",
            savepoint(STOP, given_up("NotWanted"), **given),
            observed(job(status, **changes)),
            "Failed",
            status={"failure_reason": "NotWanted"},
        )
        for what, given, status, changes in (
            ("a job with a driver", OF_AN_UPGRADE, requested(**STUCK), {}),
            (
                "a job that another upgrade continues",
                OF_AN_UPGRADE,
                ended(**STUCK, upgrade=UpgradeStatus(mode="Stateless")),
                {},
            ),
            ("a deleted job", OF_AN_UPGRADE, ended(**STUCK), {"deleted": True}),
            ("a later job", {"attempt": 1, "job_uid": "u-old"}, ended(**STUCK), {}),
            (
                "a job that failed otherwise",
                OF_AN_UPGRADE,
                ended(**{**STUCK, "failure_reason": "HistoryBroken"}),
                {},
            ),
            (
                "a job that has left the checkpoint",
                OF_AN_UPGRADE,
                ended(**{**STUCK, "abandoned_savepoints": ()}),
                {},
            ),
        )
    ),
)


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_job_continues_from_a_savepoint_that_sealed_its_checkpoint_before_it_failed() -> None:
    """The driver sealed the checkpoint and ended with 1, because the store failed at the manifest."""
    taken = savepoint(STOP, taking(start_time=NOW - 1), **OF_AN_UPGRADE)
    upgrade = UpgradeStatus(mode="Savepoint", savepoint="move")
    status: StreamingJobStatus = alive(stop_reason="Savepoint", upgrade=upgrade)

    def step(at: float, *pods: Any) -> StreamingJobStatus:
        seen = {"move": savepoint_state(taken.status)}
        resource = builders.job(NEW, status, generation=2)
        view = builders.observed(*pods, as_of=at, savepoints=seen)
        after: StreamingJobStatus = decide(resource, view, at).status
        return after

    status = step(NOW, dead(1))
    failed = FailedTask(NOW + 2, "NotStopped", "StoreUnavailable")
    outcome = decide(taken, observed(job(status), tasks={take(REQUEST): failed}), NOW + 3)
    taken = dataclasses.replace(taken, status=outcome.status)
    sealed = dead(65, NEW, attempt=2, message="Sealed: moved", running_at=NOW + 5)
    status = step(NOW + 60, sealed)
    assert (status.phase, status.failure_reason) == ("Failed", "Sealed")

    outcome = decide(taken, observed(job(status)), NOW + 61)
    assert action_names(outcome) == ["RunTask"]
    taken = dataclasses.replace(taken, status=outcome.status)
    result = SavepointTaken(f"{FOLDER}/clicks-7-x", 7, NOW + 62, sealed=True)
    outcome = decide(taken, observed(job(status), tasks={take(FINISH): Done(NOW + 62, result)}))
    taken = dataclasses.replace(taken, status=outcome.status)
    status = step(NOW + 63)
    assert (status.checkpoint.number, status.checkpoint.restored_from) == (2, "move")
    assert status.phase == "Starting"


@pytest.mark.parametrize(
    ("savepoints", "expires"), [({"move": SavepointState("Failed", "NotStopped: x")}, 0), ({}, 1)]
)
def test_a_sealed_job_does_not_expire_while_its_savepoint_may_be_completed(
    savepoints: dict[str, SavepointState], expires: int
) -> None:
    """Its checkpoint has the only copy of the state, and would be deleted with it."""
    wanted = builders.spec(
        ttl_seconds_after_finished=3600, epochs=EpochSettings(on_cancel="delete")
    )
    status = ended(wanted, **STUCK, finish_time=NOW - 3601, all_epochs_applied=True)
    view = builders.observed(savepoints=savepoints)
    settled = decide(builders.job(wanted, status), view).status
    actions = action_names(decide(builders.job(wanted, settled), view))
    assert actions.count("DeleteJob") == expires


def test_a_task_in_progress_is_not_started_again() -> None:
    taken = savepoint(STOP, taking(), **OF_AN_UPGRADE)
    tasks = {take(REQUEST): Running(NOW - 5)}
    assert not action_names(decide(taken, observed(job(ended(**STUCK)), tasks=tasks)))
