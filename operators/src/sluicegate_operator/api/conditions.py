"""Conditions, as the Kubernetes API conventions define them. The status of every kind has some."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.settings.schema import option
from sluicegate_operator.api.fields import Instant

TRUE, FALSE = "True", "False"


@dataclass(frozen=True, kw_only=True, slots=True)
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
