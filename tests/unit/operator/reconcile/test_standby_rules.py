"""A standby that is not wanted, cannot take over, or is replaced: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import ExecutorSettings
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    NONE,
    READY,
    REQUESTED,
    RUN,
    STARTING,
    StandbyStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.actions import CreateDriver, EmitEvent, StopDriver
from sluicegate_operator.reconcile.observed import Node, Refusal
from sluicegate_operator.reconcile.streaming_job.failures import ACCESS
from tests.unit.operator.builders import (
    NOW,
    alive,
    dead,
    ended,
    failures,
    job,
    observed,
    pod,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide, event_reasons
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

FINITE = dataclasses.replace(WITH, trigger="Once")
WITH_EXECUTORS = dataclasses.replace(WITH, executor=ExecutorSettings(instances=2))
WITHOUT = dataclasses.replace(WITH, standby=0)
NO_DEADLINE = dataclasses.replace(WITH, progress_deadline_s=0.0)
UNSCHEDULABLE = "Unschedulable: 0/1"

TAKES_OVER = (
    RuleCase(
        "a promotion forgets the failures and the messages of standbys, and keeps their requests",
        job(
            WITH,
            status_of(standby=standby(STARTING, failures=3, message=UNSCHEDULABLE, requests=2)),
        ),
        observed(killed(), waiting()),
        "Running",
        ["PromoteStandby", "DeletePod"],
        status={"standby.state": NONE, "standby.failures": 0, "standby.message": ""},
        driver={"mode": RUN, "requests": 2},
        events=["DriverFailed", "Promoted"],
    ),
    RuleCase(
        "a standby that takes over may decide epochs, although its driver had applied all",
        job(WITH, status_of(ended, all_epochs_applied=True)),
        observed(dead(0, WITH), waiting()),
        "Running",
        ["PromoteStandby", "DeletePod"],
        status={"all_epochs_applied": False, "attempt": 2},
        events=["Promoted"],
    ),
    RuleCase(
        "a promoted pod that is being deleted is not promoted again",
        job(WITH, dataclasses.replace(alive(WITH), attempt=2, standby=standby(NONE))),
        observed(waiting(terminating=True)),
        "Running",
    ),
    RuleCase(
        "a driver that was replaced before its promotion was observed is not promoted any more",
        job(
            STATELESS,
            dataclasses.replace(ended(STATELESS), attempt=2, unconfirmed_attempts=(2,)),
        ),
        observed(
            waiting(spec_hash=STATELESS.running_hash(), node=Node(unresponsive_since=NOW - 90)),
            volume_ready=False,
        ),
        "Pending",
        ["StopDriver"],
    ),
    RuleCase(
        "a standby that is older than the driver does not take over: the status was lost",
        job(WITH, status_of()),
        observed(waiting(), dead(137, WITH, attempt=3)),
        "Restarting",
        ["StopDriver", "RemovePodFinalizer"],
        status={"attempt": 3, "standby.state": NONE},
        events=["Adopted", "DriverFailed"],
    ),
    RuleCase(
        "a new restartNonce starts a driver, as a standby has read the Secrets before",
        job(
            dataclasses.replace(WITH, restart_nonce=1),
            status_of(ended, failures=failures(ACCESS, 1), next_start_time=NOW + 40),
        ),
        observed(dead(64, WITH), waiting()),
        "Starting",
        ["CreateDriver", "DeletePod", "StopDriver"],
        status={"attempt": 3, "standby.state": NONE},
    ),
    RuleCase(
        "a job without a standby has none after a restart either",
        job(dataclasses.replace(WITHOUT, restart_nonce=1), ended(WITHOUT)),
        observed(),
        "Starting",
        ["CreateDriver"],
        status={"standby": None},
    ),
    RuleCase(
        "a deleted job stops its standby although it has no driver",
        job(WITH, status_of(ended), deleted=True),
        observed(waiting(), volume_ready=False),
        "Deleting",
        ["StopDriver"],
        status={"standby.state": NONE},
    ),
)

NO_PROMOTION = {
    "it was given up": (WITH, standby(NONE), waiting()),
    "its pod is gone": (WITH, standby(), None),
    "spec.standby is 0 now": (WITHOUT, standby(), waiting()),
    "it was started for another checkpoint": (WITH, standby(), waiting(checkpoint_number=2)),
}

ENDS = (
    RuleCase(
        "a standby whose pod is gone is replaced after a delay",
        job(WITH, status_of()),
        observed(driver()),
        "Running",
        status={
            "standby.state": NONE,
            "standby.next_start_time": NOW + 5,
            "standby.message": "its pod was removed",
        },
        events=["StandbyFailed"],
    ),
    RuleCase(
        "a standby whose pod was deleted says so",
        job(WITH, status_of()),
        observed(driver(), waiting(terminating=True)),
        "Running",
        status={"standby.message": "its pod was deleted or evicted"},
        events=["StandbyFailed"],
    ),
    RuleCase(
        "a standby that failed before its container ran counts, and says what its init container did",
        job(WITH, status_of(standby=standby(STARTING, start_time=None, failures=1))),
        observed(driver(), waiting(phase="Failed", running_at=None, init_failure="no volume")),
        "Running",
        ["DeletePod"],
        status={"standby.failures": 2, "standby.message": "no volume"},
        events=["StandbyFailed"],
    ),
    RuleCase(
        "ten minutes are long enough to forget earlier failures",
        job(WITH, status_of(standby=standby(failures=7, start_time=NOW - 600))),
        observed(driver(), waiting(terminating=True)),
        "Running",
        status={"standby.failures": 1},
        events=["StandbyFailed"],
    ),
    RuleCase(
        "a standby is replaced when progressDeadlineSeconds have passed",
        job(WITH, status_of(standby=standby(STARTING, start_time=NOW - 600))),
        observed(driver(), waiting(standby_ready=False)),
        "Running",
        ["StopDriver"],
        status={"standby.state": NONE},
        events=["StandbyFailed"],
    ),
    RuleCase(
        "a driver that the status lost, and that was the standby, is no failure of a standby",
        job(WITH, status_of()),
        observed(waiting(standby=False, promoted=True)),
        "Running",
        status={"attempt": 2, "standby.state": NONE, "standby.failures": 0},
        events=["Adopted"],
    ),
)

STAYS = (
    RuleCase(
        "the deadline of a standby that starts is not missed",
        job(WITH, status_of(standby=standby(STARTING, start_time=NOW - 500))),
        observed(driver(), waiting(standby_ready=False)),
        "Running",
        status={"standby.state": STARTING},
        requeue_in=100,
    ),
    RuleCase(
        "without a deadline a standby may start for as long as it needs",
        job(NO_DEADLINE, alive(NO_DEADLINE, standby=standby(STARTING, start_time=NOW - 9999))),
        observed(
            pod(NO_DEADLINE), waiting(standby_ready=False, spec_hash=NO_DEADLINE.running_hash())
        ),
        "Running",
        status={"standby.state": STARTING},
    ),
    RuleCase(
        "a standby that is ready has no deadline",
        job(WITH, status_of(standby=standby(start_time=NOW - 9999))),
        observed(driver(), waiting()),
        "Running",
        status={"standby.state": READY},
    ),
    RuleCase(
        "a standby on a node that responds stays",
        job(WITH, status_of()),
        observed(driver(), waiting(node=Node())),
        "Running",
        status={"standby.state": READY},
    ),
    RuleCase(
        "a standby that runs now no longer says why it waited",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", message=UNSCHEDULABLE))),
        observed(driver(), waiting()),
        "Running",
        status={"standby": standby(READY, start_time=NOW)},
    ),
    RuleCase(
        "a standby whose container is being created has a uid and a reason",
        job(WITH, status_of(standby=standby(REQUESTED, uid=""))),
        observed(driver(), waiting(running_at=None, phase="Pending", waiting="ContainerCreating")),
        "Running",
        status={"standby": standby(STARTING, start_time=None, message="ContainerCreating")},
    ),
)

REQUESTS = (
    RuleCase(
        "the next standby is requested when its delay is over, and nothing is left of the last one",
        job(WITH, status_of(standby=standby(NONE, start_time=NOW - 50, next_start_time=NOW))),
        observed(driver()),
        "Running",
        ["CreateDriver"],
        status={
            "standby": StandbyStatus(state=REQUESTED, attempt=3, request_time=NOW, requests=1),
        },
    ),
    RuleCase(
        "the next standby waits for its delay",
        job(WITH, status_of(standby=standby(NONE, next_start_time=NOW + 9))),
        observed(driver()),
        "Running",
        status={"standby.state": NONE},
        requeue_in=9,
    ),
    RuleCase(
        "no standby is requested while the pod of the driver is missing in the cache",
        job(WITH, alive(WITH)),
        observed(as_of=NOW - 101),
        "Starting",
        status={"standby": None},
    ),
    RuleCase(
        "no standby is requested while the volume is not ready",
        job(WITH, alive(WITH)),
        observed(driver(), volume_ready=False, volume_message="no answer"),
        "Running",
        status={"standby": None},
    ),
    RuleCase(
        "a request for a standby is repeated after five seconds",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=NOW - 5))),
        observed(driver()),
        "Running",
        ["CreateDriver"],
        status={"standby.requests": 2},
    ),
    RuleCase(
        "a request for a standby is not repeated earlier",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=NOW - 1))),
        observed(driver()),
        "Running",
        requeue_in=4,
    ),
    RuleCase(
        "a refusal of another attempt says nothing of the standby",
        job(WITH, status_of(standby=standby(REQUESTED, uid="", request_time=NOW - 1))),
        observed(driver(), refusal=Refusal(1, 1, "QuotaExceeded", "no memory left")),
        "Running",
        status={"standby.message": ""},
    ),
)


@pytest.mark.parametrize(
    "case", [*TAKES_OVER, *ENDS, *STAYS, *REQUESTS], ids=lambda case: case.rule
)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize("why", NO_PROMOTION)
def test_a_new_driver_is_started_instead_of_a_standby_if(why: str) -> None:
    wanted, known, found = NO_PROMOTION[why]
    pods = [killed()] if found is None else [killed(), found]
    outcome = decide(job(wanted, status_of(ended, standby=known)), observed(*pods))
    (created,) = [one for one in outcome.actions if isinstance(one, CreateDriver)]
    assert (created.attempt, created.standby) == (3, False)
    assert outcome.status.attempt == 3


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        (FINITE, alive(FINITE, last_schedule_time=NOW)),
        (WITH_EXECUTORS, alive(WITH_EXECUTORS)),
        (WITH, alive(WITH, mode=APPLY_ONLY)),
        (WITH, alive(WITH, stop_reason="Suspend")),
        (dataclasses.replace(WITH, suspend=True), ended(WITH)),
    ],
    ids=["finite", "executors", "applies epochs", "is stopped", "suspended"],
)
def test_a_standby_that_could_not_take_over_is_stopped(
    wanted: StreamingJobSpec, status: StreamingJobStatus
) -> None:
    hash_of = wanted.running_hash()
    first = pod(wanted, mode=status.driver.mode)
    pods = (first if status.driver.state == "Active" else killed(), waiting(spec_hash=hash_of))
    with_standby = dataclasses.replace(status, standby=standby())
    outcome = decide(job(wanted, with_standby), observed(*pods))
    stopped = [one.name for one in outcome.actions if isinstance(one, StopDriver)]
    assert "clicks-2-driver" in stopped
    assert outcome.status.standby.state == NONE


def test_no_standby_is_requested_for_a_spec_whose_upgrade_is_queued() -> None:
    outcome = decide(job(NEW, alive(WITH)), observed(driver(), upgrade_queued="two others"))
    assert outcome.status.standby is None


def test_a_standby_waits_while_a_driver_that_never_ran_is_replaced() -> None:
    status = status_of(stop_reason="Scheduling")
    never_ran = dataclasses.replace(status.driver, start_time=None)
    pending = pod(WITH, phase="Pending", running_at=None, progress=None)
    given = job(WITH, dataclasses.replace(status, driver=never_ran))
    assert decide(given, observed(pending, waiting())).status.standby.state == READY


def test_a_repeated_request_is_numbered() -> None:
    """A refusal is attributed to its request."""
    status = status_of(standby=standby(REQUESTED, uid="", request_time=NOW - 6))
    outcome = decide(job(WITH, status), observed(driver()))
    (created,) = [one for one in outcome.actions if isinstance(one, CreateDriver)]
    assert created.request == 2


@pytest.mark.parametrize(
    ("known", "refusal", "reason"),
    [
        (standby(), None, "StandbyFailed"),
        (
            standby(REQUESTED, uid="", request_time=NOW - 1),
            Refusal(2, 1, "QuotaExceeded", "no memory left"),
            "QuotaExceeded",
        ),
    ],
    ids=["ended", "refused"],
)
def test_trouble_with_a_standby_is_a_warning(
    known: StandbyStatus, refusal: Refusal | None, reason: str
) -> None:
    outcome = decide(job(WITH, status_of(standby=known)), observed(driver(), refusal=refusal))
    assert event_reasons(outcome) == [reason]
    assert all(one.warning for one in outcome.actions if isinstance(one, EmitEvent))
