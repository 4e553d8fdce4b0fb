"""Which reason of a driver that does not start is reported, and until when: one row for each rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_status import StartupStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import NAMESPACE_TERMINATING, Node
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    ended,
    failures,
    job,
    observed,
    pod,
    requested,
    spec,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.startup_builders import IMPATIENT, NEVER_RAN, QUOTA

REFUSED = StartupStatus(reason="QuotaExceeded", message=QUOTA.message, since=NOW - 9, tries=1)
NO_NAMESPACE = dataclasses.replace(REFUSED, reason=NAMESPACE_TERMINATING)
NO_SECRET: dict[str, Any] = {"waiting": "CreateContainerConfigError", "waiting_message": "no kafka"}
CONFIG_ERROR = StartupStatus(
    reason="CreateContainerConfigError", message="no kafka", since=NOW - 9, tries=1
)
SLOW = {**NEVER_RAN, "seen_at": NOW - 60}
SUSPENDED = spec(suspend=True)
TWICE = requested(startup=REFUSED)
TWICE = dataclasses.replace(TWICE, driver=dataclasses.replace(TWICE.driver, requests=2))

REPORTED = (
    RuleCase(
        "a driver that ran and failed was no try to start one",
        job(status=requested(failures=failures("Application", 2))),
        observed(refusal=QUOTA),
        "Starting",
        status={"startup.tries": 1},
        events=["QuotaExceeded"],
    ),
    RuleCase(
        "another reason is a new problem",
        job(status=requested(startup=REFUSED)),
        observed(pod(**NEVER_RAN, **NO_SECRET)),
        "Starting",
        status={"startup": dataclasses.replace(CONFIG_ERROR, since=NOW)},
        events=["CreateContainerConfigError"],
    ),
    RuleCase(
        "another try that is refused for the same reason is counted without an Event",
        job(status=TWICE),
        observed(refusal=dataclasses.replace(QUOTA, request=2)),
        "Starting",
        status={"startup": dataclasses.replace(REFUSED, tries=2)},
    ),
    RuleCase(
        "a kubelet that words the same reason differently each time causes no write",
        job(status=requested(startup=CONFIG_ERROR)),
        observed(pod(**NEVER_RAN, **{**NO_SECRET, "waiting_message": "no kafka, 3rd time"})),
        "Starting",
        status={"startup": CONFIG_ERROR},
    ),
    RuleCase(
        "the refusal of an earlier attempt says nothing about the newest",
        job(status=requested(attempt=2)),
        observed(refusal=QUOTA),
        "Starting",
        status={"startup": None},
    ),
    RuleCase(
        "a refusal is not reported again once no driver is wanted",
        job(SUSPENDED, ended()),
        observed(refusal=QUOTA),
        "Suspended",
        status={"startup": None},
    ),
    RuleCase(
        "what a kubelet reported before its node stopped responding is not reported",
        job(status=requested()),
        observed(pod(**{**NEVER_RAN, "node": Node(unresponsive_since=NOW - 5)}, **NO_SECRET)),
        "Starting",
        status={"startup": None},
    ),
    RuleCase(
        "a container that waits for an init container for a minute is reported",
        job(status=requested()),
        observed(pod(**SLOW, waiting="PodInitializing")),
        "Starting",
        status={"startup.reason": "PodInitializing"},
        events=["PodInitializing"],
    ),
    RuleCase(
        "a container of which nothing is known for a minute is still being created",
        job(status=requested()),
        observed(pod(**SLOW)),
        "Starting",
        status={"startup.reason": "ContainerCreating"},
        events=["ContainerCreating"],
    ),
)

DROPPED = (
    RuleCase(
        "a driver that runs ends the problem of the pods before it",
        job(status=alive(startup=CONFIG_ERROR, failures=failures("Startup", 1))),
        observed(pod()),
        "Running",
        status={"startup": None},
    ),
    RuleCase(
        "a suspended job starts no driver, so nothing prevents a start",
        job(SUSPENDED, requested(startup=REFUSED)),
        observed(as_of=NOW + 29),
        "Suspended",
        status={"startup": None},
    ),
    RuleCase(
        "neither does a job that has used up its budget",
        job(
            IMPATIENT,
            alive(
                IMPATIENT,
                stop_reason="Startup",
                startup=CONFIG_ERROR,
                failures=failures("Startup", 1),
            ),
        ),
        observed(dead(None, IMPATIENT, running_at=None)),
        "Failed",
        ["RemovePodFinalizer"],
        {"startup": None},
        events=["NotStarted"],
    ),
    RuleCase(
        "a pod that somebody removed does not say why the next one would not start",
        job(status=alive(startup=CONFIG_ERROR)),
        observed(),
        "Restarting",
        status={"startup": None},
        events=["Disrupted"],
    ),
    RuleCase(
        "a suspended job does not wait for a namespace that was being deleted",
        job(SUSPENDED, requested(startup=NO_NAMESPACE)),
        observed(as_of=NOW + 29),
        "Suspended",
        status={"startup": None},
    ),
    RuleCase(
        "a deleted job whose pod can no longer appear does not start one",
        job(status=requested(startup=REFUSED), deleted=True),
        observed(as_of=NOW + 29),
        "Deleting",
        ["RemoveFinalizer"],
        {"startup": None},
    ),
)


@pytest.mark.parametrize("case", [*REPORTED, *DROPPED], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_driver_that_does_not_start_is_a_warning() -> None:
    outcome = decide(job(status=requested()), observed(refusal=QUOTA))
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert event.warning


@pytest.mark.parametrize(
    ("waiting", "details"),
    [
        ({"waiting": "InvalidImageName"}, "InvalidImageName"),
        ({**SLOW, "waiting": "ContainerCreating"}, "its container was not created within 60 s"),
        ({**SLOW, "waiting_message": "no volume logs"}, "no volume logs within 60 s"),
    ],
    ids=["a reason without details", "slow without details", "slow with details"],
)
def test_message_says_what_a_container_waits_for(waiting: dict[str, Any], details: str) -> None:
    outcome = decide(job(status=requested()), observed(pod(**{**NEVER_RAN, **waiting})))
    assert outcome.status.startup.message.startswith(details)
