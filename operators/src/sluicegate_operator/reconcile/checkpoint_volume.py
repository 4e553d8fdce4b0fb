"""`reconcile_volume`: checks a CheckpointVolume, maintains it, and deletes its data if configured.

Like every reconciler it is level-based. A volume that stops passing its check lets no driver start, and
leaves running drivers alone. Maintenance measures and prunes a volume at intervals; if it fails, the
condition Maintenance says so and the volume stays ready.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sluicegate_operator.api.checkpoint_volume import DELETE, CheckpointVolumeStatus
from sluicegate_operator.api.locations import store_access_digest, volume_address
from sluicegate_operator.reconcile.actions import RemoveFinalizer, StorageAction
from sluicegate_operator.reconcile.context import (
    Outcome,
    StorageContext,
    accept_spec,
    backoff,
    ended_after,
    limit_retry,
    limit_to_now,
)
from sluicegate_operator.reconcile.observed import Volume, VolumeObserved
from sluicegate_operator.reconcile.storage_tasks import (
    CheckVolume,
    Delete,
    Done,
    FailedTask,
    Measure,
    Prune,
    Pruned,
    Task,
)

CHECK_INTERVAL_S = 600.0
"""How often a ready volume is checked again; a check is two requests."""

SECRET_RETRY_S = 30.0
"""How often an unreadable Secret is read again: Secrets are not watched."""

MEASURE_INTERVAL_S, PRUNE_INTERVAL_S = 300.0, 3600.0
"""How often a volume is measured and pruned. Measuring lists all objects, 1,000 with each request."""

MAINTENANCE_RETRY_S = 300.0
"""After measuring or pruning has failed, neither is tried for this long."""

DELETE_DELAY_S = 30.0
"""Data is deleted only after a list of jobs this much newer than the deletion shows no user: an older
list may lack a job that was created before the deletion."""

_CHECK_TIMEOUT_S, _DELETE_TIMEOUT_S = 120.0, 3600.0
_MEASURE_TIMEOUT_S, _PRUNE_TIMEOUT_S = 600.0, 1800.0

_MEASURING_FAILED, _PRUNING_FAILED = "MeasuringFailed", "PruningFailed"
"""Reasons of the condition Maintenance. While both fail, it has the second."""

_LISTED_USERS = 5
_NO_FAILURE = {"failures": 0, "failure_reason": "", "last_error": "", "next_retry_time": None}

VolumeOutcome = Outcome[CheckpointVolumeStatus, StorageAction]


@dataclass
class VolumeContext(StorageContext[CheckpointVolumeStatus]):
    """The context of one CheckpointVolume."""

    volume: Volume = field(kw_only=True)
    observed: VolumeObserved = field(kw_only=True)


def reconcile_volume(volume: Volume, observed: VolumeObserved, now: float) -> VolumeOutcome:
    """Decide what to do about a volume now (seconds since 1970), by the newest status that is known."""
    now = round(now, 3)
    times = ("checked_time", "failed_time", "measured_time", "pruned_time")
    status = limit_to_now(volume.status, now, *times, "maintenance_failed_time")
    status = limit_retry(status, now, "next_retry_time")
    context = VolumeContext(
        status, volume.generation, now, tasks=observed.tasks, volume=volume, observed=observed
    )
    accept_spec(context, volume.ignored_fields)
    if volume.deleted_at is not None:
        _finalize(context)
    else:
        # it stays while data is to be deleted with the volume, or jobs may need it to end
        wanted = volume.spec.reclaim_policy == DELETE or bool(observed.jobs)
        context.set_finalizer(wanted=wanted, present=volume.has_finalizer)
        if _check_store(context):
            _maintain(context)
        _check_quota(context)
    return context.outcome()


def owner_of(volume: Volume) -> tuple[str, ...]:
    """Return a volume as the owner of its address, for storage tasks."""
    return ("CheckpointVolume", volume.namespace, volume.name, volume.uid)


# --- checks ------------------------------------------------------------------------------------------


def _check_store(context: VolumeContext) -> bool:
    """Check the store when a check is due; return whether the volume is ready."""
    spec, previous_phase = context.volume.spec, context.status.phase
    problem = context.observed.access_problem
    access = f"{store_access_digest(spec)}/{context.observed.secret_version}"
    _record_checks(context, access)
    if context.status.failures and context.status.failed_access != access:
        context.set(**_NO_FAILURE)
    ready = context.status.checked_access == access and not context.status.failures
    if problem:
        ready = False
        context.set(failure_reason=context.observed.access_reason, last_error=problem)
        context.requeue_at(context.now + SECRET_RETRY_S)
    elif not context.status.failures:
        context.set(failure_reason="", last_error="")
    if not problem:
        make_bucket = context.status.checked_time is None
        task = CheckVolume(
            volume_address(spec), make_bucket, spec.region, access, owner_of(context.volume)
        )
        _run_when_due(context, task, _next_check(context, ready=ready), _CHECK_TIMEOUT_S)
    _set_phase(context, previous_phase, ready=ready)
    return ready


def _record_checks(context: VolumeContext, access: str) -> None:
    """Record the results of checks, except those made with other keys or another endpoint."""
    for task, state in context.tasks_of(CheckVolume):
        if task.access != access:
            continue
        if isinstance(state, Done) and ended_after(state.at, context.status.checked_time):
            if state.result.bucket_created:
                bucket = context.volume.spec.bucket
                context.emit_event("BucketMade", f"created bucket {bucket}")
            context.set(checked_time=round(state.at, 3), checked_access=access, **_NO_FAILURE)
        elif isinstance(state, FailedTask) and ended_after(state.at, context.status.failed_time):
            _record_failure(context, state, access)


def _record_failure(context: VolumeContext, state: FailedTask, access: str) -> None:
    before = context.status.failures if context.status.failed_access == access else 0
    context.set(
        failures=before + 1,
        failure_reason=state.kind,
        last_error=state.summary,
        failed_time=round(state.at, 3),
        failed_access=access,
        next_retry_time=round(state.at + backoff(before + 1), 3),
    )


def _next_check(context: VolumeContext, *, ready: bool) -> float:
    status = context.status
    if status.next_retry_time is not None:
        return status.next_retry_time
    if not ready or status.checked_time is None:
        return context.now
    return status.checked_time + CHECK_INTERVAL_S


def _set_phase(context: VolumeContext, previous: str, *, ready: bool) -> None:
    """Set the phase and the condition Ready, with an Event if the volume became ready or failed."""
    reason, message = context.status.failure_reason, context.status.last_error
    phase = "Failed" if reason else "Pending"
    if ready:
        phase, reason, message = "Ready", "Ready", ""
    elif not reason:
        reason, message = "Checking", "the store is being checked"
    context.set(phase=phase)
    context.set_condition("Ready", reason, message, holds=ready)
    if previous != phase and phase == "Ready":
        message = "the store is reachable, grants access, and creates each object only once"
        context.emit_event("Ready", message)
    elif previous != phase and phase == "Failed":
        context.emit_event(reason, message, warning=True)


# --- maintenance -------------------------------------------------------------------------------------


def _maintain(context: VolumeContext) -> None:
    """Measure and prune a volume when it is due."""
    _record_maintenance(context)
    status, spec, observed = context.status, context.volume.spec, context.observed
    address, failed = volume_address(spec), status.maintenance_failed_time
    healthy = failed is None or context.condition_status("Maintenance")
    not_before = context.now if healthy or failed is None else failed + MAINTENANCE_RETRY_S
    due = max(not_before, (status.measured_time or -math.inf) + MEASURE_INTERVAL_S)
    _run_when_due(context, Measure(address), due, _MEASURE_TIMEOUT_S)
    prune = Prune(
        address,
        spec.retention.savepoints,
        spec.retention.epochs,
        tuple(sorted(observed.referenced_savepoints)),
        tuple(sorted(observed.folders_in_progress)),
    )
    due = max(not_before, (status.pruned_time or -math.inf) + PRUNE_INTERVAL_S)
    if not observed.unreadable:
        _run_when_due(context, prune, due, _PRUNE_TIMEOUT_S)


def _run_when_due(context: VolumeContext, task: Task, due: float, timeout_s: float) -> None:
    """Start a task if it is due and none of its kind is running."""
    if context.running(type(task)):
        return
    if context.now >= due:
        context.run(task, context.volume.name, timeout_s)
    else:
        context.requeue_at(due)


def _record_maintenance(context: VolumeContext) -> None:
    """Record what ended, in the order in which it did."""
    ended = [
        (state, kind)
        for kind in (Measure, Prune)
        for _, state in context.tasks_of(kind)
        if isinstance(state, Done | FailedTask)
    ]
    for state, kind in sorted(ended, key=lambda one: one[0].at):
        if isinstance(state, FailedTask):
            _record_maintenance_failure(context, kind, state)
        elif kind is Measure:
            _record_measured(context, state)
        else:
            _record_pruned(context, state)


def _record_maintenance_failure(
    context: VolumeContext, kind: type[Task], failed: FailedTask
) -> None:
    if not ended_after(failed.at, context.status.maintenance_failed_time):
        return
    context.set(maintenance_failed_time=round(failed.at, 3))
    # only a pruning ends a failure of pruning
    if kind is Prune:
        context.set_condition("Maintenance", _PRUNING_FAILED, failed.summary, holds=False)
    elif context.condition_reason("Maintenance") != _PRUNING_FAILED:
        context.set_condition("Maintenance", _MEASURING_FAILED, failed.summary, holds=False)


def _record_measured(context: VolumeContext, done: Done) -> None:
    if not ended_after(done.at, context.status.measured_time):
        return
    found = done.result
    context.set(bytes=found.bytes, objects=found.objects, measured_time=round(done.at, 3))
    if found.last_epoch_time is not None:
        context.set(last_epoch_time=round(found.last_epoch_time, 3))
    _set_healthy(context, done.at, unless=_PRUNING_FAILED)


def _record_pruned(context: VolumeContext, done: Done) -> None:
    if not ended_after(done.at, context.status.pruned_time):
        return
    context.set(pruned_time=round(done.at, 3))
    _set_healthy(context, done.at, unless=_MEASURING_FAILED)
    deleted: Pruned = done.result
    if deleted.savepoints or deleted.unfinished:
        context.emit_event(
            "Pruned",
            f"deleted {deleted.savepoints} savepoints beyond the retention and "
            f"{deleted.unfinished} unfinished ones",
        )


def _set_healthy(context: VolumeContext, at: float, *, unless: str) -> None:
    """Report that what failed works again; `unless`: the reason of a failure that remains."""
    failing = context.condition_status("Maintenance") is False
    if context.condition_reason("Maintenance") == unless:
        return
    if failing and ended_after(at, context.status.maintenance_failed_time):
        context.set_condition("Maintenance", "Healthy", holds=True)


def _check_quota(context: VolumeContext) -> None:
    """Set the condition WithinQuota, with an Event when the volume exceeds its quota."""
    quota, used = context.volume.spec.quota_bytes, context.status.bytes
    if not quota:
        context.remove_condition("WithinQuota")
        return
    if context.status.measured_time is None:
        return
    if used <= quota:
        context.set_condition("WithinQuota", "Within", holds=True)
        return
    exceeded_before = context.condition_status("WithinQuota") is False
    message = f"{used:,} bytes of {quota:,} are used; nothing is rejected or deleted"
    context.set_condition("WithinQuota", "Exceeded", message, holds=False)
    if not exceeded_before:
        context.emit_event("QuotaExceeded", message, warning=True)


# --- deletion ----------------------------------------------------------------------------------------


def _finalize(context: VolumeContext) -> None:
    """Take the next step of a deleted volume."""
    if context.status.phase != "Deleting":
        context.set(phase="Deleting", **_NO_FAILURE)  # earlier failures do not delay the deletion
    if not context.volume.has_finalizer:
        return
    for _, state in context.tasks_of(Delete):
        if isinstance(state, Done) and not context.status.data_deleted:
            context.set(data_deleted=True, **_NO_FAILURE)
            message = f"deleted {state.result.objects:,} objects below the prefix"
            context.emit_event("Emptied", message)
        elif isinstance(state, FailedTask) and ended_after(state.at, context.status.failed_time):
            _record_failure(context, state, "delete")
            context.emit_event("DeletionFailed", state.summary, warning=True)
    if _nothing_to_do(context):
        context.set_condition("Ready", "Deleting", "nothing is left to do", holds=False)
        context.add_action(RemoveFinalizer())
        return
    reason, message = _delete_data(context)
    context.set_condition("Ready", reason, message, holds=False)


def _nothing_to_do(context: VolumeContext) -> bool:
    spec, status, observed = context.volume.spec, context.status, context.observed
    if spec.reclaim_policy != DELETE:
        return not observed.jobs or status.checked_time is None  # no job of it has ever run
    if status.checked_time is None and (status.failures or observed.access_problem):
        # It has never passed a check and its store does not answer now either. Without an error the
        # data is deleted: an operator may have crashed between a check and the write of the status.
        return True
    return status.data_deleted


def _delete_data(context: VolumeContext) -> tuple[str, str]:
    """Delete everything below the prefix once nothing uses it; return what the volume waits for."""
    status, observed = context.status, context.observed
    users = [f"StreamingJob {name}" for name in observed.jobs]
    if context.volume.spec.reclaim_policy == DELETE:
        users += [f"Savepoint {name}" for name in observed.savepoints]
    if users:
        listed, others = ", ".join(users[:_LISTED_USERS]), len(users) - _LISTED_USERS
        more = f" and {others} more" if others > 0 else ""
        return "InUse", f"used by {listed}{more}; the volume stays until they are deleted"
    safe_at = (context.volume.deleted_at or context.now) + DELETE_DELAY_S
    if observed.as_of < safe_at:
        context.requeue_at(safe_at)
        return "Deleting", "confirming that nothing uses the volume any more"
    if observed.access_problem:
        message = (
            f"{observed.access_problem}; set reclaimPolicy Retain to keep the data and continue"
        )
        return observed.access_reason, message
    if context.running(Delete):
        return "Deleting", "everything below the prefix is being deleted"
    if status.next_retry_time is not None and context.now < status.next_retry_time:
        context.requeue_at(status.next_retry_time)
        message = f"{status.last_error}; set reclaimPolicy Retain to keep the rest and continue"
        return status.failure_reason, message
    task = Delete(volume_address(context.volume.spec), owner_of(context.volume))
    context.run(task, context.volume.name, _DELETE_TIMEOUT_S)
    return "Deleting", "everything below the prefix is being deleted"
