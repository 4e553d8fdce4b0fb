"""Savepoint: a copy of a job's checkpoint, taken once or by a schedule, to restore into another job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate_operator.api.checkpoint_volume import DELETE, RETAIN
from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.fields import Instant, Rule, spec_field
from sluicegate_operator.api.streaming_job import Schedule


@dataclass(frozen=True)
class SavepointSpec:
    """Desired state of a Savepoint."""

    job: str = spec_field("Name of the StreamingJob, in the same namespace. Immutable.")
    volume: str = spec_field(
        "Name of the CheckpointVolume that the savepoint is copied to. Defaults to the job's. "
        "Immutable.",
        default="",
    )
    stop: bool = spec_field(
        "Whether the job is stopped at the savepoint and its checkpoint is sealed. Only such a "
        "savepoint can move the job: a new StreamingJob restores it and continues with the same "
        "sinks.",
        default=False,
    )
    schedule: Schedule | None = spec_field(
        "When savepoints are taken. Without a schedule one savepoint is taken, at once.",
        default=None,
    )
    history: int = spec_field(
        "Number of savepoints that a schedule keeps; older ones are deleted.",
        default=5,
        at_least=1,
    )
    reclaim_policy: str = spec_field(
        "What happens to the data when the Savepoint is deleted: Retain keeps it, Delete removes it.",
        default=RETAIN,
        choices=(RETAIN, DELETE),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.stop && has(self.schedule))",
            "stop and schedule exclude each other: stop ends the job",
            lambda spec: not (spec.stop and spec.schedule),
        ),
        Rule(
            "self.job == oldSelf.job && has(self.volume) == has(oldSelf.volume) && "
            "(!has(self.volume) || self.volume == oldSelf.volume)",
            "job and volume cannot change; create another Savepoint",
        ),
    )


@dataclass(frozen=True)
class TakenStatus:
    """One completed savepoint."""

    location: str = spec_field("URL of the savepoint on the object store.")
    epoch: int = spec_field("The last epoch that the savepoint contains.")
    completion_time: Instant = spec_field("Time at which the savepoint was completed.")
    sealed: bool = spec_field(
        "Whether the job's checkpoint was sealed, so that this savepoint can move the job.",
        default=False,
    )


@dataclass(frozen=True)
class DeletionStatus:
    """Deletion of savepoints' data, while it fails."""

    failures: int = spec_field("Number of consecutive attempts that failed.", default=0)
    failed_time: Instant | None = spec_field(
        "Time of the latest attempt that failed.", default=None
    )
    next_retry_time: Instant | None = spec_field("Time of the next attempt.", default=None)
    failure_reason: str = spec_field("Why the deletion fails, in one CamelCase word.", default="")
    last_error: str = spec_field("Error of the latest attempt that failed.", default="")


@dataclass(frozen=True)
class SavepointStatus:
    """Observed state of a Savepoint. Only the operator writes it."""

    observed_generation: int = spec_field(
        "The metadata.generation of the spec that the operator last acted on.", default=0
    )
    phase: str = spec_field(
        "Summary of the savepoint's state; the conditions have the details.",
        default="Pending",
        choices=("Pending", "Taking", "Ready", "Failed", "Deleting"),
        always_written=True,
    )
    conditions: tuple[Condition, ...] = spec_field("Accepted and Ready.", default=())
    taken: tuple[TakenStatus, ...] = spec_field(
        "Completed savepoints, latest first. More than one only with a schedule.", default=()
    )
    last_error: str = spec_field("Error of the latest attempt that failed.", default="")
    last_schedule_time: Instant | None = spec_field(
        "Scheduled time of the latest savepoint of a schedule.", default=None
    )
    volume: str = spec_field(
        "Name of the CheckpointVolume that the savepoint is copied to.", default=""
    )
    folder: str = spec_field(
        "URL of the savepoint that is being taken. Empty if none is.", default=""
    )
    attempts: int = spec_field(
        "Number of attempts at the savepoint in progress that did not complete it.", default=0
    )
    failures: int = spec_field(
        "Number of these attempts that count against the limit. Those that only wait, such as for "
        "a driver that is starting, do not count.",
        default=0,
    )
    failed_time: Instant | None = spec_field(
        "Time at which the latest of these attempts ended.", default=None
    )
    next_retry_time: Instant | None = spec_field("Time of the next attempt.", default=None)
    failure_reason: str = spec_field(
        "Why the savepoint is not attempted again, in one CamelCase word.", default=""
    )
    pending_deletion: tuple[str, ...] = spec_field(
        "URLs of savepoints whose data will be deleted.", default=()
    )
    deletion: DeletionStatus = spec_field(
        "State of that deletion, while it fails.", default=DeletionStatus()
    )
    data_deleted: bool = spec_field(
        "Whether the data of all savepoints of this resource was deleted.", default=False
    )
