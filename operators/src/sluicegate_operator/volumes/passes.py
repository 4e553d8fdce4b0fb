"""One pass over a volume or a savepoint: the status as it becomes, actions, and the next look.

Not here: any rule of either. Called by the steps of a pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile.actions import Report
from sluicegate_operator.resources.conditions import (
    FALSE,
    TRUE,
    Condition,
    with_condition,
    without_condition,
)
from sluicegate_operator.resources.savepoint import SavepointStatus
from sluicegate_operator.resources.volume import CheckpointVolumeStatus
from sluicegate_operator.volumes.actions import Action, ForgetTask, RunTask
from sluicegate_operator.volumes.tasks import Running, Task, TaskState

Status = TypeVar("Status", CheckpointVolumeStatus, SavepointStatus)

_FIRST_S, _LONGEST_S = 5.0, 300.0


@dataclass(frozen=True)
class Outcome(Generic[Status]):
    """What to do; as `reconcile.job.Outcome`.

    Args:
        status: to be written before anything is done, if it differs from the one that was read.
        actions: to be done in this order, and none after one that failed.
        wake_at: when to look again if nothing happens before; None: when something happens.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None


@dataclass
class Pass(Generic[Status]):
    """What the steps of one pass share."""

    status: Status
    generation: int
    tasks: Mapping[Task, TaskState]
    now: float
    actions: list[Action] = field(default_factory=list)
    wake_at: float | None = None

    def set(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the status
        """Change fields of the status."""
        self.status = dataclasses.replace(self.status, **changes)

    def act(self, action: Action) -> None:
        """Add an action."""
        self.actions.append(action)

    def run(self, task: Task, volume: str, timeout_s: float) -> None:
        """Begin a task."""
        self.act(RunTask(task, volume, timeout_s))

    def report(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an event."""
        self.act(Report(reason, message, warning))

    def wake(self, at: float) -> None:
        """Ask for another pass at a time, if nothing happens before."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def of(self, kind: type[Any]) -> list[tuple[Any, TaskState]]:
        """Return this resource's tasks of a kind, and how far they are."""
        return [(task, state) for task, state in self.tasks.items() if isinstance(task, kind)]

    def running(self, kind: type[Any]) -> bool:
        """Say whether a task of a kind runs."""
        return any(isinstance(state, Running) for _, state in self.of(kind))

    def holds(self, kind: str) -> bool | None:
        """Say whether a condition is true; None if it is not there."""
        found = next((c for c in self.status.conditions if c.type == kind), None)
        return None if found is None else found.status == TRUE

    def condition(self, kind: str, reason: str, message: str = "", *, holds: bool) -> None:
        """Set a condition."""
        wanted = Condition(
            type=kind,
            status=TRUE if holds else FALSE,
            reason=reason,
            message=message,
            last_transition_time=self.now,
            observed_generation=self.generation,
        )
        self.set(conditions=with_condition(self.status.conditions, wanted))

    def drop(self, kind: str) -> None:
        """Remove a condition."""
        self.set(conditions=without_condition(self.status.conditions, kind))

    def done(self) -> Outcome[Status]:
        """End the pass: what ended is in the status now, and can be forgotten."""
        self.set(observed_generation=self.generation)
        for task, state in self.tasks.items():
            if not isinstance(state, Running):
                self.act(ForgetTask(task))
        return Outcome(self.status, tuple(self.actions), self.wake_at)


def refused(status: Status, generation: int, error: SettingsInvalid, now: float) -> Outcome[Status]:
    """Return what to do about a spec that cannot be read: say so, and leave all as it is."""
    p = Pass(status, generation, {}, round(now, 3))
    p.condition("Accepted", "SpecInvalid", str(error), holds=False)
    return Outcome(p.status)


def later(at: float, since: float | None) -> bool:
    """Say whether something ended after what the status has taken in already."""
    return since is None or round(at, 3) > since


def backoff(tries: int) -> float:
    """Return the seconds before the next try, after so many that failed: 5 s, doubling, to 5 min."""
    return min(_LONGEST_S, _FIRST_S * 2.0 ** max(0, min(tries, 20) - 1))


def not_after(instant: float | None, now: float) -> float | None:
    """Return an instant of the past: a clock that went back must not make it the future."""
    return None if instant is None else min(instant, now)
