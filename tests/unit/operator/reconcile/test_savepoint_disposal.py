"""How the data of savepoints is deleted, and what a failed deletion does: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.savepoint import DeletionStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.storage_tasks import Dispose, Disposed, Done, Running
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.savepoint_builders import (
    FOLDER,
    HOURLY,
    OWNING,
    completed,
    failed_now,
    observed,
    ready,
    savepoint,
    spec,
    taking,
)

A, B = f"{FOLDER}/a", f"{FOLDER}/b"
EVERYTHING = Dispose((A,), FOLDER)
SCHEDULED = spec(schedule=HOURLY, history=1, reclaim_policy="Delete")
FAILED = DeletionStatus(
    failures=1,
    failed_time=NOW - 9,
    next_retry_time=NOW + 60,
    failure_reason="StoreUnavailable",
    last_error="no; mend it",
)

RULES = (
    RuleCase(
        "a deletion that failed is counted and retried later each time",
        savepoint(
            OWNING, ready(phase="Deleting", deletion=FAILED), deleted=True, has_finalizer=True
        ),
        observed(tasks={EVERYTHING: failed_now()}),
        "Deleting",
        ["ForgetTask"],
        status={
            "deletion.failures": 2,
            "deletion.failed_time": NOW,
            "deletion.next_retry_time": NOW + 10,
        },
        requeue_in=10,
    ),
    RuleCase(
        "a forced deletion waits for its retry too if nothing was refused",
        savepoint(
            OWNING,
            ready(phase="Deleting", deletion=FAILED),
            deleted=True,
            has_finalizer=True,
            force=True,
        ),
        observed(),
        "Deleting",
        conditions={"Ready": ("False", "StoreUnavailable")},
        requeue_in=60,
    ),
    RuleCase(
        "a deletion is retried when its delay is over",
        savepoint(
            OWNING,
            ready(phase="Deleting", deletion=DeletionStatus(failures=1, next_retry_time=NOW)),
            deleted=True,
            has_finalizer=True,
        ),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[EVERYTHING],
    ),
    RuleCase(
        "a deletion in progress is waited for",
        savepoint(OWNING, ready(phase="Deleting"), deleted=True, has_finalizer=True),
        observed(tasks={EVERYTHING: Running(NOW)}),
        "Deleting",
        conditions={"Ready": ("False", "Disposing")},
    ),
    RuleCase(
        "a deletion of a part is not taken for that of everything",
        savepoint(
            OWNING,
            ready(phase="Deleting", pending_deletion=(B,)),
            deleted=True,
            has_finalizer=True,
        ),
        observed(tasks={Dispose((B,)): Done(NOW, Disposed(1))}),
        "Deleting",
        ["RunTask", "ForgetTask"],
        status={"data_deleted": False},
        tasks=[EVERYTHING],
    ),
    RuleCase(
        "savepoints that a schedule has dropped are deleted with the resource",
        savepoint(SCHEDULED, ready(pending_deletion=(B,)), deleted=True, has_finalizer=True),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((B, A), "")],
    ),
    RuleCase(
        "dropped savepoints keep a Savepoint although nothing else is left of it",
        savepoint(
            SCHEDULED,
            ready(taken=(), pending_deletion=(B,)),
            deleted=True,
            has_finalizer=True,
        ),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((B,), "")],
    ),
    RuleCase(
        "dropped savepoints are deleted after those that were dropped before",
        savepoint(
            SCHEDULED,
            ready(
                taken=(completed("c"), completed("a")),
                pending_deletion=(B,),
                last_schedule_time=NOW,
            ),
            has_finalizer=True,
            force=True,
        ),
        observed(),
        "Ready",
        ["RunTask"],
        status={"pending_deletion": (B, A)},
        tasks=[Dispose((B, A), force=True)],
    ),
    RuleCase(
        "dropped data is deleted although the policy is Retain now",
        savepoint(
            spec(schedule=HOURLY),
            ready(pending_deletion=(B,), last_schedule_time=NOW),
            has_finalizer=True,
        ),
        observed(),
        "Ready",
        ["RemoveFinalizer", "RunTask"],
        tasks=[Dispose((B,))],
    ),
    RuleCase(
        "a deletion that succeeds forgets the failures before it",
        savepoint(
            SCHEDULED,
            ready(pending_deletion=(B,), last_schedule_time=NOW, deletion=FAILED),
            has_finalizer=True,
        ),
        observed(tasks={Dispose((B,)): Done(NOW, Disposed(1))}),
        "Ready",
        ["ForgetTask"],
        status={"pending_deletion": (), "deletion": DeletionStatus(failed_time=NOW - 9)},
    ),
    RuleCase(
        "a savepoint that failed may have left data, which is deleted",
        savepoint(
            OWNING,
            taking(folder="", attempts=3, failure_reason="EpochLogBroken"),
            deleted=True,
            has_finalizer=True,
        ),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((), FOLDER)],
    ),
    RuleCase(
        "a savepoint in progress is deleted with the resource although its schedule was removed",
        savepoint(
            OWNING, taking(folder=f"{FOLDER}-20270115T0800Z"), deleted=True, has_finalizer=True
        ),
        observed(),
        "Deleting",
        ["RunTask"],
        tasks=[Dispose((), f"{FOLDER}-20270115T0800Z")],
    ),
    RuleCase(
        "a Savepoint whose data is deleted, dropped data included, is released",
        savepoint(
            SCHEDULED,
            ready(phase="Deleting", pending_deletion=(B,)),
            deleted=True,
            has_finalizer=True,
        ),
        observed(tasks={Dispose((B, A)): Done(NOW, Disposed(2))}),
        "Deleting",
        ["RemoveFinalizer", "ForgetTask"],
        status={"data_deleted": True},
    ),
    RuleCase(
        "a clock that was set back delays the next deletion by five minutes at most",
        savepoint(
            OWNING,
            ready(
                phase="Deleting",
                deletion=dataclasses.replace(
                    FAILED, failed_time=NOW + 7140, next_retry_time=NOW + 7200
                ),
            ),
            deleted=True,
            has_finalizer=True,
        ),
        observed(),
        "Deleting",
        status={"deletion.failed_time": NOW},
        requeue_in=300,
    ),
    RuleCase(
        "a deleted Savepoint without our finalizer needs nothing",
        savepoint(OWNING, ready(), deleted=True),
        observed(),
        "Deleting",
    ),
)


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize("kind", ["SavepointRefused", "StoreUnavailable"])
def test_only_a_refusal_can_be_overridden(kind: str) -> None:
    given = savepoint(OWNING, ready(phase="Deleting"), deleted=True, has_finalizer=True)
    outcome = decide(given, observed(tasks={EVERYTHING: failed_now(kind)}))
    (message,) = [one.message for one in outcome.status.conditions if one.type == "Ready"]
    assert failed_now().summary in message
    assert ("force-dispose" in message) == (kind == "SavepointRefused")
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert event.warning
