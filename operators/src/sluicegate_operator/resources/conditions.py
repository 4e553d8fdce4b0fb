"""Conditions of a status, as Kubernetes' API conventions have them.

Not here: which conditions there are (`reconcile.summary`). Called by statuses.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sluicegate_operator.resources.declaring import Instant, described

TRUE, FALSE = "True", "False"


@dataclass(frozen=True)
class Condition:
    """One statement about a resource."""

    type: str = described("what it is about")
    status: str = described("whether it is so", choices=(TRUE, FALSE, "Unknown"))
    reason: str = described("one word why")
    message: str = described("for people", default="")
    last_transition_time: Instant = described("since when the status is so")
    observed_generation: int = described("of the spec that it is about", default=0)


def with_condition(conditions: tuple[Condition, ...], wanted: Condition) -> tuple[Condition, ...]:
    """Return conditions with one set; its time stays while its status is the same."""
    kept = []
    for one in conditions:
        if one.type != wanted.type:
            kept.append(one)
        elif one.status == wanted.status:
            wanted = dataclasses.replace(wanted, last_transition_time=one.last_transition_time)
    return tuple(sorted((*kept, wanted), key=lambda one: one.type))


def without_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """Return conditions without one."""
    return tuple(one for one in conditions if one.type != kind)
