"""Summary of a reconciliation for people: phase, conditions, progress.

Conditions: Accepted (the spec is valid), Ready (a driver runs, or a batch is finished), VolumeReady,
Bound (what takes most of the time of an epoch, while a driver reports it), Failed (no driver is started
any more), Fenced (another driver used the checkpoint), NodeLost (a driver that cannot be observed may be
alive), RolledBack (the last stable spec replaced the resource's), UpgradeQueued (the driver runs the former
spec until other jobs are upgraded). `pause` sets Paused.
"""

from __future__ import annotations

from sluicegate_operator.api.streaming_job_status import (
    ACTIVE,
    ExecutorsStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.context import accept_spec
from sluicegate_operator.reconcile.observed import Executors, Pod
from sluicegate_operator.reconcile.streaming_job.context import JobContext
from sluicegate_operator.reconcile.streaming_job.failures import FENCED
from sluicegate_operator.reconcile.streaming_job.watchdog import NODE_LOST
from sluicegate_operator.reconcile.upgrade_queue import UPGRADE_QUEUED

PROGRESS_S = 55.0
"""Progress alone is written at this interval: a thousand jobs must not each write at every epoch. It is
shorter than the minute between two reports of a driver, so that jitter does not make every second one wait."""
_CLOCK_BACK_S = 1.0
"""Progress this much older than the status is written too: the operator's clock was set back. Less is no
reason: the status has milliseconds, so its time of a report can be later than the report."""
EXECUTORS_S = 30.0
"""Executors that come and go are written at this interval."""

_BOUND, _UNKNOWN = "Bound", "Unknown"
"""The condition of a verdict, and the verdict of a driver that has had no epoch yet."""

_BOUND_BY = {
    "BoundBySource": "an epoch takes most of its time in asking its sources for new input; ",
    "BoundByPlanning": "an epoch takes most of its time in Spark's planning; ",
    "BoundByPlan": "an epoch takes most of its time in the plan; ",
    "BoundByState": "an epoch takes most of its time in committing its state; ",
    "BoundBySink": "an epoch takes most of its time in a sink; ",
    "BoundByStore": "an epoch takes most of its time in the checkpoint's store; ",
}
"""What the condition says of a verdict that names a bound. It has no numbers, so that it is written only
when the reason changes."""

_LISTED_ATTEMPTS = 20


def update_status(context: JobContext, before: StreamingJobStatus) -> None:
    """Set phase, conditions and progress; `before` is the status that was read."""
    pod = context.pod if context.driver_active else None
    context.set(phase=_phase(context, pod))
    if not context.observed.spec_error:
        context.set(observed_generation=context.job.generation)
    _set_conditions(context, pod)
    _set_executors(context, pod, before)
    _set_progress(context, pod, before)
    _set_bound(context)


def _set_executors(context: JobContext, pod: Pod | None, before: StreamingJobStatus) -> None:
    if pod is None:
        context.set(executors=None)
        return
    reported, known = pod.executors, context.status.executors
    # a driver that stops to report them, or reports nonsense, causes no write
    if reported is None or (known and Executors(known.running, known.wanted) == reported):
        return
    due = known.time + EXECUTORS_S if known is not None else context.now
    if context.status == before and context.now < due:
        context.requeue_at(due)
        return
    numbers = {"running": reported.running, "wanted": reported.wanted}
    context.set(executors=ExecutorsStatus(**numbers, time=context.now))


def _set_progress(context: JobContext, pod: Pod | None, before: StreamingJobStatus) -> None:
    progress = pod.progress if pod is not None else None
    if progress is None:
        context.set(verdict=None)
        return
    since = before.checkpoint.last_epoch_time
    if (
        context.status != before
        or since is None
        or not -_CLOCK_BACK_S < progress.at - since < PROGRESS_S
    ):
        known = context.status.checkpoint.last_epoch
        context.set_checkpoint(
            last_epoch=known if progress.epoch is None else progress.epoch,
            last_epoch_time=progress.at,
        )
        context.set(verdict=progress.verdict)


def _set_bound(context: JobContext) -> None:
    verdict = context.status.verdict
    if verdict is None or verdict.reason == _UNKNOWN:
        context.remove_condition(_BOUND)
        return
    what = _BOUND_BY.get(verdict.reason, "")
    message = f"{what}status.verdict has the details"
    context.set_condition(_BOUND, verdict.reason, message, holds=bool(what))


def _phase(context: JobContext, pod: Pod | None) -> str:
    status, driver = context.status, context.status.driver
    rolling_back = status.rollback is not None and not status.rollback.completed
    changing = status.upgrade is not None or rolling_back
    idle = "Waiting" if context.spec.schedule is not None else "Finished"
    for phase, holds in (
        ("Deleting", context.job.deleted),
        ("Upgrading", changing and not context.spec.suspend),
        ("Stopping", driver.state == ACTIVE and bool(driver.stop_reason)),
        ("Running", pod is not None and pod.running_at is not None),
        ("Starting", context.driver_active),
        ("Suspended", context.spec.suspend),
        ("Failed", bool(status.failure_reason)),
        (idle, status.finished),
        ("Restarting", status.next_start_time is not None),
        ("Waiting", context.spec.schedule is not None),
    ):
        if holds:
            return phase
    return "Pending"


def _set_conditions(context: JobContext, pod: Pod | None) -> None:
    status, observed, waiting = context.status, context.observed, context.waiting
    if observed.spec_error:
        context.set_condition("Accepted", "SpecInvalid", _rejection(context), holds=False)
    else:
        accept_spec(context, context.job.ignored_fields)
    lost = waiting is not None and waiting[0] == NODE_LOST
    ready = (status.phase == "Running" and waiting is None) or status.phase == "Finished"
    reason, message = waiting or _startup(context) or (status.phase, "")
    context.set_condition("Ready", reason, message, holds=ready)
    volume_reason = "Ready" if observed.volume_ready else "NotReady"
    context.set_condition(
        "VolumeReady", volume_reason, observed.volume_message, holds=observed.volume_ready
    )
    failed = status.failure_reason
    context.set_condition(
        "Failed", failed or "NotFailed", status.last_error if failed else "", holds=bool(failed)
    )
    newest = status.failures[-1].kind if status.failures else ""
    fenced = newest == FENCED and not (pod is not None and pod.progress is not None)
    _set_problem(context, "Fenced", ("Fenced", status.last_error) if fenced else None)
    unconfirmed = ", ".join(map(str, status.unconfirmed_attempts[-_LISTED_ATTEMPTS:]))
    if not lost:
        message = f"replaced, but may still be alive: attempt {unconfirmed}"
    _set_problem(context, "NodeLost", ("NodeLost", message) if lost or unconfirmed else None)
    _set_problem(context, "RolledBack", _rollback(status))
    queued = context.upgrade_queued
    _set_problem(context, UPGRADE_QUEUED, ("LimitReached", queued) if queued else None)


def _rejection(context: JobContext) -> str:
    """Return why the resource's spec is invalid, and which one the job runs instead."""
    accepted = context.status.accepted
    if accepted is None or context.observed.spec_missing:
        return context.observed.spec_error
    runs = f"the job keeps running the spec of generation {accepted.generation}"
    return f"{runs}: {context.observed.spec_error}"


def _startup(context: JobContext) -> tuple[str, str] | None:
    """Return why the driver that is wanted does not start."""
    startup = context.status.startup
    if startup is None or not context.driver_active or context.driver.stop_reason:
        return None
    return startup.reason, startup.message


def _set_problem(context: JobContext, kind: str, problem: tuple[str, str] | None) -> None:
    """Set a condition that a job has only since it had the problem for the first time."""
    if problem is not None:
        context.set_condition(kind, *problem, holds=True)
    elif context.condition_status(kind) is not None:
        context.set_condition(kind, "Resolved", holds=False)


def _rollback(status: StreamingJobStatus) -> tuple[str, str] | None:
    """Return why the job was rolled back; None: it was not."""
    rollback, stable = status.rollback, status.last_stable_spec
    if rollback is None:
        return None
    assert stable is not None  # otherwise `restore_state` has dropped the rollback
    return rollback.reason, (
        f"spec {rollback.spec_hash} made no epoch; the job runs spec {stable.spec_hash} instead. Change the "
        "spec or restartNonce to try again"
    )
