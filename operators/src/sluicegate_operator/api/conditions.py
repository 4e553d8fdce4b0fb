"""Conditions, as the Kubernetes API conventions define them. The status of every kind has some."""

from __future__ import annotations

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
