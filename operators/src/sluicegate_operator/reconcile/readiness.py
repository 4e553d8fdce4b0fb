"""What other resources derive from the status of a CheckpointVolume or a Savepoint."""

from __future__ import annotations

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.locations import store_access_digest
from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.observed import READY, SavepointState


def readiness(spec: CheckpointVolumeSpec, status: CheckpointVolumeStatus) -> tuple[bool, str]:
    """Return whether a driver may start on a volume, and the reason if it may not.

    The answer applies to the endpoint and the Secret names in the current spec; any other change of the
    spec does not make a checked volume unready.
    """
    if status.phase == READY and _was_checked(spec, status):
        return True, ""
    if status.phase == "Deleting":
        return False, "the CheckpointVolume is being deleted"
    if status.phase == "Failed":
        return False, f"{status.failure_reason}: {status.last_error}"
    return False, "the CheckpointVolume has not been checked yet"


def usable_for_apply(spec: CheckpointVolumeSpec, status: CheckpointVolumeStatus) -> bool:
    """Return whether a driver that only applies decided epochs may start on a volume.

    It may also start while the volume is being deleted, until its data is deleted.
    """
    if status.phase != "Deleting":
        return readiness(spec, status)[0]
    return _was_checked(spec, status) and not status.data_deleted


def _was_checked(spec: CheckpointVolumeSpec, status: CheckpointVolumeStatus) -> bool:
    return status.checked_access.partition("/")[0] == store_access_digest(spec)


def savepoint_state(status: SavepointStatus, *, deleted: bool = False) -> SavepointState:
    """Return what a job needs to know of a Savepoint; `deleted`: somebody has deleted it."""
    if status.phase == "Failed":
        message = f"{status.failure_reason}: {status.last_error}"
        return SavepointState("Failed", message, deleted=deleted)
    if status.taken:
        return SavepointState(READY, deleted=deleted)
    message = next((c.message for c in status.conditions if c.type == READY), "")
    return SavepointState(
        "Pending",
        message or status.last_error,
        queued=status.phase == "Taking" and status.start_time is None,
        started_at=status.start_time,
        deleted=deleted,
    )


def needed_savepoints(spec: StreamingJobSpec, status: StreamingJobStatus) -> frozenset[str]:
    """Return the names of the Savepoints that a job is or may be restored from.

    Until the first epoch of a checkpoint a driver may have to restore it again. A savepoint of an upgrade
    seals its checkpoint, so without it the job could not continue; that may also come late.
    """
    names = [spec.checkpoint.restore_from] if not status.attempt else []
    if status.upgrade is not None:
        names.append(status.upgrade.savepoint)
    stable = status.last_stable_spec
    for checkpoint in (status.checkpoint, *((stable.checkpoint,) if stable else ())):
        names += checkpoint.abandoned_savepoints
        if checkpoint.last_epoch is None:
            names.append(checkpoint.restored_from)
    return frozenset(names) - {""}


def restore_address(status: SavepointStatus) -> tuple[str, str]:
    """Return the address that a job is restored from, or an empty one and why there is none."""
    if status.taken:
        return status.taken[0].location, ""
    if status.phase == "Failed":
        return "", f"the Savepoint failed: {status.failure_reason}: {status.last_error}"
    return "", "the Savepoint has not been taken yet"


def referenced_savepoints(status: SavepointStatus) -> tuple[str, ...]:
    """Return the addresses that a Savepoint refers to; its volume's retention leaves them alone."""
    return tuple(one.location for one in status.taken)


def folders_in_progress(status: SavepointStatus) -> tuple[str, ...]:
    """Return the folder in which a savepoint may be in progress, if any."""
    return (status.folder,) if status.folder else ()
