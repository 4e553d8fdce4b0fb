"""What the steps of a reconciliation share: conditions, and the refusal of a spec."""

from __future__ import annotations

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.context import Outcome, ReconcileContext, reject_spec
from tests.unit.operator.builders import NOW


def refused(
    status: SavepointStatus, what: str, now: float = NOW
) -> Outcome[SavepointStatus, EmitEvent]:
    """Return the outcome for a spec that is refused."""
    return reject_spec(
        status, 2, SettingsInvalid(what, data="none is written", do="correct it"), now
    )


def accepted(status: SavepointStatus) -> Condition:
    """Return the only condition, which says whether the spec is accepted."""
    (found,) = status.conditions
    assert found.type == "Accepted"
    return found


def test_a_refused_spec_is_reported_by_an_event_if_that_is_new_or_has_changed() -> None:
    first = refused(SavepointStatus(), "image is 3")
    assert first.actions == (EmitEvent("SpecInvalid", "image is 3; correct it", warning=True),)
    again = refused(first.status, "image is 3", NOW + 60)
    assert (again.status, again.actions) == (first.status, ())
    other = refused(first.status, "image is 4", NOW + 60)
    assert [one.message for one in other.actions] == ["image is 4; correct it"]


def test_the_time_of_a_refusal_has_milliseconds_like_the_stored_one() -> None:
    """Otherwise the status that is read would differ from the one that was written."""
    status = refused(SavepointStatus(), "image is 3", NOW + 0.0004).status
    assert accepted(status).last_transition_time == NOW


@pytest.mark.parametrize(("holds", "since"), [(True, NOW), (False, None)])
def test_a_condition_that_is_false_has_not_been_true_since_any_time(
    holds: bool,  # noqa: FBT001
    since: float | None,
) -> None:
    context = ReconcileContext[SavepointStatus, EmitEvent](SavepointStatus(), 1, NOW)
    context.set_condition("VolumeReady", "Checked", holds=holds)
    assert context.condition_since("VolumeReady") == since
