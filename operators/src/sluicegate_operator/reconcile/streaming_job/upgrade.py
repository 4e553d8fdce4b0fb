"""Upgrade to a changed spec: how the old driver ends, and which checkpoint the next one uses."""

from __future__ import annotations

import dataclasses

from sluicegate_operator.api.streaming_job import (
    LAST_STATE,
    SAVEPOINT,
    STATELESS,
)
from sluicegate_operator.api.streaming_job_status import (
    ACTIVE,
    APPLY_ONLY,
    REQUESTED,
    RUN,
    CheckpointStatus,
    StableSpecStatus,
    StreamingJobStatus,
    UpgradeStatus,
)
from sluicegate_operator.reconcile.actions import CreateSavepoint, DeleteSavepoint
from sluicegate_operator.reconcile.observed import READY
from sluicegate_operator.reconcile.readiness import needed_savepoints
from sluicegate_operator.reconcile.streaming_job.context import FOR_SAVEPOINT, UPGRADE, JobContext
from sluicegate_operator.reconcile.streaming_job.driver_lifecycle import (
    older_attempts_alive,
    request_driver,
    stop,
)
from sluicegate_operator.reconcile.streaming_job.failures import ACCESS, SEALED

_ABANDONED_KEPT = 3
"""How many abandoned savepoints of a checkpoint are remembered."""


def begin(context: JobContext) -> None:
    """Begin an upgrade if the newest driver has another spec than the job has now."""
    changed = context.driver.spec_hash != context.spec_hash
    if not changed or context.status.upgrade is not None or context.status.attempt == 0:
        return
    if not context.driver_active:
        # without a driver a savepoint would hold the same as the checkpoint itself
        mode = STATELESS if context.spec.upgrade_mode == STATELESS else LAST_STATE
        context.reset_failures()
        context.set(upgrade=UpgradeStatus(mode=mode))
        return
    if _waits_for_first_pod(context):
        return
    runs = context.driver.state == ACTIVE and context.driver.mode == RUN
    if context.spec.schedule is not None or not runs:
        return  # the next run uses the new spec, or there is no driver yet that could be stopped
    restarts = context.spec.restart_nonce != context.status.observed_restart_nonce
    if context.observed.upgrade_queued and not (restarts or context.driver.stop_reason):
        context.upgrade_queued = context.observed.upgrade_queued
        return  # the old driver keeps running
    mode = context.spec.upgrade_mode
    if mode == SAVEPOINT and context.driver.start_time is None:
        mode = LAST_STATE
    name = f"{_name_prefix(context)}{context.status.attempt}" if mode == SAVEPOINT else ""
    context.set(upgrade=UpgradeStatus(mode=mode, savepoint=name))
    if not context.driver.stop_reason:
        context.set_driver(stop_reason=FOR_SAVEPOINT if name else UPGRADE, stop_time=context.now)
    context.emit_event(
        "Upgrading",
        f"the spec has changed; stopping attempt {context.status.attempt} (upgrade mode {mode})",
    )


def _waits_for_first_pod(context: JobContext) -> bool:
    """Begin a stateless upgrade although the newest driver has no pod yet; return whether it has begun.

    Otherwise its pod would be created with the new spec on the checkpoint that the user wants to leave.
    """
    later_run = context.status.attempt > 1 and context.driver.mode == RUN
    if not later_run or context.driver.state != REQUESTED or context.spec.upgrade_mode != STATELESS:
        return False
    context.set(upgrade=UpgradeStatus(mode=STATELESS))
    return True


def advance(context: JobContext) -> bool:
    """Take the next step of an upgrade; return True when the next driver may start."""
    if context.status.upgrade is None:
        return True
    upgrade = _follow_spec(context, context.status.upgrade)
    if upgrade.savepoint and not _await_savepoint(context, upgrade.savepoint):
        return False
    if context.driver_active:
        ends = context.driver.mode == APPLY_ONLY or context.driver.stop_reason
        if ends or not stop(context, UPGRADE):
            return False
    upgrade = context.status.upgrade  # the savepoint may have been abandoned
    if upgrade.mode == STATELESS and not context.status.all_epochs_applied:
        if not _apply_given_up(context):
            return _apply_old_checkpoint(context)
        context.emit_event(
            "ApplySkipped",
            "the annotation sluicegate.dev/skip-apply gives up a decided epoch that could not be applied: it "
            "may be in some sinks only, and stays in checkpoint "
            f"{context.status.checkpoint.number}. Remove the annotation",
            warning=True,
        )
    if upgrade.mode in (SAVEPOINT, STATELESS):
        _switch_checkpoint(context, upgrade.savepoint)
    context.reset_failures()
    finished = context.status.finished and context.spec.schedule is not None
    context.set(upgrade=None, finished=finished)
    context.set_driver(spec_hash=context.spec_hash)
    return True


def _follow_spec(context: JobContext, upgrade: UpgradeStatus) -> UpgradeStatus:
    """Return the upgrade in the mode of the newest spec: whether the checkpoint is kept may be corrected."""
    stateless = context.spec.upgrade_mode == STATELESS
    if stateless == (upgrade.mode == STATELESS):
        return upgrade
    changed = UpgradeStatus(mode=STATELESS if stateless else LAST_STATE)
    context.set(upgrade=changed)
    if upgrade.savepoint:
        _abandon(context, upgrade.savepoint)
    return changed


def _abandon(context: JobContext, savepoint: str) -> None:
    """Go on without a savepoint, which may still be completed and seal the checkpoint."""
    abandoned = (*context.status.checkpoint.abandoned_savepoints, savepoint)
    context.set_checkpoint(abandoned_savepoints=abandoned[-_ABANDONED_KEPT:])
    if context.driver_active and context.driver.stop_reason == FOR_SAVEPOINT:
        context.set_driver(stop_reason=UPGRADE, stop_time=context.now)


def trim_history(context: JobContext) -> None:
    """Delete the oldest Savepoints of this job's upgrades, except those that it may still need."""
    prefix = _name_prefix(context)
    attempts = sorted(
        int(name.removeprefix(prefix))
        for name in context.observed.savepoints
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
    )
    needed = needed_savepoints(context.spec, context.status)
    for attempt in attempts[: -context.spec.upgrade_savepoint_history]:
        name = f"{prefix}{attempt}"
        if name not in needed and not context.observed.savepoints[name].deleted:
            context.add_action(DeleteSavepoint(name))


def _name_prefix(context: JobContext) -> str:
    """Return the beginning of the names of this job's upgrade Savepoints, which no later job shares."""
    return f"{context.job.name}-upgrade-{context.job.uid[:8]}-"


def resume_from_late_savepoint(context: JobContext) -> None:
    """Continue from a savepoint that sealed the checkpoint after its upgrade had stopped waiting for it.

    This happens only after a driver has found the seal, and only once: the new checkpoint starts without
    abandoned savepoints.
    """
    changing = context.driver_active or context.status.upgrade is not None
    if changing or context.status.failure_reason != SEALED:
        return
    for name in reversed(context.status.checkpoint.abandoned_savepoints):
        if _taken(context, name):
            _switch_checkpoint(context, name)
            context.reset_failures()
            context.emit_event(
                "SavepointLate",
                f"savepoint {name} was completed after the upgrade had continued without it; the job "
                f"resumes from it as checkpoint {context.status.checkpoint.number}",
                warning=True,
            )
            return


def _switch_checkpoint(context: JobContext, savepoint: str) -> None:
    """Leave the checkpoint for a new one that starts empty or from a savepoint of the old one."""
    status = context.status
    used = (pod.checkpoint_number for pod in context.observed.pods)
    number = max(status.checkpoint.number, status.latest_checkpoint_number, *used) + 1
    stable = status.last_stable_spec
    if stable is not None and stable.checkpoint.number == status.checkpoint.number:
        context.set(last_stable_spec=_stable_spec_after(stable, status, number, savepoint))
    context.set(
        checkpoint=CheckpointStatus(number=number, restored_from=savepoint),
        latest_checkpoint_number=number,
        all_epochs_applied=True,
    )


def _stable_spec_after(
    stable: StableSpecStatus, status: StreamingJobStatus, number: int, savepoint: str
) -> StableSpecStatus:
    """Return the last stable spec after its checkpoint was left."""
    if not savepoint:
        abandoned = status.checkpoint.abandoned_savepoints
        kept = dataclasses.replace(stable.checkpoint, abandoned_savepoints=abandoned)
        return dataclasses.replace(stable, checkpoint=kept)
    # the old checkpoint is sealed, so a rollback continues with the new one
    return dataclasses.replace(
        stable, checkpoint=CheckpointStatus(number=number, restored_from=savepoint)
    )


def _taken(context: JobContext, name: str) -> bool:
    """Return whether a Savepoint exists and is complete."""
    savepoint = context.observed.savepoints.get(name)
    return savepoint is not None and savepoint.phase == READY


def _await_savepoint(context: JobContext, name: str) -> bool:
    """Request the upgrade's savepoint; return True when it is ready, or abandoned."""
    savepoint = context.observed.savepoints.get(name)
    began = context.driver.stop_time or context.now
    if savepoint is not None and savepoint.started_at is not None:
        began = max(began, savepoint.started_at)
    deadline = began + context.spec.savepoint_timeout_s
    if _taken(context, name):
        _require_end(context, deadline)
        return True
    failed = savepoint is not None and savepoint.phase == "Failed"
    # only another driver can apply what one has left that died, so the checkpoint cannot be sealed; and
    # without a driver a savepoint that has not begun would hold the same as the checkpoint itself
    useless = not context.status.all_epochs_applied or (savepoint is not None and savepoint.queued)
    died = useless and not context.driver_active
    if not (failed or died) and savepoint is not None and savepoint.queued:
        # the driver runs until its savepoint is requested
        context.wait("SavepointQueued", f"savepoint {name} waits for those of other jobs")
        return False
    if not (failed or died) and context.now < deadline:
        if savepoint is None:
            context.add_action(CreateSavepoint(name, context.status.attempt))
        if context.driver.stop_time is None:  # adopted since: the deadline must not move
            context.set_driver(stop_reason=FOR_SAVEPOINT, stop_time=context.now)
        context.wait("TakingSavepoint", f"savepoint {name} is being taken")
        context.requeue_at(deadline)
        return False
    why = "its driver has ended" if died else "it timed out"
    if savepoint is not None and failed:
        why = savepoint.message
    context.set(upgrade=UpgradeStatus(mode=LAST_STATE))
    _abandon(context, name)
    context.emit_event(
        "SavepointFailed",
        f"savepoint {name} was not taken ({why}); the upgrade continues with the checkpoint as it is",
        warning=True,
    )
    return True


def _require_end(context: JobContext, deadline: float) -> None:
    """Stop a driver that has not exited by itself in time after its savepoint sealed the checkpoint."""
    if not context.driver_active or context.driver.stop_reason != FOR_SAVEPOINT:
        return
    if context.now < deadline:
        context.wait("TakingSavepoint", "the driver has its savepoint and has not ended yet")
        context.requeue_at(deadline)
    else:
        context.set_driver(stop_reason=UPGRADE, stop_time=context.now)


def _apply_given_up(context: JobContext) -> bool:
    """Return whether a person has given up an epoch that an apply-only driver failed to apply for good.

    An annotation that was not removed after an earlier upgrade gives up nothing that can be applied.
    """
    failed = context.driver.mode == APPLY_ONLY and context.status.failure_reason
    return context.job.skip_apply and bool(failed)


def _apply_old_checkpoint(context: JobContext) -> bool:
    """Apply what the old checkpoint has decided before it is left; return False."""
    if context.driver.mode == RUN:
        # why the job's own driver ended does not say that its epoch cannot be applied
        context.reset_failures()
    if context.status.failure_reason:
        context.wait(
            "ApplyFailed",
            "a sink may lack a decided epoch of the old checkpoint, which cannot be applied: "
            f"{context.status.last_error}",
        )
    elif can_start(context, APPLY_ONLY):
        request_driver(context, APPLY_ONLY)
    return False


def can_start(context: JobContext, mode: str = RUN) -> bool:
    """Return whether a driver may be requested now; otherwise record what the job waits for."""
    alive = older_attempts_alive(context)
    if alive:
        context.wait("OldDriverAlive", f"attempt {alive[0]} has not ended yet")
        return False
    start = context.status.next_start_time
    if start is not None and context.now < start and not _access_changed(context):
        context.wait("BackingOff", context.status.last_error)
        context.requeue_at(start)
        return False
    observed = context.observed
    usable = mode == APPLY_ONLY and observed.volume_usable_for_apply
    if not (observed.volume_ready or usable):
        message = observed.volume_message or "the CheckpointVolume is not ready"
        context.wait("VolumeNotReady", message)
        return False
    return mode == APPLY_ONLY or _initial_savepoint_ready(context)


def _access_changed(context: JobContext) -> bool:
    """Return whether the volume is reached in another way, or again, since access to it was denied."""
    newest = context.status.failures[-1] if context.status.failures else None
    if newest is None or newest.kind != ACCESS:
        return False
    ready_since = context.condition_since("VolumeReady")
    returned = ready_since is not None and ready_since > newest.time
    return returned or newest.volume_access != context.observed.volume_access


def _initial_savepoint_ready(context: JobContext) -> bool:
    """Return whether the savepoint that the checkpoint starts from exists, or is no longer needed."""
    name = context.status.checkpoint.restored_from
    if not name or context.status.checkpoint.last_epoch is not None or _taken(context, name):
        return True
    found, state = context.observed.savepoints.get(name), "does not exist"
    if found is not None:
        state = f"is {found.phase}: {found.message}".rstrip(": ")
    context.wait(
        "SavepointNotReady",
        f"checkpoint {context.status.checkpoint.number} starts from Savepoint {name}, which {state}",
    )
    return False
