"""A job that was deleted: stop, finish applying, treat the checkpoint as told, and let go.

Not here: what makes drivers end (`drivers`). Called by `job`.
"""

from __future__ import annotations

from sluicegate_operator.reconcile.actions import (
    DeleteCheckpoint,
    DropPod,
    RemoveFinalizer,
)
from sluicegate_operator.reconcile.drivers import ask, halt, keep, others_alive
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.reconcile.upgrades import startable
from sluicegate_operator.resources.job_status import FINISH

DELETE = "delete"
"""A reason to stop, and what `epochs.onCancel` may say."""


def depart(p: Pass) -> None:
    """Bring a deleted job nearer to its end."""
    if not p.job.held:
        return
    if p.status.phase != "Deleting":
        p.forgive()  # whatever failed before, finishing is tried anew
    if p.underway and p.driver.purpose == FINISH and not p.job.skip_finish:
        keep(p)
        return
    if not halt(p, DELETE):
        return
    alive = others_alive(p)
    if alive:
        p.wait("OldDriverAlive", f"attempt {alive[0]} has not ended yet")
    elif p.status.settled or p.job.skip_finish:
        _let_go(p)
    elif p.status.failed:
        p.wait(
            "FinishFailed",
            "a decided epoch may not be in every sink, and cannot be applied: "
            f"{p.status.last_error}. The annotation sluicegate.dev/skip-finish: 'true' gives it up",
        )
    elif startable(p, FINISH):
        ask(p, FINISH)


def _let_go(p: Pass) -> None:
    if p.spec.epochs.on_cancel == DELETE and p.observed.checkpoint_exists is not False:
        p.act(DeleteCheckpoint(p.job.uid))
        p.wait("DeletingCheckpoint", "everything below the job's path is being removed")
        return
    for pod in p.observed.pods:
        if not pod.dead:
            p.act(DropPod(pod.name, pod.uid))  # given up: nobody is left who could let go of it
    p.act(RemoveFinalizer())
