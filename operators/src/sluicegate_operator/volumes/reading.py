"""What others read from a CheckpointVolume's and a Savepoint's status. Pure.

Called by whoever makes the views of jobs, volumes and drivers.
"""

from __future__ import annotations

from sluicegate_operator.reconcile.observed import READY, Taken
from sluicegate_operator.resources.addresses import access_of
from sluicegate_operator.resources.savepoint import SavepointStatus
from sluicegate_operator.resources.volume import CheckpointVolumeSpec, CheckpointVolumeStatus


def readiness(spec: CheckpointVolumeSpec, status: CheckpointVolumeStatus) -> tuple[bool, str]:
    """Return whether a driver may be started on a volume, and why not.

    The answer is about the endpoint and the name of the Secret that are in the spec now; another
    change of the spec does not unsettle it.
    """
    if status.phase == READY and status.checked_access.partition("/")[0] == access_of(spec):
        return True, ""
    if status.phase == "Deleting":
        return False, "the CheckpointVolume is being deleted"
    if status.phase == "Failed":
        return False, f"{status.failed}: {status.last_error}"
    return False, "the CheckpointVolume has not been checked yet"


def usable(spec: CheckpointVolumeSpec, status: CheckpointVolumeStatus) -> bool:
    """Return whether what was begun on a volume may be ended there, also while it is being deleted."""
    if status.phase != "Deleting":
        return readiness(spec, status)[0]
    checked = status.checked_access.partition("/")[0] == access_of(spec)
    return checked and not status.emptied


def taken(status: SavepointStatus) -> Taken:
    """Return what a job reads of a Savepoint (`reconcile.observed.Observed.savepoints`)."""
    if status.phase == "Failed":
        return Taken("Failed", f"{status.failed}: {status.last_error}")
    if status.taken:
        return Taken(READY)
    said = next((c.message for c in status.conditions if c.type == READY), "")
    return Taken("Pending", said or status.last_error)


def restore_address(status: SavepointStatus) -> tuple[str, str]:
    """Return the address that a job is restored from, or an empty one and why there is none."""
    if status.taken:
        return status.taken[0].location, ""
    if status.phase == "Failed":
        return "", f"the Savepoint was not taken: {status.failed}: {status.last_error}"
    return "", "the Savepoint is not taken yet"


def named(status: SavepointStatus) -> tuple[str, ...]:
    """Return the addresses that a Savepoint names, which its volume's retention leaves alone."""
    return tuple(one.location for one in status.taken)


def busy(status: SavepointStatus) -> tuple[str, ...]:
    """Return the folder in which a Savepoint may be being taken."""
    return (status.folder,) if status.folder else ()
