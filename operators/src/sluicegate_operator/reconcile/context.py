"""State shared by the steps of one reconciliation, whatever the kind of the resource.

The steps of a reconciliation change the status and add actions to a `ReconcileContext`. What they
leave there becomes the `Outcome` that the controller writes and performs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sluicegate.errors import SettingsInvalid
from sluicegate.settings.backoff import backoff_s
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeStatus
from sluicegate_operator.api.conditions import FALSE, TRUE, Condition
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.actions import (
    AddFinalizer,
    EmitEvent,
    ForgetTask,
    RemoveFinalizer,
    RunTask,
    StorageAction,
)
from sluicegate_operator.reconcile.storage_tasks import Running, Task, TaskState

Status = TypeVar("Status", StreamingJobStatus, CheckpointVolumeStatus, SavepointStatus)
StorageStatus = TypeVar("StorageStatus", CheckpointVolumeStatus, SavepointStatus)
Action = TypeVar("Action")
Dated = TypeVar("Dated")

_LISTED_FIELDS = 10
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 5.0, 300.0


@dataclass(frozen=True)
class Outcome(Generic[Status, Action]):
    """What the controller does after a reconciliation.

    Args:
        status: written before any action is performed, if it differs from the status that was read.
        actions: performed in this order; the first one that fails ends the sequence.
        requeue_at: when to reconcile again if nothing changes before, in seconds since 1970;
            None: only when something changes.
        failures: kinds (`streaming_job.failures`) of the driver failures that this status records
            for the first time. Only a StreamingJob has any.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    requeue_at: float | None = None
    failures: tuple[str, ...] = ()


@dataclass
class ReconcileContext(Generic[Status, Action]):
    """The status as it changes during one reconciliation, and the actions collected so far.

    Args:
        status: starts as the status that was read.
        generation: of the spec.
        now: seconds since 1970.
        waiting: reason and message of what the resource waits for, for its Ready condition.
    """

    status: Status
    generation: int
    now: float
    actions: list[Action | EmitEvent] = field(default_factory=list)
    requeue_time: float | None = None
    waiting: tuple[str, str] | None = None

    def set(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the status
        """Change fields of the status."""
        self.status = dataclasses.replace(self.status, **changes)

    def add_action(self, action: Action) -> None:
        """Add an action after those already collected."""
        self.actions.append(action)

    def emit_event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an Event."""
        self.actions.append(EmitEvent(reason, message, warning))

    def requeue_at(self, at: float) -> None:
        """Request a reconciliation at a time at the latest."""
        self.requeue_time = at if self.requeue_time is None else min(at, self.requeue_time)

    def wait(self, reason: str, message: str) -> None:
        """Record what the resource waits for."""
        self.waiting = (reason, message)

    def condition_status(self, kind: str) -> bool | None:
        """Return whether a condition is true; None if the status has no such condition."""
        found = self._condition(kind)
        return None if found is None else found.status == TRUE

    def condition_reason(self, kind: str) -> str:
        """Return the reason of a condition; empty if the status has no such condition."""
        found = self._condition(kind)
        return "" if found is None else found.reason

    def condition_since(self, kind: str) -> float | None:
        """Return since when a condition is true; None: it is not."""
        found = self._condition(kind)
        return found.last_transition_time if found is not None and found.status == TRUE else None

    def set_condition(self, kind: str, reason: str, message: str = "", *, holds: bool) -> None:
        """Set a condition. Its transition time stays while its status is the same."""
        before, status = self._condition(kind), TRUE if holds else FALSE
        since = before.last_transition_time if before and before.status == status else self.now
        wanted = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=since,
            observed_generation=self.generation,
        )
        self.remove_condition(kind)
        conditions = (*self.status.conditions, wanted)
        self.set(conditions=tuple(sorted(conditions, key=lambda one: one.type)))

    def remove_condition(self, kind: str) -> None:
        """Remove a condition."""
        self.set(conditions=tuple(one for one in self.status.conditions if one.type != kind))

    def _condition(self, kind: str) -> Condition | None:
        return next((one for one in self.status.conditions if one.type == kind), None)


@dataclass
class StorageContext(ReconcileContext[StorageStatus, StorageAction]):
    """The context of a resource whose work is done by storage tasks."""

    tasks: Mapping[Task, TaskState] = field(kw_only=True)

    def run(self, task: Task, volume: str, timeout_s: float) -> None:
        """Start a task."""
        self.add_action(RunTask(task, volume, timeout_s))

    def tasks_of(self, kind: type[Any]) -> list[tuple[Any, TaskState]]:
        """Return the resource's tasks of a kind with their states."""
        return [(task, state) for task, state in self.tasks.items() if isinstance(task, kind)]

    def set_finalizer(self, *, wanted: bool, present: bool) -> None:
        """Add or remove our finalizer, if necessary."""
        if wanted and not present:
            self.add_action(AddFinalizer())
        elif present and not wanted:
            self.add_action(RemoveFinalizer())

    def running(self, kind: type[Any]) -> bool:
        """Return whether a task of a kind is queued or running."""
        return any(isinstance(state, Running) for _, state in self.tasks_of(kind))

    def outcome(self) -> Outcome[StorageStatus, StorageAction]:
        """Finish the reconciliation: the status holds all results, so ended tasks are forgotten."""
        self.set(observed_generation=self.generation)
        for task, state in self.tasks.items():
            if not isinstance(state, Running):
                self.add_action(ForgetTask(task))
        return Outcome(self.status, tuple(self.actions), self.requeue_time)


def reject_spec(
    status: Status,
    generation: int,
    error: SettingsInvalid,
    now: float,
    retry_at: float | None = None,
) -> Outcome[Status, Any]:
    """Return the outcome for a spec that is refused: report it, and leave everything running.

    An Event reports it when the refusal is new or has changed.
    """
    context: ReconcileContext[Status, Any] = ReconcileContext(status, generation, round(now, 3))
    context.set_condition("Accepted", "SpecInvalid", str(error), holds=False)
    if context.status != status:
        context.emit_event("SpecInvalid", f"{error.what}; {error.do}", warning=True)
    return Outcome(context.status, tuple(context.actions), retry_at)


def accept_spec(context: ReconcileContext[Any, Any], ignored_fields: tuple[str, ...]) -> None:
    """Set the condition Accepted of a valid spec, with the fields that this release does not know."""
    if not ignored_fields:
        context.set_condition("Accepted", "SpecValid", holds=True)
        return
    names = ", ".join(ignored_fields[:_LISTED_FIELDS])
    message = f"fields that this release of the operator does not know have no effect: {names}"
    context.set_condition("Accepted", "UnknownFieldsIgnored", message, holds=True)


def ended_after(at: float, recorded: float | None) -> bool:
    """Return whether a task ended after the last end that the status has recorded."""
    return recorded is None or round(at, 3) > recorded


def backoff(tries: int) -> float:
    """Return the delay in seconds after so many failed tries: 5 s, doubling, at most 5 minutes."""
    return backoff_s(tries, _FIRST_BACKOFF_S, _LONGEST_BACKOFF_S)


def limit_retry(dated: Dated, now: float, field: str) -> Dated:
    """Return a status whose next retry is no later than the longest delay from now.

    One is later if the clock was set back; see `limit_to_now`.
    """
    at, latest = getattr(dated, field), round(now + _LONGEST_BACKOFF_S, 3)
    if at is None:
        return dated
    return dataclasses.replace(dated, **{field: min(at, latest)})  # type: ignore[type-var]


def limit_to_now(dated: Dated, now: float, *fields: str) -> Dated:
    """Return a status in which none of the given times is later than now.

    One is later if the clock was set back, or if the operator moved to a machine whose clock is
    slow. A wait that is counted from such a time starts again, so this never cuts one short.
    """
    times = {name: getattr(dated, name) for name in fields}
    limited = {name: min(time, now) for name, time in times.items() if time is not None}
    return dataclasses.replace(dated, **limited)  # type: ignore[type-var]
