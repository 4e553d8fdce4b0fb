"""Which time counts against the deadline of a rollback: not that in which no driver could be started."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.streaming_job_status import (
    REQUESTED,
    DriverStatus,
    StartupStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.observed import Node
from tests.unit.operator.builders import BACKOFF, NOW, dead, job, observed, pod
from tests.unit.operator.rollback_builders import NEW, NO_PROGRESS, terminated, trial
from tests.unit.operator.rule_cases import action_names, decide, event_reasons

LONG_AGO = NOW - 400
"""Longer ago than the deadline of these jobs (300 s)."""


def never_appeared(**changes: Any) -> StreamingJobStatus:
    """Return the status of a trial whose pod was requested 300 s ago, before the operator went down."""
    driver = DriverStatus(
        state=REQUESTED, request_time=NOW - 300, requests=1, spec_hash=NEW.running_hash()
    )
    return dataclasses.replace(trial(trial_start_time=LONG_AGO), driver=driver, **changes)


def test_a_driver_that_was_never_created_is_requested_again_and_has_the_whole_time() -> None:
    first = decide(job(NEW, never_appeared()), observed())
    assert first.status.rollback is None
    assert action_names(first) == ["CreateDriver"]
    assert first.status.trial_start_time == NOW
    later = decide(
        job(NEW, first.status), observed(pod(NEW, **NO_PROGRESS), as_of=NOW + 300), NOW + 300
    )
    assert event_reasons(later) == ["RolledBack", "Stopping"]


def test_a_driver_that_the_api_server_refuses_is_given_up() -> None:
    refused = StartupStatus(reason="PodInvalid", message="no", since=LONG_AGO, tries=1)
    outcome = decide(job(NEW, never_appeared(startup=refused)), observed())
    assert outcome.status.rollback is not None


def test_a_driver_that_ran_until_the_deadline_and_failed_is_given_up() -> None:
    status = trial(trial_start_time=LONG_AGO)
    driver = dataclasses.replace(status.driver, request_time=LONG_AGO)
    failed = observed(dead(1, NEW, **NO_PROGRESS))
    outcome = decide(job(NEW, dataclasses.replace(status, driver=driver)), failed)
    assert outcome.status.rollback is not None


def test_the_time_of_a_pause_does_not_count() -> None:
    """An operator that does nothing restarts no driver either."""
    resumed = Condition(
        type="Paused", status="False", reason="Resolved", last_transition_time=NOW - 100
    )
    status = trial(trial_start_time=LONG_AGO, conditions=(resumed,))
    outcome = decide(job(NEW, status), observed(pod(NEW, **NO_PROGRESS)))
    assert outcome.status.rollback is None
    assert outcome.requeue_at == NOW + 200


def test_no_other_condition_that_changes_delays_a_rollback() -> None:
    starting = Condition(
        type="Ready", status="False", reason="Starting", last_transition_time=NOW - 100
    )
    status = trial(trial_start_time=LONG_AGO, conditions=(starting,))
    outcome = decide(job(NEW, status), observed(pod(NEW, **NO_PROGRESS)))
    assert outcome.status.rollback is not None


def test_the_time_in_which_the_node_did_not_respond_does_not_count() -> None:
    """The driver goes on, and has the whole time."""
    lost = pod(NEW, node=Node(unresponsive_since=NOW - 300), **NO_PROGRESS)
    away = decide(job(NEW, trial(trial_start_time=LONG_AGO)), observed(lost))
    back = pod(NEW, node=Node(), **NO_PROGRESS)
    first = decide(job(NEW, away.status), observed(back), NOW + 60)
    assert first.status.rollback is None
    assert first.requeue_at == NOW + 360
    later = decide(job(NEW, first.status), observed(back), NOW + 360)
    assert event_reasons(later) == ["RolledBack", "Stopping"]


def test_the_time_does_not_begin_again_with_a_driver_that_is_being_stopped() -> None:
    """It begins with the driver after that, which has the whole time."""
    stopping = trial(trial_start_time=None, stop_reason="Suspend")
    outcome = decide(job(NEW, stopping), observed(pod(NEW, terminating=True, **NO_PROGRESS)))
    assert outcome.status.trial_start_time is None


def test_the_driver_after_one_on_a_lost_node_has_the_whole_time() -> None:
    lost = pod(NEW, node=Node(unresponsive_since=NOW - 300), **NO_PROGRESS)
    away = decide(job(NEW, trial(trial_start_time=LONG_AGO)), observed(lost))
    gone = pod(NEW, node=Node(gone=True), **NO_PROGRESS)
    ended = decide(job(NEW, away.status), observed(gone), NOW + 60)
    assert ended.status.rollback is None
    following = decide(job(NEW, ended.status), observed(as_of=NOW + 90), NOW + 90)
    assert action_names(following) == ["CreateDriver"]
    assert following.status.trial_start_time == NOW + 90


def test_the_time_in_which_no_driver_could_start_because_of_the_volume_does_not_count() -> None:
    failed = terminated(trial(trial_start_time=LONG_AGO, **BACKOFF))
    away = decide(job(NEW, failed), observed(volume_ready=False, volume_message="no answer"))
    assert away.status.rollback is None
    back = decide(job(NEW, away.status), observed(as_of=NOW + 60), NOW + 60)
    assert action_names(back) == ["CreateDriver"]
    assert back.status.rollback is None
    assert back.status.trial_start_time == NOW + 60
