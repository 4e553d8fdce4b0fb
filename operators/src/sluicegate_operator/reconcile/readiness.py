"""What other resources derive from the status of a CheckpointVolume or a Savepoint."""

from __future__ import annotations

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.locations import store_access_digest
from sluicegate_operator.api.savepoint import SavepointStatus
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


def savepoint_state(status: SavepointStatus) -> SavepointState:
    """Return what a job needs to know of a Savepoint."""
    if status.phase == "Failed":
        return SavepointState("Failed", f"{status.failure_reason}: {status.last_error}")
    if status.taken:
        return SavepointState(READY)
    message = next((c.message for c in status.conditions if c.type == READY), "")
    return SavepointState("Pending", message or status.last_error)


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
