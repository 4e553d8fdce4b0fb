"""A rule of a reconciler as a table row, and the check of such a row."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate_operator.reconcile.actions import EmitEvent, RunTask
from sluicegate_operator.reconcile.checkpoint_volume import reconcile_volume
from sluicegate_operator.reconcile.context import Outcome
from sluicegate_operator.reconcile.observed import (
    Job,
    Observed,
    Savepoint,
    SavepointObserved,
    Volume,
    VolumeObserved,
)
from sluicegate_operator.reconcile.savepoint.reconciler import reconcile_savepoint
from sluicegate_operator.reconcile.streaming_job.reconciler import reconcile_job
from tests.unit.operator.builders import NOW

AnyOutcome = Outcome[Any, Any]

_RECONCILERS: dict[type[Any], Any] = {
    Job: reconcile_job,
    Volume: reconcile_volume,
    Savepoint: reconcile_savepoint,
}


@dataclass(frozen=True)
class RuleCase:
    """A rule: a resource, what is observed of it, and what the reconciler must decide.

    Args:
        rule: the claim.
        resource: as it was read.
        observed: of that resource.
        phase: of the new status.
        actions: names of the actions except events.
        status: fields of the new status, such as "checkpoint.number".
        driver: fields of the driver's status.
        events: reasons of the events.
        requeue_in: seconds until the next reconciliation; None: not asserted.
        conditions: type -> status and reason.
        tasks: the tasks that are started; empty: not asserted.
    """

    rule: str
    resource: Job | Volume | Savepoint
    observed: Observed | VolumeObserved | SavepointObserved
    phase: str
    actions: list[str] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    driver: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    requeue_in: float | None = None
    conditions: dict[str, tuple[str, str]] = field(default_factory=dict)
    tasks: list[Any] = field(default_factory=list)


def check(case: RuleCase) -> None:
    """Assert that the reconciler decides what the rule says."""
    outcome = decide(case.resource, case.observed)
    assert outcome.status.phase == case.phase
    assert action_names(outcome) == case.actions
    assert event_reasons(outcome) == case.events
    for name, value in case.status.items():
        jitter = 0.1 if name == "next_start_time" and value is not None else None
        found = operator.attrgetter(name)(outcome.status)
        assert found == (pytest.approx(value, abs=jitter) if jitter else value), name
    assert {name: getattr(outcome.status.driver, name) for name in case.driver} == case.driver
    assert {kind: condition(outcome, kind) for kind in case.conditions} == case.conditions
    if case.tasks:
        assert started_tasks(outcome) == case.tasks
    if case.requeue_in is not None:
        assert outcome.requeue_at is not None
        assert outcome.requeue_at - NOW == pytest.approx(case.requeue_in, abs=0.01)


def decide(
    resource: Job | Volume | Savepoint,
    observed: Observed | VolumeObserved | SavepointObserved,
    now: float = NOW,
) -> AnyOutcome:
    """Return what is decided, after asserting that a second reconciliation changes nothing."""
    reconcile = _RECONCILERS[type(resource)]
    outcome: AnyOutcome = reconcile(resource, observed, now)
    again = reconcile(dataclasses.replace(resource, status=outcome.status), observed, now)
    assert again.status == outcome.status, "not idempotent"
    assert not event_reasons(again), "repeats an event"
    return outcome


def action_names(outcome: AnyOutcome) -> list[str]:
    """Return the names of the actions except events."""
    return [type(one).__name__ for one in outcome.actions if not isinstance(one, EmitEvent)]


def event_reasons(outcome: AnyOutcome) -> list[str]:
    """Return the reasons of the events."""
    return [one.reason for one in outcome.actions if isinstance(one, EmitEvent)]


def started_tasks(outcome: AnyOutcome) -> list[Any]:
    """Return the tasks that are started."""
    return [one.task for one in outcome.actions if isinstance(one, RunTask)]


def condition(outcome: AnyOutcome, kind: str) -> tuple[str, str]:
    """Return a condition's status and reason."""
    found = next(one for one in outcome.status.conditions if one.type == kind)
    return found.status, found.reason
