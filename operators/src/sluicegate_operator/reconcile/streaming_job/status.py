"""Summary of a reconciliation for people: phase, conditions, progress.

Conditions: Accepted (the spec is valid), Ready (a driver runs, or a batch is finished), VolumeReady,
Failed (no driver is started any more), Fenced (another driver used the checkpoint), NodeLost (a driver
that cannot be observed may be alive), RolledBack (the last stable spec replaced the resource's).
"""

from __future__ import annotations

from sluicegate_operator.api.conditions import FALSE, TRUE, Condition, with_condition
from sluicegate_operator.api.streaming_job_status import ACTIVE, REQUESTED, StreamingJobStatus
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job.context import JobContext, truncate
from sluicegate_operator.reconcile.streaming_job.failures import FENCED

PROGRESS_S = 30.0
"""Progress alone is written at this interval: a thousand jobs must not each write at every epoch."""

_MESSAGE_BYTES = 500
"""Limit of a condition's message; `lastError` has more."""

_LISTED_ATTEMPTS = 20
"""How many attempts a message lists."""


def update_status(context: JobContext, before: StreamingJobStatus) -> None:
    """Set phase, conditions and progress; `before` is the status that was read."""
    pod = context.pod if context.driver_active else None
    context.set(phase=_phase(context, pod), observed_generation=context.job.generation)
    for condition in _conditions(context, pod):
        context.set(conditions=with_condition(context.status.conditions, condition))
    progress = pod.progress if pod is not None else None
    if progress is None:
        return
    since = before.checkpoint.last_epoch_time
    if context.status != before or since is None or not 0 <= progress.at - since < PROGRESS_S:
        known = context.status.checkpoint.last_epoch
        context.set_checkpoint(
            last_epoch=known if progress.epoch is None else progress.epoch,
            last_epoch_time=round(progress.at, 3),
        )


def _phase(context: JobContext, pod: Pod | None) -> str:
    status, driver = context.status, context.status.driver
    idle = "Waiting" if context.spec.schedule is not None else "Finished"
    for phase, holds in (
        ("Deleting", context.job.deleted),
        (
            "Upgrading",
            (status.upgrade is not None or _rolling_back(context)) and not context.spec.suspend,
        ),
        ("Stopping", driver.state == ACTIVE and bool(driver.stop_reason)),
        ("Running", driver.state == ACTIVE and pod is not None and pod.running_at is not None),
        ("Starting", driver.state in (REQUESTED, ACTIVE)),
        ("Suspended", context.spec.suspend),
        ("Failed", bool(status.failure_reason)),
        (idle, status.finished),
        ("Restarting", status.next_start_time is not None),
        ("Waiting", context.spec.schedule is not None),
    ):
        if holds:
            return phase
    return "Pending"


def _rolling_back(context: JobContext) -> bool:
    return context.status.rollback is not None and not context.status.rollback.completed


def _conditions(context: JobContext, pod: Pod | None) -> list[Condition]:
    phase, waiting = context.status.phase, context.waiting
    lost = waiting is not None and waiting[0] == "NodeLost"
    ready = (phase == "Running" and not lost) or phase == "Finished"
    reason, message = (phase, "") if waiting is None else waiting
    conditions = [
        _condition(
            context,
            "Accepted",
            holds=not context.observed.spec_error,
            reason="SpecInvalid" if context.observed.spec_error else "SpecValid",
            message=context.observed.spec_error,
        ),
        _condition(context, "Ready", holds=ready, reason=reason, message=message),
        _condition(
            context,
            "VolumeReady",
            holds=context.observed.volume_ready,
            reason="Ready" if context.observed.volume_ready else "NotReady",
            message=context.observed.volume_message,
        ),
        _condition(
            context,
            "Failed",
            holds=bool(context.status.failure_reason),
            reason=context.status.failure_reason or "NotFailed",
            message=context.status.last_error if context.status.failure_reason else "",
        ),
    ]
    newest = context.status.failures[-1].kind if context.status.failures else ""
    fenced = newest == FENCED and not (pod is not None and pod.progress is not None)
    unconfirmed = ", ".join(map(str, context.status.unconfirmed_attempts[-_LISTED_ATTEMPTS:]))
    for kind, holds, details in (
        ("Fenced", fenced, context.status.last_error),
        (
            "NodeLost",
            lost or bool(unconfirmed),
            message if lost else f"replaced, but may still be alive: attempt {unconfirmed}",
        ),
        ("RolledBack", context.status.rollback is not None, _rollback_message(context)),
    ):
        if holds or any(one.type == kind for one in context.status.conditions):
            conditions.append(
                _condition(
                    context,
                    kind,
                    holds=holds,
                    reason=_condition_reason(context, kind) if holds else "Resolved",
                    message=details if holds else "",
                )
            )
    return conditions


def _condition_reason(context: JobContext, kind: str) -> str:
    rollback = context.status.rollback
    return rollback.reason if kind == "RolledBack" and rollback is not None else kind


def _rollback_message(context: JobContext) -> str:
    rollback, stable = context.status.rollback, context.status.last_stable_spec
    if rollback is None or stable is None:
        return ""
    return (
        f"spec {rollback.spec_hash} made no epoch; the job runs spec {stable.spec_hash} instead. Change the "
        "spec or restartNonce to try again"
    )


def _condition(
    context: JobContext, kind: str, *, holds: bool, reason: str, message: str
) -> Condition:
    return Condition(
        type=kind,
        status=TRUE if holds else FALSE,
        reason=reason,
        message=truncate(message, _MESSAGE_BYTES),
        last_transition_time=context.now,
        observed_generation=context.job.generation,
    )
