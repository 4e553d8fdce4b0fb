"""What the operator can do about a resource. Each action may be repeated, and may come too late.

A controller writes the status first, with the resourceVersion that was read. If that write is refused
it performs nothing; otherwise it performs the actions in order, until one fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.reconcile.storage_tasks import Task


@dataclass(frozen=True)
class AddFinalizer:
    """Add our finalizer to the resource: work remains to be done before it may disappear."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Remove our finalizer from the resource."""


@dataclass(frozen=True)
class EmitEvent:
    """Create an Event."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True)
class CreateDriver:
    """Create the pod `<job>-<attempt>-driver` with our finalizer; an existing pod counts as success.

    Args:
        mode: what the driver is for (`streaming_job_status`): run the job, or only apply decided
            epochs and exit.
        spec_hash: digest of `spec`, for its annotations.
        checkpoint_number: which of the job's checkpoints it uses.
        restore_from: the Savepoint with which an empty checkpoint starts. A Savepoint that no longer
            exists may be left out once the checkpoint has an epoch.
        spec: what the driver runs; after a rollback this differs from the resource's spec.
        request: the number of this request for the pod.
        standby: whether the driver waits for `PromoteStandby` before it reads its checkpoint.
    """

    attempt: int
    mode: str
    spec_hash: str
    checkpoint_number: int
    restore_from: str
    spec: StreamingJobSpec
    request: int = 1
    standby: bool = False


@dataclass(frozen=True)
class PromoteStandby:
    """Let a standby go on: its pod becomes that of the newest driver."""

    name: str
    uid: str


@dataclass(frozen=True)
class StopDriver:
    """Delete a pod that still has this uid, and give its driver time to finish the epoch."""

    name: str
    uid: str
    grace_s: float


@dataclass(frozen=True)
class RemovePodFinalizer:
    """Remove our finalizer from a dead pod, which stays for its logs."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeletePod:
    """Delete a pod that is dead or abandoned, and remove our finalizer from it."""

    name: str
    uid: str


@dataclass(frozen=True)
class CreateSavepoint:
    """Create a Savepoint with `stop: true`; an existing one of this job counts as success.

    It stops the driver of this attempt, and must not stop a later one.
    """

    name: str
    attempt: int


@dataclass(frozen=True)
class DeleteSavepoint:
    """Delete a Savepoint that an upgrade of this job created."""

    name: str


@dataclass(frozen=True)
class DeleteCheckpoint:
    """Delete everything below the job's path on its volume, while the job of this uid exists."""

    job_uid: str


@dataclass(frozen=True)
class DeleteJob:
    """Delete the StreamingJob itself, if it is still the version that was read: it has expired."""


PodAction = PromoteStandby | StopDriver | RemovePodFinalizer | DeletePod

JobAction = (
    AddFinalizer
    | RemoveFinalizer
    | EmitEvent
    | CreateDriver
    | PromoteStandby
    | StopDriver
    | RemovePodFinalizer
    | DeletePod
    | CreateSavepoint
    | DeleteSavepoint
    | DeleteCheckpoint
    | DeleteJob
)


@dataclass(frozen=True)
class RunTask:
    """Start a task for this resource, unless it is running or its result has not been forgotten.

    The end of the task triggers the next reconciliation, which sees the result.

    The CheckpointVolume of the same namespace provides endpoint and keys. The task is killed after
    `timeout_s`.
    """

    task: Task
    volume: str
    timeout_s: float


@dataclass(frozen=True)
class ForgetTask:
    """Forget an ended task, whose result is in the status; a running or unknown one is left alone."""

    task: Task


StorageAction = AddFinalizer | RemoveFinalizer | EmitEvent | RunTask | ForgetTask
