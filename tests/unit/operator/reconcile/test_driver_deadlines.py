"""Boundaries of a driver's deadlines, and what the status and the Events say about them."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_settings import StartupSettings
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import Job, Node, Observed
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod, requested, spec
from tests.unit.operator.rule_cases import AnyOutcome, RuleCase, check, decide

STATELESS = spec(stateful=False)
SECOND_TO_SCHEDULE = spec(startup=StartupSettings(scheduling_timeout_s=1))
SECOND_TO_START = spec(startup=StartupSettings(start_timeout_s=1))
NO_START_DEADLINE = spec(startup=StartupSettings(start_timeout_s=0))
NEVER_RAN: dict[str, Any] = {"phase": "Pending", "running_at": None, "progress": None}

DEADLINES = (
    RuleCase(
        "an unscheduled pod may have a deadline of one second",
        job(SECOND_TO_SCHEDULE, requested(SECOND_TO_SCHEDULE)),
        observed(pod(SECOND_TO_SCHEDULE, **NEVER_RAN, seen_at=NOW - 1)),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Scheduling", "stop_time": NOW},
        events=["NotScheduled"],
    ),
    RuleCase(
        "a container that does not start may have a deadline of one second",
        job(SECOND_TO_START, requested(SECOND_TO_START)),
        observed(pod(SECOND_TO_START, **NEVER_RAN, node=Node(), seen_at=NOW - 1)),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Startup", "stop_time": NOW},
        events=["NotStarted"],
    ),
    RuleCase(
        "a start deadline of 0 means none",
        job(NO_START_DEADLINE, requested(NO_START_DEADLINE)),
        observed(pod(NO_START_DEADLINE, **NEVER_RAN, node=Node(), seen_at=NOW - 99999)),
        "Starting",
        driver={"stop_reason": ""},
        events=["ContainerCreating"],
    ),
    RuleCase(
        "the progress deadline counts by the operator's clock, not by that of the node",
        job(status=alive()),
        observed(pod(running_at=NOW - 9999, seen_running_at=NOW - 10, progress=None)),
        "Running",
        driver={"stop_reason": ""},
        requeue_in=590,
    ),
    RuleCase(
        "a driver on a lost node is replaced when the deadline is reached",
        job(STATELESS, alive(STATELESS)),
        observed(pod(STATELESS, node=Node(unresponsive_since=NOW - 60))),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"attempt": 2},
        events=["NodeLost"],
    ),
)


@pytest.mark.parametrize("case", DEADLINES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


STUCK = (job(status=alive()), observed(pod(running_at=NOW - 601, progress=None)))


def only_event(outcome: AnyOutcome) -> EmitEvent:
    """Return the only Event."""
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    return event


@pytest.mark.parametrize(
    ("reason", "given", "seen"),
    [
        ("Stuck", *STUCK),
        ("DriverFailed", job(status=alive()), observed(dead(1))),
        ("SettingsRefused", job(status=alive()), observed(dead(64))),
        (
            "NodeLost",
            job(STATELESS, alive(STATELESS)),
            observed(pod(STATELESS, node=Node(unresponsive_since=NOW - 61))),
        ),
        ("Adopted", job(status=StreamingJobStatus()), observed(pod())),
    ],
)
def test_an_event_that_somebody_should_read_is_a_warning(
    reason: str, given: Job, seen: Observed
) -> None:
    event = only_event(decide(given, seen))
    assert (event.reason, event.warning) == (reason, True)


def test_the_event_says_for_how_long_a_driver_has_made_no_progress() -> None:
    assert only_event(decide(*STUCK)).message.endswith("it has made no progress for 601 s")


def test_a_stateful_job_says_what_confirms_that_a_driver_on_a_lost_node_is_dead() -> None:
    seen = observed(pod(node=Node(unresponsive_since=NOW - 10)))
    conditions = decide(job(status=alive()), seen).status.conditions
    messages = {one.type: one.message for one in conditions}
    assert "node.kubernetes.io/out-of-service" in messages["NodeLost"]
    assert messages["Ready"] == messages["NodeLost"]
