"""`reconcile_savepoint`: takes a Savepoint, once or by schedule, and deletes its data if configured.

Like every reconciler it is level-based. The status names the folder of a savepoint before anything is
copied there, and each attempt looks there first, so the next attempt finds the result of a lost one.
"""

from __future__ import annotations

import dataclasses

from sluicegate.errors import SavepointRefused
from sluicegate_operator.api.checkpoint_volume import DELETE
from sluicegate_operator.api.locations import savepoint_folder
from sluicegate_operator.api.savepoint import DeletionStatus, SavepointStatus
from sluicegate_operator.reconcile.actions import RemoveFinalizer, StorageAction
from sluicegate_operator.reconcile.context import (
    Outcome,
    accept_spec,
    backoff,
    ended_after,
    limit_retry,
    limit_to_now,
)
from sluicegate_operator.reconcile.observed import Savepoint, SavepointObserved
from sluicegate_operator.reconcile.savepoint.attempt import (
    SavepointContext,
    attempt_savepoint,
    may_be_completed,
    record_attempts,
)
from sluicegate_operator.reconcile.schedule import due_tick, is_too_late
from sluicegate_operator.reconcile.storage_tasks import Dispose, Done, FailedTask, TakeSavepoint

_DISPOSE_TIMEOUT_S = 1800.0
_REFUSED = SavepointRefused.__name__
_LISTED_JOBS = 5

_KEPT_FOR_JOBS = 100
"""How many savepoints of a schedule are kept, if its history is shorter, while a job may be restored from
one: every write of the status carries them all."""

SavepointOutcome = Outcome[SavepointStatus, StorageAction]


def reconcile_savepoint(
    savepoint: Savepoint, observed: SavepointObserved, now: float
) -> SavepointOutcome:
    """Decide what to do about a savepoint now (seconds since 1970), by the newest status that is known.

    Raises:
        SettingsInvalid: the schedule is invalid; the caller answers with `reject_spec`.
    """
    now = round(now, 3)
    context = SavepointContext(
        _limited_to_now(savepoint.status, now),
        savepoint.generation,
        now,
        tasks=observed.tasks,
        savepoint=savepoint,
        observed=observed,
    )
    accept_spec(context, savepoint.ignored_fields)
    record_attempts(context)
    _record_disposals(context)
    if savepoint.deleted:
        _finalize(context)
        return context.outcome()
    wanted = savepoint.spec.reclaim_policy == DELETE or bool(observed.needed_by)
    context.set_finalizer(wanted=wanted, present=savepoint.has_finalizer)
    edited = savepoint.generation != savepoint.status.observed_generation
    if edited or may_be_completed(context):
        # a person who changes the spec wants another attempt
        context.set(failure_reason="", failures=0, next_retry_time=None)
    _plan(context)
    if context.status.folder:
        attempt_savepoint(context)
    _trim_history(context)
    _set_phase(context)
    return context.outcome()


def _limited_to_now(status: SavepointStatus, now: float) -> SavepointStatus:
    deletion = limit_to_now(status.deletion, now, "failed_time")
    deletion = limit_retry(deletion, now, "next_retry_time")
    status = limit_to_now(status, now, "failed_time", "last_schedule_time", "start_time")
    status = limit_retry(status, now, "next_retry_time")
    return dataclasses.replace(status, deletion=deletion)


# --- planning ----------------------------------------------------------------------------------------


def _plan(context: SavepointContext) -> None:
    """Assign a folder to the next savepoint if one is due."""
    schedule, status = context.spec.schedule, context.status
    if schedule is None:
        if not status.taken and not status.failure_reason:
            _assign_folder(context, None)
        return
    tick = due_tick(context, schedule, status.last_schedule_time, context.savepoint.created_at)
    if status.folder or tick is None:
        return  # the savepoints of a schedule never overlap
    if is_too_late(schedule, tick, context.now):
        context.set(last_schedule_time=tick)
        message = f"a savepoint is {context.now - tick:.0f} s late and was skipped"
        context.emit_event("SavepointMissed", message, warning=True)
        return
    _assign_folder(context, tick)


def _assign_folder(context: SavepointContext, tick: float | None) -> None:
    """Record where the next savepoint is stored; wait as long as its volume is unknown."""
    volume, savepoint = context.target, context.savepoint
    if volume is None:
        context.wait(*context.no_target())
        return
    if context.status.folder:
        return
    folder = savepoint_folder(volume.spec, context.spec.job, savepoint.name, savepoint.uid, tick)
    context.start_over(folder)
    context.set(volume=volume.name)
    if tick is not None:
        context.set(last_schedule_time=tick)


# --- deletion ----------------------------------------------------------------------------------------


def _trim_history(context: SavepointContext) -> None:
    """Drop savepoints beyond the history of a schedule, and delete their data if configured."""
    taken = context.status.taken
    kept = len(taken) if context.spec.schedule is None else _history(context)
    context.set(taken=taken[:kept])
    if context.spec.reclaim_policy == DELETE:
        dropped = (one.location for one in taken[kept:])
        context.set(pending_deletion=(*context.status.pending_deletion, *dropped))
    pending = context.status.pending_deletion
    if pending:
        _dispose(context, Dispose(locations=pending, force=context.savepoint.force))


def _history(context: SavepointContext) -> int:
    """Return how many savepoints of a schedule are kept, the newest ones.

    A driver is restored from the one that was the newest when the driver was created.
    """
    spec, taken = context.spec, context.status.taken
    if context.observed.needed_by:
        return max(spec.history, _KEPT_FOR_JOBS)
    kept = min(spec.history, len(taken))
    while spec.history_max_age_s and kept > 1:
        expires_at = taken[kept - 1].completion_time + spec.history_max_age_s
        if context.now < expires_at:
            context.requeue_at(expires_at)
            break
        kept -= 1
    return kept


def _dispose(context: SavepointContext, task: Dispose) -> tuple[str, str]:
    """Delete savepoints; return what the Savepoint waits for."""
    volume, deletion = context.target, context.status.deletion
    if volume is None:
        return context.no_target()
    in_progress = ("Disposing", "its data is being deleted")
    if context.running(Dispose):
        return in_progress
    forced = task.force and deletion.failure_reason == _REFUSED
    retry = deletion.next_retry_time
    if retry is not None and context.now < retry and not forced:
        context.requeue_at(retry)
        return deletion.failure_reason, deletion.last_error
    context.run(task, volume.name, _DISPOSE_TIMEOUT_S)
    return in_progress


def _record_disposals(context: SavepointContext) -> None:
    everything = _dispose_everything(context)
    for task, state in context.tasks_of(Dispose):
        deletion = context.status.deletion
        if isinstance(state, Done):
            pending = context.status.pending_deletion
            context.set(
                pending_deletion=tuple(one for one in pending if one not in task.locations),
                deletion=DeletionStatus(failed_time=deletion.failed_time),
                data_deleted=context.status.data_deleted
                or (context.savepoint.deleted and task == everything),
            )
        elif isinstance(state, FailedTask) and ended_after(state.at, deletion.failed_time):
            at, failures = round(state.at, 3), deletion.failures + 1
            failed = DeletionStatus(
                failures=failures,
                failed_time=at,
                next_retry_time=round(at + backoff(failures), 3),
                failure_reason=state.kind,
                last_error=state.summary,
            )
            context.set(deletion=failed)
            if deletion.failure_reason != state.kind:
                context.emit_event("NotDisposed", state.summary, warning=True)


def _dispose_everything(context: SavepointContext) -> Dispose:
    """Return the task that deletes every savepoint of this resource that still exists."""
    savepoint, volume, status = context.savepoint, context.target, context.status
    locations = (*status.pending_deletion, *(one.location for one in status.taken))
    folder = status.folder
    if volume is not None and context.spec.schedule is None and not folder:
        folder = savepoint_folder(volume.spec, context.spec.job, savepoint.name, savepoint.uid)
    return Dispose(locations, folder, savepoint.force)


def _finalize(context: SavepointContext) -> None:
    """Take the next step of a deleted Savepoint."""
    context.set(phase="Deleting")
    if not context.savepoint.has_finalizer:
        return
    status = context.status
    if status.taken and context.observed.needed_by and not context.savepoint.force:
        jobs = ", ".join(sorted(context.observed.needed_by)[:_LISTED_JOBS])
        message = (
            f"these jobs may still have to be restored from it: {jobs}; the annotation "
            "sluicegate.dev/force-dispose: 'true' deletes it nevertheless"
        )
        context.set_condition("Ready", "InUse", message, holds=False)
        return
    started = status.folder or status.taken or status.pending_deletion or status.attempts
    if context.spec.reclaim_policy != DELETE or status.data_deleted or not started:
        context.add_action(RemoveFinalizer())
        return
    context.set_condition("Ready", *_delete_data(context), holds=False)


def _delete_data(context: SavepointContext) -> tuple[str, str]:
    """Delete all data; return what the Savepoint waits for."""
    if context.running(TakeSavepoint):
        return "Taking", "it is being taken; its data is deleted after that"
    reason, message = _dispose(context, _dispose_everything(context))
    if reason == _REFUSED:
        message += "; the annotation sluicegate.dev/force-dispose: 'true' deletes it nevertheless"
    return reason, message


# --- status ------------------------------------------------------------------------------------------


def _set_phase(context: SavepointContext) -> None:
    """Set the phase and the condition Ready."""
    status = context.status
    if status.folder:
        context.set(phase="Taking" if context.taking else "Pending")
    elif status.taken:
        context.set(phase="Ready")
    else:
        context.set(phase="Failed" if status.failure_reason else "Pending")
    if status.failure_reason:
        context.set_condition("Ready", status.failure_reason, status.last_error, holds=False)
    elif status.taken and not status.folder:
        context.set_condition("Ready", "Taken", f"epoch {status.taken[0].epoch}", holds=True)
    elif context.waiting is not None:
        context.set_condition("Ready", *context.waiting, holds=False)
    elif not status.taken:
        context.set_condition("Ready", context.status.phase, holds=False)
