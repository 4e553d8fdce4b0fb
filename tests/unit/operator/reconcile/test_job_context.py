"""What the steps of a job's reconciliation share: which spec is to run, and the texts of its status."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    REQUESTED,
    RUN,
    DriverStatus,
    StableSpecStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.streaming_job import context as module
from sluicegate_operator.reconcile.streaming_job.context import JobContext, short
from tests.unit.operator.builders import NOW, alive, job, observed
from tests.unit.operator.rollback_builders import NEW, STABLE, rolled_back, stable, trial

EDITED = dataclasses.replace(stable(), spec={**STABLE.seen_by_driver(), "image": "jobs:0"})
"""A stable spec that somebody has edited in the status: its digest is no longer that of its text."""


def context_of(status: StreamingJobStatus) -> JobContext:
    """Return the context of a job with a new spec."""
    return JobContext(status, 1, NOW, job=job(NEW, status), observed=observed())


@pytest.mark.parametrize(
    ("kept", "changes", "runs"),
    [
        (stable(), {}, NEW),
        (stable(), {"rollback": rolled_back()}, STABLE),
        (EDITED, {"rollback": rolled_back()}, NEW),
        (None, {"rollback": rolled_back()}, NEW),
    ],
    ids=["on trial", "rolled back", "rolled back to an edited spec", "rolled back to none"],
)
def test_the_last_stable_spec_runs_only_after_a_rollback_and_if_it_is_readable(
    kept: StableSpecStatus | None, changes: dict[str, Any], runs: StreamingJobSpec
) -> None:
    context = context_of(alive(last_stable_spec=kept, **changes))
    assert (context.spec, context.spec_hash) == (runs, runs.running_hash())


def test_the_stable_spec_is_parsed_once_until_there_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = []

    def counted(*given: Any) -> Any:
        parsed.append(given)
        return parse(*given)

    monkeypatch.setattr(module, "parse", counted)
    context = context_of(alive(last_stable_spec=stable()))
    assert [context.stable_spec() for _ in range(3)] == [STABLE] * 3
    assert len(parsed) == 1
    context.set(last_stable_spec=stable(NEW))
    assert [context.stable_spec() for _ in range(3)] == [NEW] * 3
    assert len(parsed) == 2


@pytest.mark.parametrize(
    ("mode", "before", "after"),
    [(RUN, None, NOW), (RUN, NOW - 60, NOW - 60), (APPLY_ONLY, None, None)],
    ids=["the first driver", "a later driver", "a driver that only applies"],
)
def test_the_trial_of_a_spec_counts_from_the_first_driver_that_runs_it(
    mode: str, before: float | None, after: float | None
) -> None:
    context = context_of(trial(trial_start_time=before))
    context.begin_attempt(3, DriverStatus(state=REQUESTED, mode=mode))
    assert context.status.trial_start_time == after


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 497 + "…"),
        ("ß" * 251, "ß" * 248 + "…"),
    ],
    ids=["as long as the limit", "longer", "with a character that would be cut"],
)
def test_a_message_has_at_most_500_bytes_and_ends_with_a_whole_character(
    text: str, shown: str
) -> None:
    assert short(text) == shown
