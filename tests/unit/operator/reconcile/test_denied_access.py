"""A driver that was denied access, or lacks its target: retried, because somebody else may mend that."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.streaming_job_status import FailureStatus
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    ended,
    failures,
    job,
    observed,
    with_restart,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide

NO_RESTART = with_restart(restart="none")
DENIED = FailureStatus(kind="Access", time=NOW, run_s=100.0, volume_access="a/1")
READY_AGAIN = Condition(
    type="VolumeReady", status="True", reason="Ready", last_transition_time=NOW - 5
)

RULES = (
    RuleCase(
        "a denied access is retried after a minute, because somebody may grant it",
        job(NO_RESTART, alive(NO_RESTART)),
        observed(dead(64, NO_RESTART, message="AccessDenied: no"), volume_access="a/1"),
        "Restarting",
        ["RemovePodFinalizer"],
        {"failure_reason": "", "failures": (DENIED,)},
        events=["AccessDenied"],
        conditions={"Ready": ("False", "BackingOff"), "Failed": ("False", "NotFailed")},
    ),
    RuleCase(
        "so is a missing target",
        job(NO_RESTART, alive(NO_RESTART)),
        observed(dead(64, NO_RESTART, message="TargetMissing: no topic")),
        "Restarting",
        ["RemovePodFinalizer"],
        events=["TargetMissing"],
    ),
    RuleCase(
        "it is retried at once with other keys of the volume",
        job(status=ended(failures=(DENIED,), next_start_time=NOW + 3000)),
        observed(volume_access="a/2"),
        "Starting",
        ["CreateDriver"],
    ),
    RuleCase(
        "but not with the same keys",
        job(status=ended(failures=(DENIED,), next_start_time=NOW + 3000)),
        observed(volume_access="a/1"),
        "Restarting",
        requeue_in=3000,
    ),
    RuleCase(
        "it is retried at once when the volume has become ready again",
        job(
            status=ended(
                failures=(dataclasses.replace(DENIED, time=NOW - 60),),
                next_start_time=NOW + 3000,
                conditions=(READY_AGAIN,),
            )
        ),
        observed(volume_access="a/1"),
        "Starting",
        ["CreateDriver"],
    ),
)


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(("earlier", "delay_s"), [(0, 60), (3, 480), (20, 3600)])
def test_denied_access_is_retried_less_and_less_often(earlier: int, delay_s: float) -> None:
    denied = failures("Access", earlier)
    status = alive(failures=denied)
    outcome = decide(job(status=status), observed(dead(64, message="AccessDenied: no")))
    assert outcome.status.next_start_time - NOW == pytest.approx(delay_s, rel=0.2)
