"""End of a job's driver: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.observed import Node, Pod, Progress
from tests.unit.operator.builders import (
    BACKOFF,
    NOW,
    alive,
    dead,
    ended,
    failures,
    job,
    observed,
    pod,
    spec,
    with_restart,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide

OVERDUE_S = spec().termination_grace_period_s + 60
"""A driver that was deleted this long ago should have been killed."""

ENDING = (
    RuleCase(
        "a failed driver is replaced after the delay of the restart strategy",
        job(status=alive()),
        observed(dead(1, message="StageFailed: executor gone")),
        "Restarting",
        ["RemovePodFinalizer"],
        {**BACKOFF, "last_error": "attempt 1: exit code 1: StageFailed: executor gone"},
        {"state": "Terminated"},
        ["DriverFailed"],
        1,
    ),
    RuleCase(
        "the next attempt starts after the delay and the dead pod is deleted",
        job(status=ended(next_start_time=NOW - 1)),
        observed(dead(has_finalizer=False)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 2, "restarts": 1, "next_start_time": None},
    ),
    RuleCase(
        "exit code 75 is a failure like any other",
        job(status=alive()),
        observed(dead(75)),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["DriverFailed"],
    ),
    RuleCase(
        "exit code 64 is final because settings do not change by themselves",
        job(status=alive()),
        observed(dead(64, message="SettingsInvalid: no")),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "SettingsRefused", "failures": ()},
        events=["SettingsRefused"],
        conditions={"Failed": ("True", "SettingsRefused")},
    ),
    RuleCase(
        "exit code 66 is final because the history is broken",
        job(status=alive()),
        observed(dead(66)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "HistoryBroken"},
        events=["HistoryBroken"],
    ),
    RuleCase(
        "Fenced is reported and uses no budget",
        job(with_restart(restart="none"), alive(with_restart(restart="none"))),
        observed(dead(65, message="Fenced: another driver")),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["Fenced"],
        conditions={"Fenced": ("True", "Fenced")},
    ),
    RuleCase(
        "Sealed fails the job and uses no budget",
        job(status=alive()),
        observed(dead(65, message="Sealed: moved")),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "Sealed", "failures": ()},
        events=["Sealed"],
    ),
    RuleCase(
        "a stream that exits with 0 unexpectedly has failed",
        job(status=alive()),
        observed(dead(0)),
        "Restarting",
        ["RemovePodFinalizer"],
        {**BACKOFF, "all_epochs_applied": True},
        events=["UnexpectedExit"],
    ),
    RuleCase(
        "a pod that somebody deleted uses no budget",
        job(with_restart(restart="none"), alive(with_restart(restart="none"))),
        observed(dead(143, terminating=True)),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["Disrupted"],
    ),
    RuleCase(
        "an evicted driver uses no budget",
        job(with_restart(restart="none"), alive(with_restart(restart="none"))),
        observed(dead(137, disrupted=True)),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["Disrupted"],
    ),
    RuleCase(
        "the strategy None fails the job at the first failure",
        job(with_restart(restart="none"), alive(with_restart(restart="none"))),
        observed(dead(1)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "DriverFailed"},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a budget that is used up fails the job",
        job(
            with_restart(restart="fixed-delay", restart_attempts=2),
            alive(with_restart(), failures=failures("Application", 2)),
        ),
        observed(dead(1)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "DriverFailed"},
        events=["DriverFailed"],
    ),
    RuleCase(
        "other kinds of failures do not use the budget of the application",
        job(
            with_restart(restart="fixed-delay", restart_attempts=1),
            alive(with_restart(), failures=failures("Disrupted", 9) + failures("Fenced", 9)),
        ),
        observed(dead(1)),
        "Restarting",
        ["RemovePodFinalizer"],
        {"next_start_time": NOW + 10},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a long healthy run resets earlier failures",
        job(
            with_restart(restart="fixed-delay", restart_attempts=1),
            alive(with_restart(), failures=failures("Application", 1)),
        ),
        observed(dead(1, ended_at=NOW + 900)),
        "Restarting",
        ["RemovePodFinalizer"],
        {"failure_reason": ""},
        events=["DriverFailed"],
    ),
    RuleCase(
        "a failed job stays failed",
        job(status=ended(failure_reason="DriverFailed")),
        observed(dead(has_finalizer=False)),
        "Failed",
        status={"attempt": 1},
    ),
    RuleCase(
        "a pod that vanished from a stale cache is not given up",
        job(status=alive()),
        observed(as_of=NOW - 90),
        "Starting",
        driver={"state": "Active"},
    ),
    RuleCase(
        "a driver that does not end after its grace period is reported",
        job(status=alive(stop_reason="Suspend")),
        observed(
            pod(terminating=True, node=Node(), seen_terminating_at=NOW - OVERDUE_S),
        ),
        "Stopping",
        conditions={"Ready": ("False", "NotEnding")},
    ),
    RuleCase(
        "a driver that somebody else deleted and that does not end is not ready",
        job(status=alive()),
        observed(pod(terminating=True, node=Node(), seen_terminating_at=NOW - OVERDUE_S)),
        "Running",
        conditions={"Ready": ("False", "NotEnding")},
    ),
    RuleCase(
        "a driver has its grace period to end, and a minute",
        job(status=alive(stop_reason="Suspend")),
        observed(pod(terminating=True, node=Node(), seen_terminating_at=NOW - OVERDUE_S + 1)),
        "Stopping",
        conditions={"Ready": ("False", "Stopping")},
        requeue_in=1,
    ),
    RuleCase(
        "a driver that does not end because its node is silent is reported as such",
        job(status=alive(stop_reason="Suspend")),
        observed(
            pod(
                terminating=True,
                node=Node(unresponsive_since=NOW - 61),
                seen_terminating_at=NOW - OVERDUE_S,
            )
        ),
        "Stopping",
        conditions={"Ready": ("False", "NodeLost")},
    ),
    RuleCase(
        "a pod that vanished with its finalizer is replaced",
        job(status=alive()),
        observed(),
        "Restarting",
        [],
        BACKOFF,
        {"state": "Terminated"},
        ["Disrupted"],
    ),
)


@pytest.mark.parametrize("case", ENDING, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_the_same_failure_gives_the_same_delay_on_every_operator() -> None:
    """The job's uid and attempt seed the jitter, so repeating a reconciliation does not change it."""
    wanted = spec(restart=RestartSettings(restart_jitter=1.0))
    times = {
        decide(job(wanted, alive(wanted)), observed(dead(1, wanted))).status.next_start_time
        for _ in range(3)
    }
    assert len(times) == 1


def test_a_restart_after_a_failure_in_the_future_keeps_its_delay() -> None:
    """The failure was recorded before the clock was set back by two hours."""
    (failed,) = failures("Application", 1)
    later = dataclasses.replace(failed, time=NOW + 7200)
    before = ended(failures=(later,), next_start_time=NOW + 7200 + 30)
    after = decide(job(status=before), observed())
    assert after.status.next_start_time == NOW + 30 == after.requeue_at
    assert [one.time for one in after.status.failures] == [NOW]


def test_image_failures_are_dropped_after_a_driver_has_run() -> None:
    before = alive(failures=failures("Image", 3))
    after = decide(job(status=before), observed(dead(1))).status
    assert [f.kind for f in after.failures] == ["Application"]


@pytest.mark.parametrize("code", [1, 137, 143])
def test_only_a_driver_that_exits_with_0_has_applied_all_epochs(code: int) -> None:
    """A deletion that believes otherwise drops a decided epoch."""
    outcome = decide(
        job(status=alive(all_epochs_applied=True)), observed(dead(code, terminating=True))
    )
    assert not outcome.status.all_epochs_applied


def test_a_driver_lost_before_it_was_seen_running_may_have_decided_an_epoch() -> None:
    """Its kubelet may have lost the API server and not the store."""
    status = alive(all_epochs_applied=True)
    driver = dataclasses.replace(status.driver, start_time=None)
    lost = pod(phase="Pending", running_at=None, progress=None, node=Node(gone=True))
    outcome = decide(job(status=dataclasses.replace(status, driver=driver)), observed(lost))
    assert not outcome.status.all_epochs_applied


def never_seen_running() -> StreamingJobStatus:
    """Return the status of a job whose driver the operator has not seen running."""
    status = alive(all_epochs_applied=True)
    return dataclasses.replace(status, driver=dataclasses.replace(status.driver, start_time=None))


@pytest.mark.parametrize(
    "lost",
    [
        dead(137, running_at=None, progress=None),
        dead(None, running_at=None, progress=Progress(NOW - 60, 41)),
    ],
    ids=["an exit code without a start", "progress without a start"],
)
def test_a_driver_whose_start_is_unknown_may_have_decided_an_epoch(lost: Pod) -> None:
    """Its kubelet lost its container, and the operator was down while it ran."""
    outcome = decide(job(status=never_seen_running()), observed(lost))
    assert not outcome.status.all_epochs_applied


@pytest.mark.parametrize(
    "never_ran",
    [
        dead(None, running_at=None, progress=None, init_failure="init container x: exit code 1"),
        dead(None, running_at=None, progress=None, terminating=True),
    ],
    ids=["its init container failed", "its image was never pulled"],
)
def test_a_driver_that_never_ran_has_decided_nothing(never_ran: Pod) -> None:
    outcome = decide(job(status=never_seen_running()), observed(never_ran))
    assert outcome.status.all_epochs_applied
