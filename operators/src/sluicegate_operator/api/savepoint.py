"""Savepoint: a copy of a job's checkpoint, taken once or by a schedule, to restore into another job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate.settings.schema import option
from sluicegate_operator.api.checkpoint_volume import DELETE, RETAIN
from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.fields import Instant, Rule
from sluicegate_operator.api.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class SavepointSpec:
    """Desired state of a Savepoint."""

    job: str = option(..., "Name of the StreamingJob, in the same namespace. Immutable.")
    volume: str = option(
        "",
        "Name of the CheckpointVolume that the savepoint is copied to. Defaults to the job's. "
        "Immutable.",
    )
    stop: bool = option(
        default=False,
        text="Whether the job is stopped at the savepoint and its checkpoint is sealed. Only such a "
        "savepoint can move the job: a new StreamingJob restores it and continues with the same "
        "sinks.",
    )
    schedule: Schedule | None = option(
        None, "When savepoints are taken. Without a schedule one savepoint is taken, at once."
    )
    history: int = option(
        5,
        "Number of savepoints that a schedule keeps. The data of older ones is deleted with reclaimPolicy "
        "Delete, and otherwise left to retention.savepoints of the CheckpointVolume. Nothing is dropped "
        "while a job is or may still be restored from this Savepoint.",
        at_least=1,
    )
    history_max_age_s: float = option(
        0.0,
        "Time since its completion after which a savepoint of a schedule is dropped too. The newest one "
        "is kept whatever its age. 0: no limit.",
        at_least=0,
    )
    reclaim_policy: str = option(
        RETAIN,
        "What happens to the data when the Savepoint is deleted: Retain keeps it, Delete removes it.",
        choices=(RETAIN, DELETE),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.stop && has(self.schedule))",
            "stop and schedule exclude each other: stop ends the job",
            lambda spec: not (spec.stop and spec.schedule),
        ),
        Rule(
            "has(self.schedule) || self.historyMaxAgeSeconds == 0.0",
            "only a Savepoint with a schedule can have historyMaxAgeSeconds",
            lambda spec: spec.schedule is not None or spec.history_max_age_s == 0,
        ),
        Rule(
            "self.job == oldSelf.job && has(self.volume) == has(oldSelf.volume) && "
            "(!has(self.volume) || self.volume == oldSelf.volume)",
            "job and volume cannot change; create another Savepoint",
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenStatus:
    """One completed savepoint."""

    location: str = option(..., "URL of the savepoint on the object store.")
    epoch: int = option(..., "The last epoch that the savepoint contains.")
    completion_time: Instant = option(..., "Time at which the savepoint was completed.")
    sealed: bool = option(
        default=False,
        text="Whether the job's checkpoint was sealed, so that this savepoint can move the job.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionStatus:
    """Deletion of savepoints' data, while it fails."""

    failures: int = option(0, "Number of consecutive attempts that failed.")
    failed_time: Instant | None = option(None, "Time of the latest attempt that failed.")
    next_retry_time: Instant | None = option(None, "Time of the next attempt.")
    failure_reason: str = option("", "Why the deletion fails, in one CamelCase word.")
    last_error: str = option("", "Error of the latest attempt that failed.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SavepointStatus:
    """Observed state of a Savepoint. Only the operator writes it."""

    observed_generation: int = option(
        0, "The metadata.generation of the spec that the operator last acted on."
    )
    phase: str = option(
        "Pending",
        "Summary of the savepoint's state; the conditions have the details.",
        choices=("Pending", "Taking", "Ready", "Failed", "Deleting"),
        always_written=True,
    )
    conditions: tuple[Condition, ...] = option((), "Accepted, Ready and Paused.")
    taken: tuple[TakenStatus, ...] = option(
        (), "Completed savepoints, latest first. More than one only with a schedule."
    )
    last_error: str = option("", "Error of the latest attempt that failed.")
    last_schedule_time: Instant | None = option(
        None, "Scheduled time of the latest savepoint of a schedule."
    )
    volume: str = option("", "Name of the CheckpointVolume that the savepoint is copied to.")
    folder: str = option("", "URL of the savepoint that is being taken. Empty if none is.")
    start_time: Instant | None = option(
        None,
        "Time at which the savepoint in progress began to be taken. Absent while it waits for the "
        "savepoints of other jobs.",
    )
    attempts: int = option(
        0, "Number of attempts at the savepoint in progress that did not complete it."
    )
    failures: int = option(
        0,
        "Number of these attempts that count against the limit. Those that only wait, such as for "
        "a driver that is starting, do not count.",
    )
    failed_time: Instant | None = option(None, "Time at which the latest of these attempts ended.")
    next_retry_time: Instant | None = option(None, "Time of the next attempt.")
    failure_reason: str = option(
        "", "Why the savepoint is not attempted again, in one CamelCase word."
    )
    pending_deletion: tuple[str, ...] = option((), "URLs of savepoints whose data will be deleted.")
    deletion: DeletionStatus = option(DeletionStatus(), "State of that deletion, while it fails.")
    data_deleted: bool = option(
        default=False, text="Whether the data of all savepoints of this resource was deleted."
    )
