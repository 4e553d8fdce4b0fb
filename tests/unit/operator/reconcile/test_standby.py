"""The standby of a job: when there is one, when it takes over, and what its end costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_status import (
    NONE,
    READY,
    REQUESTED,
    STARTING,
)
from sluicegate_operator.reconcile.actions import CreateDriver, PromoteStandby
from sluicegate_operator.reconcile.observed import Job, Node, Observed, Pod, Refusal
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    ended,
    job,
    observed,
    pod,
    with_restart,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide
from tests.unit.operator.standby_builders import (
    NEW,
    STATELESS,
    WITH,
    driver,
    killed,
    standby,
    status_of,
    waiting,
)

SLOW = dataclasses.replace(
    WITH, restart=with_restart(restart="fixed-delay", restart_delay_s=140.0).restart
)


def lost(one: Pod, **changes: Any) -> Pod:
    return dataclasses.replace(one, node=Node(unresponsive_since=NOW - 30, **changes))


def stops_both(rule: str, given: Job, phase: str = "Stopping", event: str = "Stopping") -> RuleCase:
    """Return the case of a job whose driver and standby are stopped."""
    return RuleCase(
        rule,
        given,
        observed(driver(), waiting()),
        phase,
        ["StopDriver", "StopDriver"],
        status={"standby.state": NONE},
        events=[event],
    )


CASES = [
    RuleCase(
        "a standby is requested once the driver has reported progress",
        job(WITH, alive(WITH)),
        observed(driver()),
        "Running",
        ["CreateDriver"],
        status={"attempt": 1, "standby.state": REQUESTED, "standby.attempt": 2},
    ),
    RuleCase(
        "no standby is requested before the driver has reported progress",
        job(WITH, alive(WITH)),
        observed(pod(WITH, progress=None)),
        "Running",
        status={"standby": None},
    ),
    RuleCase(
        "a job without spec.standby has none",
        job(status=alive()),
        observed(pod()),
        "Running",
        status={"standby": None},
    ),
    RuleCase(
        "a standby that has started is not ready yet",
        job(WITH, status_of(standby=standby(REQUESTED))),
        observed(driver(), waiting(standby_ready=False)),
        "Running",
        status={"standby.state": STARTING, "attempt": 1},
    ),
    RuleCase(
        "a standby is ready when it says so, and nothing is done with it",
        job(WITH, status_of(standby=standby(STARTING))),
        observed(driver(), waiting()),
        "Running",
        status={"standby.state": READY, "attempt": 1},
    ),
    RuleCase(
        "a standby that waits for a node says why",
        job(WITH, status_of(standby=standby(REQUESTED))),
        observed(
            driver(),
            waiting(
                running_at=None, phase="Pending", waiting="Unschedulable", waiting_message="0/1"
            ),
        ),
        "Running",
        status={"standby.state": STARTING, "standby.message": "Unschedulable: 0/1"},
    ),
    RuleCase(
        "the standby takes over when the driver has died, without a delay that the driver outlived",
        job(WITH, status_of()),
        observed(killed(), waiting()),
        "Running",
        ["PromoteStandby", "DeletePod"],
        status={
            "attempt": 2,
            "restarts": 1,
            "standby.state": NONE,
            "all_epochs_applied": False,
            "next_start_time": None,
        },
        driver={"state": "Active", "uid": "u-2", "start_time": NOW},
        events=["DriverFailed", "Promoted"],
    ),
    RuleCase(
        "a standby that is not ready yet takes over too: it is ahead of a new pod",
        job(WITH, status_of(standby=standby(STARTING))),
        observed(killed(), waiting(standby_ready=False)),
        "Running",
        ["PromoteStandby", "DeletePod"],
        status={"attempt": 2},
        events=["DriverFailed", "Promoted"],
    ),
    RuleCase(
        "the restart delay counts from the start of the driver that failed",
        job(SLOW, status_of()),
        observed(killed(), waiting()),
        "Restarting",
        ["RemovePodFinalizer"],
        status={"attempt": 1, "next_start_time": NOW + 40, "standby.state": READY},
        driver={"state": "Terminated"},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a driver without a restart budget is not replaced by its standby",
        job(
            dataclasses.replace(WITH, restart=with_restart(restart="none").restart),
            status_of(),
        ),
        observed(killed(), waiting()),
        "Failed",
        ["RemovePodFinalizer", "StopDriver"],
        status={"attempt": 1, "standby.state": NONE},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a promotion is repeated until it is observed",
        job(WITH, dataclasses.replace(alive(WITH), attempt=2, standby=standby(NONE))),
        observed(waiting()),
        "Running",
        ["PromoteStandby"],
        driver={"uid": "u-2"},
    ),
    RuleCase(
        "a promoted driver that is being stopped is not promoted any more",
        job(
            dataclasses.replace(WITH, suspend=True),
            dataclasses.replace(
                alive(WITH, stop_reason="Suspend"), attempt=2, standby=standby(NONE)
            ),
        ),
        observed(waiting()),
        "Stopping",
        ["StopDriver"],
    ),
    RuleCase(
        "a standby whose container does not run is replaced by a new driver with a later number",
        job(WITH, status_of(ended, standby=standby(STARTING, start_time=None))),
        observed(dead(137, WITH), waiting(running_at=None, phase="Pending")),
        "Starting",
        ["CreateDriver", "DeletePod", "StopDriver"],
        status={"attempt": 3, "standby.state": NONE},
    ),
    RuleCase(
        "a standby whose node does not respond does not take over",
        job(WITH, status_of(ended)),
        observed(dead(137, WITH), lost(waiting())),
        "Starting",
        ["CreateDriver", "DeletePod", "StopDriver"],
        status={"attempt": 3},
    ),
    RuleCase(
        "a standby of a stateful job waits while the driver may be alive on a lost node",
        job(WITH, status_of()),
        observed(lost(driver()), waiting()),
        "Running",
        status={"attempt": 1, "standby.state": READY},
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    RuleCase(
        "a standby of a stateless job takes over from a driver on a lost node after the deadline",
        job(STATELESS, alive(STATELESS, standby=standby())),
        observed(
            dataclasses.replace(pod(STATELESS), node=Node(unresponsive_since=NOW - 90)),
            dataclasses.replace(waiting(), spec_hash=STATELESS.running_hash()),
        ),
        "Running",
        ["PromoteStandby", "StopDriver"],
        status={"attempt": 2, "unconfirmed_attempts": (1,)},
        events=["NodeLost", "Promoted"],
    ),
    RuleCase(
        "a standby that ended costs the job nothing, and the next one has its own delay",
        job(WITH, status_of(standby=standby(failures=1))),
        observed(driver(), waiting(phase="Failed", exit_code=1, message="no heap")),
        "Running",
        ["DeletePod"],
        status={
            "attempt": 1,
            "restarts": 0,
            "failures": (),
            "standby.state": NONE,
            "standby.failures": 2,
            "standby.next_start_time": NOW + 10,
            "standby.message": "exit code 1: no heap",
        },
        events=["StandbyFailed"],
    ),
    RuleCase(
        "a standby that ran for long forgets the failures of those before it",
        job(WITH, status_of(standby=standby(failures=7, start_time=NOW - 3600))),
        observed(driver(), waiting(terminating=True)),
        "Running",
        status={"standby.failures": 1, "standby.next_start_time": NOW + 5},
        events=["StandbyFailed"],
    ),
    RuleCase(
        "a standby that does not become ready is replaced",
        job(WITH, status_of(standby=standby(STARTING, start_time=NOW - 601))),
        observed(driver(), waiting(standby_ready=False)),
        "Running",
        ["StopDriver"],
        status={"standby.state": NONE, "standby.failures": 1},
        events=["StandbyFailed"],
    ),
    RuleCase(
        "the next standby has a number that no pod has had",
        job(
            WITH,
            status_of(standby=standby(NONE, failures=1, next_start_time=NOW - 1)),
        ),
        observed(driver()),
        "Running",
        ["CreateDriver"],
        status={"standby.attempt": 3, "standby.failures": 1},
    ),
    RuleCase(
        "a request for a standby is repeated if no pod appears",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=NOW - 6))),
        observed(driver()),
        "Running",
        ["CreateDriver"],
        status={"standby.attempt": 2, "standby.requests": 2, "standby.request_time": NOW},
        requeue_in=10,
    ),
    RuleCase(
        "a request for a standby without a time in the status counts as one of now",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=None))),
        observed(driver()),
        "Running",
        status={"standby.request_time": NOW, "standby.requests": 1},
        requeue_in=5,
    ),
    RuleCase(
        "a standby that a quota refuses is reported, and the job is not affected",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=NOW - 1))),
        observed(driver(), refusal=Refusal(2, 1, "QuotaExceeded", "no memory left")),
        "Running",
        status={"standby.message": "QuotaExceeded: no memory left", "startup": None},
        events=["QuotaExceeded"],
    ),
    stops_both(
        "an edited spec stops the standby together with the driver",
        job(NEW, status_of()),
        "Upgrading",
        event="Upgrading",
    ),
    RuleCase(
        "a standby of another checkpoint is replaced",
        job(WITH, status_of(number=2)),
        observed(pod(WITH, checkpoint_number=2), waiting()),
        "Running",
        ["CreateDriver", "StopDriver"],
        status={"standby.state": REQUESTED, "standby.attempt": 3},
    ),
    stops_both(
        "a suspended job stops its standby too",
        job(dataclasses.replace(WITH, suspend=True), status_of()),
    ),
    stops_both(
        "a new restartNonce stops the standby too: it has read its Secrets",
        job(dataclasses.replace(WITH, restart_nonce=1), status_of()),
    ),
    RuleCase(
        "a new restartNonce of a job without a driver starts a new one: the standby has old Secrets",
        job(dataclasses.replace(WITH, restart_nonce=1), status_of(ended)),
        observed(dead(137, WITH), waiting()),
        "Starting",
        ["CreateDriver", "DeletePod", "StopDriver"],
        status={"attempt": 3, "observed_restart_nonce": 1, "standby.state": NONE},
    ),
    stops_both(
        "a deleted job stops its standby too", job(WITH, status_of(), deleted=True), "Deleting"
    ),
    RuleCase(
        "spec.standby 0 stops the standby and leaves the driver alone",
        job(dataclasses.replace(WITH, standby=0), status_of()),
        observed(driver(), waiting()),
        "Running",
        ["StopDriver"],
        status={"standby.state": NONE, "attempt": 1},
    ),
    RuleCase(
        "a standby that the status does not know is stopped, not adopted",
        job(WITH, alive(WITH, standby=standby(NONE, next_start_time=NOW + 9))),
        observed(driver(), waiting(attempt=4)),
        "Running",
        ["StopDriver"],
        status={"attempt": 1},
    ),
    RuleCase(
        "a standby has the Secrets of a driver that was denied access, so a new driver is started",
        job(WITH, status_of()),
        observed(
            dead(64, WITH, running_at=NOW - 7200, message="AccessDenied: password"), waiting()
        ),
        "Restarting",
        ["RemovePodFinalizer"],
        status={"attempt": 1},
        events=["AccessDenied"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_standby_that_was_promoted_after_a_long_wait_is_not_stuck() -> None:
    """Its progress deadline begins with its promotion."""
    outcome = decide(job(WITH, status_of()), observed(killed(), waiting(running_at=NOW - 9999)))
    goes_on = waiting(running_at=NOW - 9999, standby=False, promoted=True)
    later = decide(job(WITH, outcome.status), _at(NOW + 5, goes_on), NOW + 5)
    assert later.status.driver.stop_reason == ""
    assert later.status.phase == "Running"


def test_a_standby_runs_the_spec_and_the_checkpoint_of_its_driver() -> None:
    outcome = decide(job(WITH, alive(WITH, number=3)), observed(pod(WITH, checkpoint_number=3)))
    (action,) = outcome.actions
    assert action == CreateDriver(2, "Run", WITH.running_hash(), 3, "", WITH, 1, standby=True)


def test_a_promotion_names_the_pod_that_was_observed() -> None:
    outcome = decide(job(WITH, status_of()), observed(killed(), waiting()))
    assert PromoteStandby("clicks-2-driver", "u-2") in outcome.actions


def _at(now: float, *pods: Pod) -> Observed:
    return Observed(pods=pods, as_of=now)
