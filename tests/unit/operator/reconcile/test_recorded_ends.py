"""What the status records of a driver that has ended, vanished or was replaced: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.codec import API, parse
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import FailureStatus, StreamingJobStatus
from sluicegate_operator.reconcile.observed import Node, Pod
from tests.unit.operator.builders import (
    BACKOFF,
    NOW,
    alive,
    dead,
    failures,
    job,
    observed,
    pod,
    spec,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.scheduled_jobs import ONCE

SUSPENDED = spec(suspend=True)
STATELESS = spec(stateful=False)
UNRESPONSIVE = Node(unresponsive_since=NOW - 61)
EARLIER_ERROR = "attempt 1: exit code 1: no heap"


def never_seen_running(job_spec: StreamingJobSpec | None = None) -> StreamingJobStatus:
    """Return the status of a job whose driver was not observed to run, after one that ended well."""
    status = alive(job_spec, all_epochs_applied=True)
    return dataclasses.replace(status, driver=dataclasses.replace(status.driver, start_time=None))


VANISHED = (
    RuleCase(
        "how long a driver had run is known although its pod vanished",
        job(status=alive()),
        observed(),
        "Restarting",
        status={"failures": (FailureStatus(kind="Disrupted", time=NOW, run_s=100.0),)},
        events=["Disrupted"],
    ),
    RuleCase(
        "a driver whose pod vanished before it was seen running may have decided an epoch",
        job(status=never_seen_running()),
        observed(),
        "Restarting",
        status={
            **BACKOFF,
            "all_epochs_applied": False,
            "last_error": "attempt 1: its pod was removed",
        },
        events=["Disrupted"],
    ),
    RuleCase(
        "a driver that was stopped and whose pod vanished has not failed",
        job(SUSPENDED, alive(stop_reason="Suspend")),
        observed(),
        "Suspended",
        status={"last_error": ""},
        driver={"state": "Terminated"},
    ),
    RuleCase(
        "a stuck driver whose pod vanished is replaced after a delay",
        job(status=alive(stop_reason="Stuck")),
        observed(),
        "Restarting",
        status=BACKOFF,
        events=["Disrupted"],
    ),
    RuleCase(
        "so is a driver whose image is missing",
        job(status=alive(stop_reason="Image")),
        observed(),
        "Restarting",
        status=BACKOFF,
        events=["Disrupted"],
    ),
)

REPLACED = (
    RuleCase(
        "a driver replaced on a lost node before it was seen running may have decided an epoch",
        job(STATELESS, never_seen_running(STATELESS)),
        observed(
            pod(STATELESS, phase="Pending", running_at=None, progress=None, node=UNRESPONSIVE)
        ),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"all_epochs_applied": False},
        events=["NodeLost"],
    ),
    RuleCase(
        "each of several drivers replaced on lost nodes may be alive",
        job(STATELESS, alive(STATELESS, attempt=2, unconfirmed_attempts=(1,))),
        observed(
            pod(STATELESS, attempt=1, node=UNRESPONSIVE, terminating=True),
            pod(STATELESS, attempt=2, node=UNRESPONSIVE),
        ),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"attempt": 3, "unconfirmed_attempts": (1, 2)},
        events=["NodeLost"],
    ),
    RuleCase(
        "a replaced driver whose pod is gone is dead",
        job(STATELESS, alive(STATELESS, attempt=2, unconfirmed_attempts=(1,))),
        observed(pod(STATELESS, attempt=2)),
        "Running",
        status={"unconfirmed_attempts": ()},
    ),
)

ENDED = (
    RuleCase(
        "a sealed checkpoint has nothing to apply, so it does not delay the deletion of its job",
        job(status=alive(phase="Deleting"), deleted=True),
        observed(dead(65, message="Sealed: moved")),
        "Deleting",
        ["DeletePod"],
        {"all_epochs_applied": True},
        events=["Sealed"],
        conditions={"Ready": ("False", "Deleting")},
    ),
    RuleCase(
        "a driver that ends well leaves the error of the one that failed before",
        job(SUSPENDED, alive(stop_reason="Suspend", attempt=2, last_error=EARLIER_ERROR)),
        observed(dead(0, attempt=2, terminating=True)),
        "Suspended",
        ["RemovePodFinalizer"],
        {"last_error": EARLIER_ERROR},
    ),
    RuleCase(
        "a batch that is finished forgets the failures before",
        job(ONCE, alive(ONCE, failures=failures("Application", 2))),
        observed(dead(0, ONCE)),
        "Finished",
        ["RemovePodFinalizer"],
        {"failures": (), "finished": True},
        events=["Finished"],
    ),
    RuleCase(
        "a stopped driver proves nothing: if its suspension is withdrawn, earlier failures still count",
        job(status=alive(stop_reason="Suspend", failures=failures("Application", 2))),
        observed(dead(0, terminating=True)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"failures": failures("Application", 2)},
    ),
    RuleCase(
        "only the failure of a denied access depends on the Secrets of the volume",
        job(status=alive()),
        observed(dead(1), volume_access="a/1"),
        "Restarting",
        ["RemovePodFinalizer"],
        {"failures": (FailureStatus(kind="Application", time=NOW, run_s=100.0),)},
        events=["DriverFailed"],
    ),
)


@pytest.mark.parametrize("case", [*VANISHED, *REPLACED, *ENDED], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("status", "pods"),
    [
        (never_seen_running(), ()),
        (never_seen_running(), (dead(None, running_at=None, init_failure="no table"),)),
        (alive(), (dead(1, ended_at=NOW - 200),)),
    ],
    ids=["vanished", "failed init container", "clock of its node was set back"],
)
def test_a_driver_that_is_not_known_to_have_run_has_run_for_no_time(
    status: StreamingJobStatus, pods: tuple[Pod, ...]
) -> None:
    """A healthy run would reset the restart budget."""
    (failed,) = decide(job(status=status), observed(*pods)).status.failures
    assert failed.run_s == 0.0


def test_a_failure_is_counted_once_by_the_metrics() -> None:
    first = decide(job(status=alive()), observed(dead(1)))
    assert first.failures == ("Application",)
    assert decide(job(status=first.status), observed(dead(1))).failures == ()


def test_a_recorded_failure_is_read_as_it_was_written() -> None:
    """Otherwise each reconciliation would write it again."""
    jitter = spec(restart=RestartSettings(restart_jitter=0.5))
    status = decide(job(jitter, alive(jitter)), observed(dead(1, jitter))).status
    assert parse(StreamingJobStatus, API.render(status), "status") == status
