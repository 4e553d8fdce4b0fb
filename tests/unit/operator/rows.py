"""A rule of `reconcile` as a row, and how it is checked. Called by test_reconcile_*."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.reconcile.observed import Job, Observed
from sluicegate_operator.resources.job_status import FailureStatus

from .made import (
    NOW,
    acts,
    condition,
    decide,
    reports,
    spec,
)


@dataclass(frozen=True)
class Row:
    """A rule: what is there, and what follows.

    Args:
        acts: names of the actions, events left out.
        status: fields of the new status.
        driver: fields of its driver.
        reports: reasons of the events.
        wake: seconds from now to the next look; None: not asserted.
        conditions: kind -> status and reason.
    """

    rule: str
    job: Job
    seen: Observed
    phase: str
    acts: list[str] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    driver: dict[str, Any] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    wake: float | None = None
    conditions: dict[str, tuple[str, str]] = field(default_factory=dict)


def check(row: Row) -> None:
    outcome = decide(row.job, row.seen)
    assert outcome.status.phase == row.phase
    assert acts(outcome) == row.acts
    assert reports(outcome) == row.reports
    for name, value in row.status.items():
        jitter = 0.1 if name == "next_start_time" and value is not None else None
        found = getattr(outcome.status, name)
        assert found == (pytest.approx(value, abs=jitter) if jitter else value), name
    assert {name: getattr(outcome.status.driver, name) for name in row.driver} == row.driver
    assert {kind: condition(outcome, kind) for kind in row.conditions} == row.conditions
    if row.wake is not None:
        assert outcome.wake_at is not None
        assert outcome.wake_at - NOW == pytest.approx(row.wake, abs=0.01)


def strategy(**changes: Any) -> Any:
    return spec(restart=RestartSettings(restart_jitter=0.0, **changes))


def failures(kind: str, count: int) -> tuple[FailureStatus, ...]:
    return tuple(FailureStatus(kind=kind, at=NOW - 300 + i) for i in range(count))


BACKOFF = {"next_start_time": NOW + 1, "failed": ""}
