"""What the operator can do about a CheckpointVolume or a Savepoint, beside `reconcile.actions`.

As there: the status is written first, then all in order, and none after one that failed; each may
be done twice. Not here: how. Called by `volumes`; performed by whoever wires it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.reconcile.actions import AddFinalizer, RemoveFinalizer, Report
from sluicegate_operator.volumes.tasks import Task


@dataclass(frozen=True)
class RunTask:
    """Begin a task for this resource; one that runs, or whose end is not forgotten, is left alone.

    Its end is to be seen by the next pass, which is due then.

    Args:
        task: what.
        volume: the CheckpointVolume, in the same namespace, whose endpoint and keys it gets.
        timeout_s: it is killed after so long.
    """

    task: Task
    volume: str
    timeout_s: float


@dataclass(frozen=True)
class ForgetTask:
    """Forget how a task ended: it is in the status. One that runs, or is not known, is left alone."""

    task: Task


Action = AddFinalizer | RemoveFinalizer | Report | RunTask | ForgetTask
