"""Savepoints that are taken by a schedule, and how many are kept: one row for each rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.api.schedule import Schedule
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import SavepointObserved
from sluicegate_operator.reconcile.savepoint.reconciler import reconcile_savepoint
from sluicegate_operator.reconcile.storage_tasks import Dispose, Disposed, Done, Running
from tests.unit.operator.builders import NOW
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.savepoint_builders import (
    FOLDER,
    HOURLY,
    RESULT,
    completed,
    failed_now,
    observed,
    ready,
    savepoint,
    spec,
    take,
    taking,
)

TICK = NOW
"""08:00 UTC; the Savepoint was created at 07:30."""
AT_8 = f"{FOLDER}-20270115T0800Z"
DAILY = spec(schedule=HOURLY, history=2)

AGING = spec(schedule=HOURLY, history_max_age_s=3600.0, reclaim_policy="Delete")
HALF_PAST = spec(schedule=Schedule(cron="30 7 * * *", starting_deadline_s=60))
"""Due half an hour ago, and too late since."""
BETWEEN = savepoint(DAILY, created_at=NOW)


def aged(*ages_s: int) -> SavepointStatus:
    """Return the status of a schedule with savepoints of these ages, which are their names."""
    taken = tuple(completed(str(age), completion_time=NOW - age) for age in ages_s)
    return ready(taken=taken, last_schedule_time=TICK)


def was_ready(**changes: Any) -> SavepointStatus:
    """Return the status of a schedule that has taken a savepoint, and begun the next one."""
    before: SavepointStatus = decide(savepoint(DAILY, aged(60)), observed()).status
    return dataclasses.replace(before, **changes)


SCHEDULES = (
    RuleCase(
        "a scheduled savepoint is taken when it is due",
        savepoint(DAILY),
        observed(),
        "Taking",
        ["RunTask"],
        tasks=[take(folder=AT_8)],
        status={"last_schedule_time": TICK, "folder": AT_8, "volume": "store"},
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
        savepoint(HALF_PAST, created_at=NOW - 7200),
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
    RuleCase(
        "a savepoint that comes due during another one is not reported as skipped before that has ended",
        savepoint(HALF_PAST, taking(), created_at=NOW - 7200),
        observed(tasks={take(): Running(NOW - 3600)}),
        "Taking",
        status={"last_schedule_time": None},
    ),
    RuleCase(
        "a skipped savepoint does not hide the failure of the one before it",
        savepoint(
            HALF_PAST,
            ready(failure_reason="StoreUnavailable", last_schedule_time=NOW - 5400),
            created_at=NOW - 7200,
        ),
        observed(),
        "Ready",
        conditions={"Ready": ("False", "StoreUnavailable")},
        status={"last_schedule_time": NOW - 1800},
        events=["SavepointMissed"],
    ),
    RuleCase(
        "a schedule is ready while its next savepoint is taken",
        dataclasses.replace(BETWEEN, status=was_ready(folder=FOLDER)),
        observed(tasks={take(): Running(NOW - 9)}),
        "Taking",
        conditions={"Ready": ("True", "Taken")},
    ),
    RuleCase(
        "a schedule is not ready while its next savepoint waits",
        dataclasses.replace(
            BETWEEN, status=was_ready(folder=FOLDER, attempts=1, next_retry_time=NOW + 9)
        ),
        observed(),
        "Pending",
        conditions={"Ready": ("False", "BackingOff")},
    ),
    RuleCase(
        "a schedule that is removed keeps the savepoints that it has taken",
        savepoint(spec(history=1), aged(60, 9000), generation=2),
        observed(),
        "Ready",
        status={"taken": aged(60, 9000).taken},
    ),
    RuleCase(
        "a schedule that is removed and set again does not repeat its last savepoint",
        savepoint(status=SavepointStatus(last_schedule_time=TICK)),
        observed(),
        "Taking",
        ["RunTask"],
        status={"last_schedule_time": TICK},
    ),
)


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_warning_says_how_late_a_skipped_savepoint_is() -> None:
    outcome = decide(savepoint(HALF_PAST, created_at=NOW - 7200), observed())
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert event.warning
    assert "is 1800 s late" in event.message


def test_latest_scheduled_savepoint_comes_first() -> None:
    status = taking(last_schedule_time=TICK, taken=(completed("old"),))
    outcome = decide(savepoint(DAILY, status), observed(tasks={take(): Done(NOW, RESULT)}))
    assert [t.location for t in outcome.status.taken] == [RESULT.location, f"{FOLDER}/old"]


def test_invalid_schedule_is_rejected() -> None:
    with pytest.raises(SettingsInvalid):
        reconcile_savepoint(savepoint(spec(schedule=Schedule(cron="61 * * * *"))), observed(), NOW)
