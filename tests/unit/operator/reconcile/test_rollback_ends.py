"""How a rollback completes, is switched off, or is impossible: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.streaming_job_settings import PodSettings
from sluicegate_operator.api.streaming_job_status import StableSpecStatus, UpgradeStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod, spec
from tests.unit.operator.rollback_builders import (
    NEW,
    NO_PROGRESS,
    OFF,
    ON,
    STABLE,
    rolled_back,
    stable,
    trial,
)
from tests.unit.operator.rule_cases import AnyOutcome, RuleCase, check, decide

EDITED = dataclasses.replace(stable(), spec_hash="x")
"""A last stable spec that somebody edited in the status."""

UPGRADING = {"rollback": None, "upgrade": UpgradeStatus(mode="LastState")}

COMPLETED = (
    RuleCase(
        "Stateless: the last stable spec returns to its checkpoint instead of an empty one",
        job(
            dataclasses.replace(NEW, upgrade_mode="Stateless"),
            trial(trial_start_time=NOW - 300, number=2, latest_checkpoint_number=2),
        ),
        observed(dead(1, NEW, checkpoint_number=2, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "upgrade": None},
        {"mode": "Run", "spec_hash": STABLE.running_hash()},
        ["DriverFailed", "RolledBack"],
    ),
    RuleCase(
        "that a failed spec has applied everything says nothing of the checkpoint before it",
        job(
            NEW,
            trial(
                number=2,
                latest_checkpoint_number=2,
                rollback=rolled_back(completed=False),
                stop_reason="Rollback",
            ),
        ),
        observed(dead(0, NEW, terminating=True, checkpoint_number=2, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"checkpoint.number": 1, "all_epochs_applied": False},
    ),
)

SWITCHED_OFF = (
    RuleCase(
        "switching rollback off ends a rollback: the job is upgraded to the spec of the resource",
        job(OFF, alive(STABLE, last_stable_spec=stable(), rollback=rolled_back())),
        observed(pod(STABLE)),
        "Upgrading",
        ["StopDriver"],
        {**UPGRADING, "last_stable_spec": None},
        events=["Upgrading"],
    ),
    RuleCase(
        "switching it off also ends a rollback whose last stable spec was removed from the status",
        job(OFF, alive(STABLE, rollback=rolled_back(completed=False), stop_reason="Rollback")),
        observed(pod(STABLE, terminating=True)),
        "Upgrading",
        status=UPGRADING,
        events=["Upgrading"],
    ),
)

IMPOSSIBLE = (
    RuleCase(
        "a rollback ends if its last stable spec was edited: the spec of the resource is tried again",
        job(NEW, alive(STABLE, last_stable_spec=EDITED, rollback=rolled_back())),
        observed(pod(STABLE, progress=None)),
        "Upgrading",
        ["StopDriver"],
        {**UPGRADING, "last_stable_spec": None},
        events=["NoRollback", "Upgrading"],
    ),
    RuleCase(
        "a rollback ends if its last stable spec was removed from the status",
        job(NEW, alive(STABLE, rollback=rolled_back())),
        observed(pod(STABLE, progress=None)),
        "Upgrading",
        ["StopDriver"],
        UPGRADING,
        events=["NoRollback", "Upgrading"],
    ),
    RuleCase(
        "a spec that nothing could replace is no longer on trial",
        job(NEW, trial(trial_start_time=NOW - 300, last_stable_spec=EDITED)),
        observed(pod(NEW, **NO_PROGRESS)),
        "Running",
        status={"last_stable_spec": None, "trial_start_time": None},
        events=["NoRollback"],
    ),
)


@pytest.mark.parametrize(
    "case", [*COMPLETED, *SWITCHED_OFF, *IMPOSSIBLE], ids=lambda case: case.rule
)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_warning_says_why_and_to_what_a_job_is_rolled_back() -> None:
    outcome = decide(job(NEW, trial(trial_start_time=NOW - 300)), observed(pod(NEW, **NO_PROGRESS)))
    event = _event(outcome, "RolledBack")
    assert event.warning
    for named in (NEW.running_hash(), "NoEpoch", STABLE.running_hash(), "checkpoint 1"):
        assert named in event.message


@pytest.mark.parametrize("size", [9_000, 70_000])
def test_a_warning_says_that_a_job_with_a_large_spec_cannot_be_rolled_back(size: int) -> None:
    """A spec of the larger size is not even kept as the accepted one."""
    large = spec(rollback=ON, driver=PodSettings(template={"x": "y" * size}))
    kept = decide(job(large, alive(large)), observed(pod(large))).status.last_stable_spec
    assert "too large" in _no_rollback_to(kept).message


def test_a_warning_says_that_an_edited_spec_cannot_be_rolled_back_to() -> None:
    assert "cannot be read" in _no_rollback_to(EDITED).message


def _no_rollback_to(last_stable_spec: StableSpecStatus) -> EmitEvent:
    """Return the warning about a trial that has failed."""
    status = trial(trial_start_time=NOW - 300, last_stable_spec=last_stable_spec)
    event = _event(decide(job(NEW, status), observed(pod(NEW, **NO_PROGRESS))), "NoRollback")
    assert event.warning
    return event


def _event(outcome: AnyOutcome, reason: str) -> EmitEvent:
    (event,) = [
        one for one in outcome.actions if isinstance(one, EmitEvent) and one.reason == reason
    ]
    return event
