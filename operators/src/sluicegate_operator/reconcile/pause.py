"""Pause: nothing is done with a resource that is annotated `sluicegate.dev/paused: "true"`.

That includes its deletion: a person who pauses a resource wants to look at it, or has handed it to another
operator, and a deletion stops drivers and may delete data.
"""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api.conditions import TRUE
from sluicegate_operator.reconcile.context import Outcome, ReconcileContext, Status

PAUSED = "Paused"
"""Type of the condition of a paused resource; a resource has it since it was first paused."""

_PAUSED = "the operator does nothing with this resource until sluicegate.dev/paused is removed"
_DELETED = f"the resource was deleted; that waits, because {_PAUSED}"


def reconcile_pause(
    status: Status, generation: int, now: float, *, paused: bool, deleted: bool
) -> Outcome[Status, Any] | None:
    """Return what is done instead of the reconciliation; None: the resource is reconciled.

    A paused resource gets its condition and one Event, and another one when it is deleted. After the pause
    the condition is cleared first, and the resource is reconciled again at once.
    """
    context: ReconcileContext[Status, Any] = ReconcileContext(status, generation, round(now, 3))
    reported = next((one for one in status.conditions if one.type == PAUSED), None)
    was_paused = reported is not None and reported.status == TRUE
    if paused:
        reason, message = ("DeletionPaused", _DELETED) if deleted else ("Annotated", _PAUSED)
        context.set_condition(PAUSED, reason, message, holds=True)
        if reported is None or reported.reason != reason:
            context.emit_event(PAUSED, message)
    elif was_paused:
        context.set_condition(PAUSED, "Resolved", holds=False)
        context.emit_event("Resumed", "sluicegate.dev/paused was removed")
        context.requeue_at(context.now)
    else:
        return None
    return Outcome(context.status, tuple(context.actions), context.requeue_time)
