"""Conditions of a status, as the Kubernetes API conventions define them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sluicegate_operator.api.fields import Instant, spec_field

TRUE, FALSE = "True", "False"


@dataclass(frozen=True)
class Condition:
    """One aspect of a resource's state."""

    type: str = spec_field("Type of the condition in CamelCase, such as Ready.")
    status: str = spec_field("Status of the condition.", choices=(TRUE, FALSE, "Unknown"))
    reason: str = spec_field(
        "Reason for the condition's last transition, one CamelCase word that programs can compare."
    )
    message: str = spec_field("Details of the last transition for people.", default="")
    last_transition_time: Instant = spec_field(
        "Time at which the status of the condition last changed."
    )
    observed_generation: int = spec_field(
        "The metadata.generation of the spec that the condition is about.", default=0
    )


def with_condition(conditions: tuple[Condition, ...], wanted: Condition) -> tuple[Condition, ...]:
    """Return conditions with one set. Its transition time stays while its status is the same."""
    kept = []
    for one in conditions:
        if one.type != wanted.type:
            kept.append(one)
        elif one.status == wanted.status:
            wanted = dataclasses.replace(wanted, last_transition_time=one.last_transition_time)
    return tuple(sorted((*kept, wanted), key=lambda one: one.type))


def without_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """Return conditions without the one of a type."""
    return tuple(one for one in conditions if one.type != kind)
