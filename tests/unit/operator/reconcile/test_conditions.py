"""What the conditions of a job say."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.conditions import TRUE, Condition
from sluicegate_operator.api.streaming_job_status import StartupStatus, StreamingJobStatus
from sluicegate_operator.reconcile.observed import NAMESPACE_TERMINATING, Job, Node, Observed
from tests.unit.operator.builders import (
    NOW,
    alive,
    ended,
    failures,
    job,
    observed,
    pod,
    requested,
    spec,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.startup_builders import NEVER_RAN

STATELESS = spec(stateful=False)
LOST = Node(unresponsive_since=NOW - 10)
INVALID = "image is 3"
NO_IMAGE: dict[str, Any] = {**NEVER_RAN, "waiting": "ImagePullBackOff"}
NO_NAMESPACE = StartupStatus(reason=NAMESPACE_TERMINATING, message="", since=NOW - 9, tries=1)
FENCED = Condition(
    type="Fenced",
    status=TRUE,
    reason="Fenced",
    message="attempt 1: Fenced",
    last_transition_time=NOW - 9,
    observed_generation=1,
)
AFTER_FENCING = alive(attempt=2, failures=failures("Fenced", 1), conditions=(FENCED,))

READY = (
    RuleCase(
        "a job is not ready because its driver does not start",
        job(status=requested()),
        observed(pod(**NO_IMAGE)),
        "Starting",
        events=["ImagePullBackOff"],
        conditions={"Ready": ("False", "ImagePullBackOff")},
    ),
    RuleCase(
        "a driver that is being stopped no longer waits for its image",
        job(status=alive(stop_reason="Restart")),
        observed(pod(**NO_IMAGE, terminating=True)),
        "Stopping",
        events=["ImagePullBackOff"],
        conditions={"Ready": ("False", "Stopping")},
    ),
    RuleCase(
        "a job that is deleted with its namespace no longer waits for a driver",
        job(
            status=ended(phase="Deleting", startup=NO_NAMESPACE, all_epochs_applied=True),
            deleted=True,
        ),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
        conditions={"Ready": ("False", "Deleting")},
    ),
)

FENCING = (
    RuleCase(
        "a job that was fenced is shown as fenced until its next driver makes progress",
        job(status=AFTER_FENCING),
        observed(pod(attempt=2, progress=None)),
        "Running",
        conditions={"Fenced": ("True", "Fenced")},
    ),
    RuleCase(
        "progress of the next driver proves that nobody else uses the checkpoint",
        job(status=AFTER_FENCING),
        observed(pod(attempt=2)),
        "Running",
        conditions={"Fenced": ("False", "Resolved")},
    ),
)


@pytest.mark.parametrize("case", [*READY, *FENCING], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def conditions(wanted: Job, seen: Observed) -> dict[str, Condition]:
    """Return the conditions by their types."""
    return {one.type: one for one in decide(wanted, seen).status.conditions}


@pytest.mark.parametrize(("error", "generation"), [("", 2), (INVALID, 1)])
def test_the_observed_generation_is_that_of_the_newest_valid_spec(
    error: str, generation: int
) -> None:
    before = decide(job(status=alive()), observed(pod())).status
    after = decide(job(status=before, generation=2), observed(pod(), spec_error=error)).status
    assert (before.observed_generation, after.observed_generation) == (1, generation)


def test_an_invalid_spec_does_not_name_an_accepted_one_that_cannot_run_either() -> None:
    accepted: StreamingJobStatus = decide(job(status=ended()), observed()).status
    seen = observed(spec_error=INVALID, spec_missing=True)
    found = conditions(job(status=accepted, generation=2, deleted=True), seen)
    assert found["Accepted"].message == INVALID


def test_a_job_that_may_restart_has_no_error_in_its_condition_failed() -> None:
    status = alive(last_error="attempt 1: killed")
    failed = conditions(job(status=status), observed(pod()))["Failed"]
    assert (failed.status, failed.reason, failed.message) == ("False", "NotFailed", "")


def test_a_lost_node_is_reported_with_the_attempts_that_may_be_alive_on_it() -> None:
    status = alive(STATELESS, attempt=3, unconfirmed_attempts=(1, 2))
    others = [pod(STATELESS, attempt=n, node=LOST, terminating=True) for n in (1, 2)]

    def message(newest: Node) -> str:
        seen = observed(*others, pod(STATELESS, attempt=3, node=newest))
        return conditions(job(STATELESS, status), seen)["NodeLost"].message

    assert message(Node()) == "replaced, but may still be alive: attempt 1, 2"
    assert message(LOST).startswith("attempt 3 may be alive on a node that does not respond")
