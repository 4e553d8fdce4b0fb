"""Rollback: a new spec that makes no epoch is replaced by the last stable spec, one that did.

After a rollback the settings that a driver sees come from the last stable spec. Those that no driver
sees (suspend, budgets, deadlines) still come from the resource.
"""

from __future__ import annotations

import dataclasses
import json

from sluicegate_operator.api.streaming_job import seen_by_driver
from sluicegate_operator.api.streaming_job_status import (
    REQUESTED,
    RUN,
    CheckpointStatus,
    RollbackStatus,
    StableSpecStatus,
)
from sluicegate_operator.reconcile.pause import PAUSED
from sluicegate_operator.reconcile.streaming_job.context import ROLLBACK, JobContext
from sluicegate_operator.reconcile.streaming_job.driver_lifecycle import stop
from sluicegate_operator.reconcile.streaming_job.failures import SEALED

NO_EPOCH = "NoEpoch"
"""Reason for a rollback if the driver of the new spec has not failed for stable."""

_SPEC_BYTES = 8192
"""Limit of the stable spec that is kept: every write of the status and every watch carries it."""


def restore_state(context: JobContext) -> None:
    """Drop a rollback that is switched off, or whose stable spec cannot be read."""
    status = context.status
    if not context.job.spec.rollback.enabled:
        if status.last_stable_spec is not None or status.rollback is not None:
            context.set(last_stable_spec=None, rollback=None, trial_start_time=None)
    elif status.rollback is not None and context.stable_spec() is None:
        _discard(context)


def step(context: JobContext) -> bool:
    """Record a stable spec, or roll back from one that is not; return False while its driver is stopping."""
    _record_stable_spec(context)
    why = _failure_reason(context)
    if why:
        _begin(context, why)
    rollback = context.status.rollback
    if rollback is None:
        return True
    if not rollback.completed:
        if not stop(context, ROLLBACK):
            return False
        _complete(context, rollback)
    again = context.job.spec.restart_nonce != context.status.observed_restart_nonce
    if again or rollback.spec_hash != context.resource_hash:
        context.set(rollback=None)
    return True


def _record_stable_spec(context: JobContext) -> None:
    """Record the spec of a driver that has made an epoch."""
    pod, status, spec = context.pod, context.status, context.job.spec
    if not spec.rollback.enabled or status.rollback is not None or pod is None:
        return
    progress = pod.progress
    if pod.mode != RUN or progress is None:
        return
    if progress.epoch is None or not progress.decided:
        # it lives and has no input of its own yet: the time of a trial begins again with the next driver
        context.set(trial_start_time=None)
        return
    spec_hash, number = context.resource_hash, status.checkpoint.number
    if (pod.spec_hash, pod.checkpoint_number) != (spec_hash, number):
        return
    context.set(trial_start_time=None)
    stable = status.last_stable_spec
    known = stable is not None and stable.checkpoint.last_epoch is not None
    if stable and known and (stable.spec_hash, stable.checkpoint.number) == (spec_hash, number):
        return
    accepted = status.accepted  # its digest was made of this very text
    complete = accepted.spec if accepted is not None and accepted.spec else spec.complete()
    driver_spec = seen_by_driver(complete)
    context.set(
        last_stable_spec=StableSpecStatus(
            spec=driver_spec if len(json.dumps(driver_spec)) <= _SPEC_BYTES else {},
            spec_hash=spec_hash,
            checkpoint=CheckpointStatus(
                number=number,
                restored_from=status.checkpoint.restored_from,
                last_epoch=progress.epoch,
            ),
        )
    )


def _failure_reason(context: JobContext) -> str:
    """Return why the resource's spec has failed and must be rolled back; empty: it has not."""
    status, spec = context.status, context.job.spec
    if not context.spec_unproven() or status.upgrade is not None:
        return ""
    restart = spec.restart_nonce != status.observed_restart_nonce
    if restart or context.driver.spec_hash != context.resource_hash:
        return ""  # it has not been tried yet, or a restart was requested
    if status.failure_reason:
        # no spec can continue on a sealed checkpoint
        return "" if status.failure_reason == SEALED else status.failure_reason
    if _has_other_cause(context):
        context.set(trial_start_time=None)  # it begins again when that cause is gone
    elif status.trial_start_time is None and _has_not_reported(context):
        context.set(trial_start_time=context.now)  # its node responds again
    since = context.status.trial_start_time
    return NO_EPOCH if since is not None and _trial_is_over(context, since) else ""


def _trial_is_over(context: JobContext, since: float) -> bool:
    """Return whether the drivers of a new spec have had the time in which they should have made an epoch."""
    limit_s, driver = context.job.spec.rollback.deadline_s, context.driver
    # nothing was restarted while the job was paused
    resumed = (one.last_transition_time for one in context.status.conditions if one.type == PAUSED)
    deadline = max((since, *resumed)) + limit_s
    if context.now < deadline:
        context.requeue_at(deadline)
        return False
    if driver.state != REQUESTED or context.status.startup is not None:
        return True
    assert driver.request_time is not None  # `reconcile_job` has set it
    if context.now < driver.request_time + limit_s:
        return True
    # the operator was down since it requested the pod, which was not refused: it is requested again
    context.set(trial_start_time=context.now)
    return False


def _has_other_cause(context: JobContext) -> bool:
    """Return whether a lost node, or a volume that lets no driver start, explains the missing epoch."""
    if not context.driver_active:
        return not context.observed.volume_ready
    node = context.pod.node if context.pod is not None else None
    return node is not None and node.unresponsive_since is not None


def _has_not_reported(context: JobContext) -> bool:
    """Return whether the newest driver exists and has not reported that it lives."""
    pod = context.pod
    runs = context.driver_active and not context.driver.stop_reason
    return runs and pod is not None and pod.progress is None


def _begin(context: JobContext, why: str) -> None:
    stable = context.status.last_stable_spec
    if stable is None or context.stable_spec() is None:
        _discard(context)
        return
    failed_hash = context.resource_hash
    context.set(rollback=RollbackStatus(spec_hash=failed_hash, reason=why))
    context.emit_event(
        "RolledBack",
        f"spec {failed_hash} has made no epoch ({why}); the job returns to spec {stable.spec_hash} and "
        f"checkpoint {stable.checkpoint.number}",
        warning=True,
    )


def _complete(context: JobContext, rollback: RollbackStatus) -> None:
    """Switch to the checkpoint of the stable spec: the driver of the failed spec has ended."""
    stable = context.status.last_stable_spec
    assert stable is not None  # otherwise `restore_state` has dropped the rollback
    if stable.checkpoint.number != context.status.checkpoint.number:
        context.set(checkpoint=stable.checkpoint, all_epochs_applied=False)
    context.reset_failures()
    context.set_driver(spec_hash=stable.spec_hash)
    context.set(rollback=dataclasses.replace(rollback, completed=True))


def _discard(context: JobContext) -> None:
    stable = context.status.last_stable_spec
    large = stable is not None and not stable.spec
    why = "was too large to be kept" if large else "in the status cannot be read"
    context.set(last_stable_spec=None, rollback=None, trial_start_time=None)
    message = f"the last stable spec {why}; the job keeps the spec of the resource"
    context.emit_event("NoRollback", message, warning=True)
