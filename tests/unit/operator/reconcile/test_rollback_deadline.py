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
from tests.unit.operator.builders import NOW, job, observed, pod
from tests.unit.operator.rollback_builders import NEW, NO_PROGRESS, trial
from tests.unit.operator.rule_cases import action_names, decide, event_reasons

LONG_AGO = NOW - 400
"""Longer ago than the deadline of these jobs (300 s)."""


def never_appeared(**changes: Any) -> StreamingJobStatus:
    """Return the status of a trial whose pod was requested just before the operator went down."""
    driver = DriverStatus(
        state=REQUESTED, request_time=LONG_AGO, requests=1, spec_hash=NEW.running_hash()
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


def test_the_time_of_a_pause_does_not_count() -> None:
    """An operator that does nothing restarts no driver either."""
    resumed = Condition(
        type="Paused", status="False", reason="Resolved", last_transition_time=NOW - 100
    )
    status = trial(trial_start_time=LONG_AGO, conditions=(resumed,))
    outcome = decide(job(NEW, status), observed(pod(NEW, **NO_PROGRESS)))
    assert outcome.status.rollback is None
    assert outcome.requeue_at == NOW + 200
