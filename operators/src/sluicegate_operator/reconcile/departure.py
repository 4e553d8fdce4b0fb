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
from sluicegate_operator.resources.job_status import ASKED, FINISH

DELETE = "delete"
"""A reason to stop, and what `epochs.onCancel` may say."""


_GIVES_UP = "the annotation sluicegate.dev/skip-finish: 'true' gives it up"

_AGAIN_S, _LONGEST_S = 60.0, 3600.0
"""From a driver that failed for good to apply what is decided until the next: doubling, to an hour."""


def depart(p: Pass) -> None:
    """Bring a deleted job nearer to its end."""
    if not p.job.held:
        return
    if p.status.phase != "Deleting":
        _begin_anew(p)  # whatever failed before, finishing is tried
    elif not p.underway and p.job.spec.restart_nonce != p.status.handled_nonce:
        _begin_anew(p)
    if _finishing(p):
        keep(p)
        return
    if not halt(p, DELETE):
        return
    alive = others_alive(p)
    if alive:
        p.wait("OldDriverAlive", f"attempt {alive[0]} has not ended yet")
    elif p.status.settled or p.job.skip_finish:
        _let_go(p)
    else:
        _finish(p)


def _finish(p: Pass) -> None:
    """Have what is decided applied, or say why it cannot be."""
    if p.observed.unreadable:
        p.wait(
            "FinishFailed",
            "a decided epoch may not be in every sink, and no driver can be made of the spec: "
            f"{p.observed.unreadable}. Correct it; {_GIVES_UP}",
        )
    elif p.status.failed and not _due_again(p):
        p.wait(
            "FinishFailed",
            "a decided epoch may not be in every sink, and could not be applied: "
            f"{p.status.last_error}. Tried again at status.nextStartTime, or at once with another "
            f"restartNonce; {_GIVES_UP}",
        )
    elif startable(p, FINISH):
        ask(p, FINISH)


def _begin_anew(p: Pass) -> None:
    p.forgive()
    p.set(finish_failures=0, handled_nonce=p.job.spec.restart_nonce)


def _finishing(p: Pass) -> bool:
    """Say whether a driver that only applies what is decided is under way, and to be left alone."""
    if not p.underway or p.driver.purpose != FINISH or p.job.skip_finish:
        return False
    return not (p.observed.unreadable and p.driver.state == ASKED)  # it cannot be asked for again


def _due_again(p: Pass) -> bool:
    """Say whether applying what is decided, which has failed for good, is to be tried again now.

    A person may have mended what it failed of: nobody tells, so it is tried, more and more seldom.
    """
    if p.status.next_start_time is None:
        delay = min(_LONGEST_S, _AGAIN_S * 2.0 ** min(p.status.finish_failures, 20))
        p.set(
            finish_failures=p.status.finish_failures + 1,
            next_start_time=round(p.now + delay, 3),
        )
    due = p.status.next_start_time or p.now
    if p.now < due:
        p.wake(due)
        return False
    p.set(failed="")
    return True


def _let_go(p: Pass) -> None:
    if p.spec.epochs.on_cancel == DELETE and p.observed.checkpoint_exists is not False:
        p.act(DeleteCheckpoint(p.job.uid))
        p.wait("DeletingCheckpoint", "everything below the job's path is being removed")
        return
    for pod in p.observed.pods:
        if not pod.dead:
            p.act(DropPod(pod.name, pod.uid))  # given up: nobody is left who could let go of it
    p.act(RemoveFinalizer())
