"""Why a driver does not start: reported in the status, with one Event for each reason, and retried."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.streaming_job_status import StartupStatus, StreamingJobStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import NAMESPACE_TERMINATING, Refusal
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    failures,
    job,
    observed,
    pod,
    requested,
    spec,
    with_restart,
)
from tests.unit.operator.rule_cases import (
    RuleCase,
    action_names,
    check,
    condition,
    decide,
    event_reasons,
)
from tests.unit.operator.startup_builders import IMPATIENT, NEVER_RAN, QUOTA

REFUSED = StartupStatus(reason="QuotaExceeded", message=QUOTA.message, since=NOW - 1, tries=1)
NO_NAMESPACE = dataclasses.replace(REFUSED, reason=NAMESPACE_TERMINATING)
NO_SECRET: dict[str, Any] = {
    "waiting": "CreateContainerConfigError",
    "waiting_message": 'secret "kafka" not found',
}
CONFIG_ERROR = StartupStatus(
    reason="CreateContainerConfigError", message='secret "kafka" not found', since=NOW - 60
)


def refused_often(
    requests: int, seconds_ago: float, mode: str = "Run", **changes: Any
) -> StreamingJobStatus:
    """Return the status of a job whose pod was refused several times, last so many seconds ago."""
    before = requested(startup=dataclasses.replace(REFUSED, tries=requests), **changes)
    driver = dataclasses.replace(
        before.driver, requests=requests, request_time=NOW - seconds_ago, mode=mode
    )
    return dataclasses.replace(before, driver=driver)


RULES = (
    RuleCase(
        "a refused pod is reported with its reason",
        job(status=requested()),
        observed(refusal=QUOTA),
        "Starting",
        status={"startup": dataclasses.replace(REFUSED, since=NOW)},
        events=["QuotaExceeded"],
        conditions={"Ready": ("False", "QuotaExceeded")},
        requeue_in=4,
    ),
    RuleCase(
        "a second refusal for the same reason is counted without an Event",
        job(status=refused_often(2, 1)),
        observed(refusal=dataclasses.replace(QUOTA, request=2)),
        "Starting",
        status={"startup.tries": 2, "startup.since": NOW - 1},
        requeue_in=9,
    ),
    RuleCase(
        "the refusal of an earlier request says nothing about the latest",
        job(status=refused_often(2, 1)),
        observed(refusal=QUOTA),
        "Starting",
        status={"startup.tries": 2},
    ),
    RuleCase(
        "the delay between requests doubles",
        job(status=refused_often(4, 39)),
        observed(),
        "Starting",
        requeue_in=1,
    ),
    RuleCase(
        "the delay between requests ends",
        job(status=refused_often(4, 40)),
        observed(),
        "Starting",
        ["CreateDriver"],
        driver={"requests": 5},
        requeue_in=80,
    ),
    RuleCase(
        "the delay between requests is at most five minutes",
        job(status=refused_often(40, 300)),
        observed(),
        "Starting",
        ["CreateDriver"],
        requeue_in=300,
    ),
    RuleCase(
        "a changed spec is tried at once",
        job(spec(image="jobs:2"), refused_often(20, 6)),
        observed(),
        "Starting",
        ["CreateDriver"],
        driver={"spec_hash": spec(image="jobs:2").running_hash()},
    ),
    RuleCase(
        "the reason is dropped when the pod exists",
        job(status=refused_often(3, 20)),
        observed(pod(**NEVER_RAN)),
        "Starting",
        status={"startup": None},
        conditions={"Ready": ("False", "Starting")},
    ),
    RuleCase(
        "the reason of the kubelet is reported",
        job(status=requested()),
        observed(pod(**NEVER_RAN, **NO_SECRET)),
        "Starting",
        status={"startup.reason": "CreateContainerConfigError"},
        events=["CreateContainerConfigError"],
        conditions={"Ready": ("False", "CreateContainerConfigError")},
    ),
    RuleCase(
        "a pod without a node is reported with the message of the scheduler",
        job(status=requested()),
        observed(
            pod(**{**NEVER_RAN, "node": None}, waiting="Unschedulable", waiting_message="0/3 nodes")
        ),
        "Starting",
        status={"startup.reason": "Unschedulable", "startup.message": "0/3 nodes"},
        events=["Unschedulable"],
    ),
    RuleCase(
        "a kubelet that alternates between two reasons for an image is reported once",
        job(status=requested(startup=dataclasses.replace(REFUSED, reason="ImagePullBackOff"))),
        observed(pod(**NEVER_RAN, waiting="ErrImagePull", waiting_message="not found")),
        "Starting",
        status={"startup.reason": "ImagePullBackOff", "startup.since": NOW - 1},
    ),
    RuleCase(
        "a container that is being created is normal for a minute",
        job(status=requested()),
        observed(pod(**NEVER_RAN, waiting="ContainerCreating")),
        "Starting",
        status={"startup": None},
        requeue_in=30,
    ),
    RuleCase(
        "after that it is reported, because a volume may not be mounted",
        job(status=requested()),
        observed(pod(**{**NEVER_RAN, "seen_at": NOW - 60}, waiting="ContainerCreating")),
        "Starting",
        status={"startup.reason": "ContainerCreating"},
        events=["ContainerCreating"],
    ),
    RuleCase(
        "the minute counts from when the pod was scheduled",
        job(status=requested()),
        observed(
            pod(
                **{**NEVER_RAN, "seen_at": NOW - 6000, "scheduled_at": NOW - 10},
                waiting="ContainerCreating",
            )
        ),
        "Starting",
        status={"startup": None},
        requeue_in=50,
    ),
    RuleCase(
        "a pod whose container does not start in time is stopped",
        job(IMPATIENT, requested(IMPATIENT, startup=CONFIG_ERROR)),
        observed(pod(IMPATIENT, **{**NEVER_RAN, "seen_at": NOW - 100}, **NO_SECRET)),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Startup"},
        events=["NotStarted"],
    ),
    RuleCase(
        "which uses a budget of its own",
        job(
            with_restart(restart="none"),
            alive(stop_reason="Startup", startup=CONFIG_ERROR),
        ),
        observed(dead(None, running_at=None)),
        "Restarting",
        ["RemovePodFinalizer"],
        {"startup": CONFIG_ERROR, "failure_reason": ""},
        events=["NotStarted"],
    ),
    RuleCase(
        "that can be used up",
        job(IMPATIENT, alive(IMPATIENT, stop_reason="Startup", failures=failures("Startup", 1))),
        observed(dead(None, IMPATIENT, running_at=None)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "NotStarted"},
        events=["NotStarted"],
    ),
    RuleCase(
        "a failed init container is a failure of the application",
        job(with_restart(restart="none"), alive(with_restart(restart="none"))),
        observed(
            dead(
                None, running_at=None, init_failure="init container migrate: exit code 3: no table"
            )
        ),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "InitContainerFailed"},
        events=["InitContainerFailed"],
    ),
    RuleCase(
        "an evicted pod is disrupted, although its init container was killed",
        job(with_restart(restart="none"), alive(with_restart(restart="none"))),
        observed(dead(None, running_at=None, init_failure="init container x: 137", disrupted=True)),
        "Restarting",
        ["RemovePodFinalizer"],
        events=["Disrupted"],
    ),
    RuleCase(
        "a driver that runs has started",
        job(status=alive(startup=CONFIG_ERROR)),
        observed(pod()),
        "Running",
        status={"startup": None},
    ),
    RuleCase(
        "a job that is deleted while its apply-only driver is refused says so",
        job(status=refused_often(2, 1, "ApplyOnly", phase="Deleting"), deleted=True),
        observed(refusal=dataclasses.replace(QUOTA, request=2)),
        "Deleting",
        status={"startup.reason": "QuotaExceeded"},
    ),
)


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_reason_of_earlier_pods_lasts_until_a_driver_runs() -> None:
    """Otherwise each attempt would report the same missing Secret with another Event."""
    status = requested(startup=CONFIG_ERROR, failures=failures("Startup", 1))
    first = decide(job(status=status), observed(pod(**NEVER_RAN, waiting="ContainerCreating")))
    assert first.status.startup == CONFIG_ERROR
    second = decide(job(status=first.status), observed(pod(**NEVER_RAN, **NO_SECRET)))
    assert second.status.startup.tries == 2
    assert not event_reasons(second)


@pytest.mark.parametrize("on_cancel", ["retain", "delete"])
def test_job_in_a_namespace_that_is_being_deleted_is_released_without_its_last_epoch(
    on_cancel: str,
) -> None:
    """No pod can be created there any more, so waiting for an apply-only driver would never end.

    The epoch stays in the checkpoint, as the Event says.
    """
    wanted = spec(epochs=EpochSettings(on_cancel=on_cancel))
    status = requested(wanted, all_epochs_applied=False, phase="Deleting")
    status = dataclasses.replace(
        status, driver=dataclasses.replace(status.driver, mode="ApplyOnly")
    )
    refusal = Refusal(1, 1, NAMESPACE_TERMINATING, "because it is being terminated")
    outcome = decide(job(wanted, status, deleted=True), observed(refusal=refusal))
    assert action_names(outcome) == ["RemoveFinalizer"]
    assert event_reasons(outcome) == [NAMESPACE_TERMINATING, "ApplySkipped"]
    again = decide(job(wanted, outcome.status, deleted=True), observed(), NOW + 600)
    assert action_names(again) == ["RemoveFinalizer"]


@pytest.mark.parametrize(
    ("applied", "skipped", "warnings"),
    [(False, False, ["ApplySkipped"]), (True, False, []), (False, True, ["ApplySkipped"])],
    ids=["an epoch is left", "nothing is left", "a person skips it"],
)
def test_a_warning_says_that_such_a_job_left_an_epoch(
    *, applied: bool, skipped: bool, warnings: list[str]
) -> None:
    status = requested(all_epochs_applied=applied, phase="Deleting")
    refusal = Refusal(1, 1, NAMESPACE_TERMINATING, "because it is being terminated")
    given = job(status=status, deleted=True, skip_apply=skipped)
    actions = decide(given, observed(refusal=refusal)).actions
    events = [one for one in actions if isinstance(one, EmitEvent) and one.warning]
    assert [one.reason for one in events] == [NAMESPACE_TERMINATING, *warnings]


def test_the_warning_about_a_job_that_nobody_annotated_names_the_namespace_as_the_cause() -> None:
    status = requested(phase="Deleting", startup=NO_NAMESPACE, all_epochs_applied=False)
    outcome = decide(job(status=status, deleted=True), observed())
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert event.message.startswith("the namespace is being deleted")


def test_a_pod_that_was_created_before_its_namespace_was_deleted_is_stopped() -> None:
    """The request that was refused was a repeated one."""
    status = requested(phase="Deleting", startup=NO_NAMESPACE, failures=failures("Startup", 1))
    outcome = decide(job(status=status, deleted=True), observed(pod(**NEVER_RAN)))
    assert outcome.status.driver.stop_reason == "Delete"
    assert action_names(outcome) == ["StopDriver"]


def test_job_that_is_not_deleted_keeps_trying_in_such_a_namespace() -> None:
    refusal = Refusal(1, 1, NAMESPACE_TERMINATING, "because it is being terminated")
    outcome = decide(job(status=requested()), observed(refusal=refusal))
    assert condition(outcome, "Ready") == ("False", NAMESPACE_TERMINATING)
    assert not action_names(outcome)


def test_pod_that_did_not_start_is_tried_again_after_five_seconds() -> None:
    outcome = decide(
        job(status=alive(stop_reason="Startup")), observed(dead(None, running_at=None))
    )
    assert outcome.status.next_start_time - NOW == pytest.approx(5, rel=0.2)
