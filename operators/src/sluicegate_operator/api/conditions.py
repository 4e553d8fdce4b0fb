"""Conditions of a status, as the Kubernetes API conventions define them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sluicegate.settings.schema import option
from sluicegate_operator.api.fields import Instant

TRUE, FALSE = "True", "False"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One aspect of a resource's state."""

    type: str = option(..., "Type of the condition in CamelCase, such as Ready.")
    status: str = option(..., "Status of the condition.", choices=(TRUE, FALSE, "Unknown"))
    reason: str = option(
        ...,
        "Reason for the condition's last transition, one CamelCase word that programs can compare.",
    )
    message: str = option("", "Details of the last transition for people.")
    last_transition_time: Instant = option(
        ..., "Time at which the status of the condition last changed."
    )
    observed_generation: int = option(
        0, "The metadata.generation of the spec that the condition is about."
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
