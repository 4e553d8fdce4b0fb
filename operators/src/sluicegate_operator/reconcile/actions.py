"""What the operator can do about a job. Each may be done twice, and may be too late.

Whoever performs them writes the status first, with the resourceVersion that was read, and performs
nothing if that write is refused; then all in order, and none after one that failed. Not here: how.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.resources.job import StreamingJobSpec


@dataclass(frozen=True)
class AddFinalizer:
    """Hold the job: there is something to do before it may go."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Let the job go."""


@dataclass(frozen=True)
class CreateDriver:
    """Create the pod `<job>-<attempt>-driver`, held; that it exists already is success.

    Args:
        attempt: in its name and labels.
        purpose: 'run', or 'finish': apply what is decided, and end.
        spec_hash: of `spec`, for its annotations.
        checkpoint_number: which of the job's checkpoints.
        restore_from: the Savepoint that this checkpoint begins with, if it is empty. One that does
            not exist any more can be left out: the checkpoint has made an epoch since.
        spec: what the driver is to run; after a rollback that is not the resource's own.
    """

    attempt: int
    purpose: str
    spec_hash: str
    checkpoint_number: int
    restore_from: str
    spec: StreamingJobSpec


@dataclass(frozen=True)
class StopDriver:
    """Delete a pod, if its uid is still this, with time to end its epoch."""

    name: str
    uid: str
    grace_s: float


@dataclass(frozen=True)
class ReleasePod:
    """Take our finalizer off a dead pod, which stays for its logs."""

    name: str
    uid: str


@dataclass(frozen=True)
class DropPod:
    """Delete a pod that is dead, or given up, and take our finalizer off."""

    name: str
    uid: str


@dataclass(frozen=True)
class TakeSavepoint:
    """Create a Savepoint of this name with `stop: true`; that it exists already is success.

    Args:
        name: of the resource.
        attempt: the driver that it stops; it must not stop a later one.
    """

    name: str
    attempt: int


@dataclass(frozen=True)
class DeleteCheckpoint:
    """Remove everything below the job's path on its volume, while the job of this uid exists."""

    job_uid: str


@dataclass(frozen=True)
class Report:
    """Create an Event."""

    reason: str
    message: str
    warning: bool = False


Action = (
    AddFinalizer
    | RemoveFinalizer
    | CreateDriver
    | StopDriver
    | ReleasePod
    | DropPod
    | TakeSavepoint
    | DeleteCheckpoint
    | Report
)
