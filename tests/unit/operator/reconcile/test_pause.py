"""What is done with a paused resource: it is reported once, and nothing else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeStatus
from sluicegate_operator.api.codec import parse, render
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.context import Outcome
from sluicegate_operator.reconcile.pause import PAUSED, reconcile_pause
from tests.unit.operator.builders import NOW, job, observed
from tests.unit.operator.rule_cases import action_names, condition, decide, event_reasons

STATUSES = (StreamingJobStatus(), CheckpointVolumeStatus(), SavepointStatus())


def reconcile(status: Any, *, paused: bool = True, **changes: Any) -> Outcome[Any, Any]:
    """Return what is done at NOW with a resource of generation 1 that nobody has deleted."""
    given = {"generation": 1, "now": NOW, "deleted": False, **changes}
    outcome = reconcile_pause(status, paused=paused, **given)
    assert outcome is not None
    assert not action_names(outcome)
    return outcome


@pytest.mark.parametrize("status", STATUSES, ids=lambda one: type(one).__name__)
def test_pause_changes_nothing_but_its_condition(status: Any) -> None:
    outcome = reconcile(status)
    assert condition(outcome, PAUSED) == ("True", "Annotated")
    assert dataclasses.replace(outcome.status, conditions=()) == status
    assert event_reasons(outcome) == ["Paused"]
    assert outcome.requeue_at is None


def test_pause_is_reported_once_although_the_spec_is_edited() -> None:
    first = reconcile(StreamingJobStatus())
    again = reconcile(first.status, now=NOW + 600)
    assert again.status == first.status
    edited = reconcile(first.status, generation=2)
    assert not event_reasons(again) + event_reasons(edited)


def test_deletion_of_a_paused_resource_waits_and_is_reported_once() -> None:
    paused = reconcile(StreamingJobStatus())
    deleted = reconcile(paused.status, deleted=True)
    assert condition(deleted, PAUSED) == ("True", "DeletionPaused")
    assert event_reasons(deleted) == ["Paused"]
    assert not event_reasons(reconcile(deleted.status, deleted=True))


def test_resource_is_reconciled_at_once_after_its_pause() -> None:
    paused = reconcile(StreamingJobStatus())
    resumed = reconcile(paused.status, paused=False)
    assert condition(resumed, PAUSED) == ("False", "Resolved")
    assert (event_reasons(resumed), resumed.requeue_at) == (["Resumed"], NOW)
    assert reconcile_pause(resumed.status, 1, NOW, paused=False, deleted=False) is None
    assert event_reasons(reconcile(resumed.status)) == ["Paused"]


def test_resource_that_is_not_paused_is_reconciled() -> None:
    status = decide(job(), observed()).status
    assert reconcile_pause(status, 1, NOW, paused=False, deleted=True) is None


def test_the_condition_is_the_same_after_the_api_server_has_stored_its_time() -> None:
    """Otherwise the operator would write it again."""
    written = reconcile(StreamingJobStatus(), now=NOW + 0.1234).status
    stored = json.loads(json.dumps(render(written)))
    assert parse(StreamingJobStatus, stored, "status") == written
