"""Tasks on an object store, their results, states and errors: the values that both sides exchange.

A reconciler requests a task, `storage_tasks.queue` runs it and reports its state, and a worker process
does the work. A task is a value: equal tasks are the same work. Each task can be repeated, and may be
killed at any point. It carries no credentials; the CheckpointVolume that it runs for provides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.errors import SluicegateError

COPY, SEAL, REQUEST, FINISH = "copy", "seal", "request", "finish"
"""How a savepoint is taken. COPY copies the checkpoint, whether its job runs or not. SEAL copies the
checkpoint of a stopped job and closes it. REQUEST asks the driver of a running job to stop, copy its
checkpoint and close it. FINISH copies a checkpoint that an earlier attempt of the same savepoint has
closed."""


@dataclass(frozen=True)
class CheckVolume:
    """Verify that a volume exists, grants access, and creates each object only once.

    Args:
        make_bucket: create the bucket if it does not exist. Set only until the volume has passed its
            first check: a bucket that disappears later took checkpoints with it.
        region: where the bucket is created.
        access: a digest of the endpoint, region and keys that the result is valid for.
        owner: kind, namespace, name and uid of the resource that becomes the owner of the address, unless
            another one is.
    """

    volume: str
    make_bucket: bool
    region: str
    access: str
    owner: tuple[str, ...] = ()


@dataclass(frozen=True)
class VolumeChecked:
    """The volume has passed its check; `bucket_created`: this task created its bucket."""

    bucket_created: bool


@dataclass(frozen=True)
class Measure:
    """Count the objects below an address."""

    volume: str


@dataclass(frozen=True)
class Measured:
    """Size of a volume; `last_epoch_time`: of any job's newest epoch, in seconds since 1970."""

    bytes: int
    objects: int
    last_epoch_time: float | None = None


@dataclass(frozen=True)
class Delete:
    """Delete everything below an address, which must not be a whole bucket.

    Nothing is deleted if another resource than `owner` (as of `CheckVolume`) owns the address or a folder
    below it. A CheckpointVolume may delete what StreamingJobs of its namespace own.
    """

    address: str
    owner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deleted:
    """How many objects this task deleted; a repeated task counts only what was left."""

    objects: int


@dataclass(frozen=True)
class TakeSavepoint:
    """Take a savepoint, unless its folder contains one already.

    Args:
        checkpoint: address of the job's checkpoint.
        folder: used by this savepoint alone.
        method: COPY, SEAL, REQUEST or FINISH.
        accept_timeout_s: how long the driver may take to accept a REQUEST.
    """

    checkpoint: str
    folder: str
    method: str = COPY
    accept_timeout_s: float = 60.0


@dataclass(frozen=True)
class SavepointTaken:
    """A complete savepoint.

    Args:
        epoch: the last epoch that it contains.
        at: when it was taken, in seconds since 1970, by the clock of the process that took it.
        sealed: it closed its checkpoint, so its job can continue from it elsewhere.
    """

    location: str
    epoch: int
    at: float
    sealed: bool


@dataclass(frozen=True)
class Dispose:
    """Delete savepoints; a savepoint that does not exist is no error.

    Args:
        folder: delete everything in this folder too, complete or not; no process may be taking a
            savepoint there.
        force: also delete a savepoint that is the only way for a sealed job to continue.
    """

    locations: tuple[str, ...] = ()
    folder: str = ""
    force: bool = False


@dataclass(frozen=True)
class Disposed:
    """How many savepoints this task deleted."""

    savepoints: int


@dataclass(frozen=True)
class Prune:
    """Delete what exceeds the retention, and leftovers that nothing else cleans up.

    Args:
        savepoints: how many of each job's newest savepoints are retained; 0: all.
        epochs: how many decided records are retained in each checkpoint.
        referenced: savepoints that a resource refers to; they are retained.
        in_progress: folders in which a savepoint may be in progress; their contents are retained.
    """

    volume: str
    savepoints: int
    epochs: int
    referenced: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pruned:
    """How many savepoints, unfinished savepoints and objects this task deleted."""

    savepoints: int
    unfinished: int
    objects: int


Task = CheckVolume | Measure | Delete | TakeSavepoint | Dispose | Prune
Result = VolumeChecked | Measured | Deleted | SavepointTaken | Disposed | Pruned

TASKS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "check": (CheckVolume, VolumeChecked),
    "measure": (Measure, Measured),
    "delete": (Delete, Deleted),
    "take": (TakeSavepoint, SavepointTaken),
    "dispose": (Dispose, Disposed),
    "prune": (Prune, Pruned),
}
"""Name of a task on the worker's command line -> its class and that of its result, both flat JSON objects."""


@dataclass(frozen=True)
class Running:
    """The task is queued or running.

    Args:
        since: when it was requested, in seconds since 1970.
        started_at: when it began to run; None: it is queued.
    """

    since: float
    started_at: float | None = None


@dataclass(frozen=True)
class Done:
    """The task succeeded at `at` (seconds since 1970); `result` is a `Result` of the task's kind."""

    at: float
    result: Any


@dataclass(frozen=True)
class FailedTask:
    """The task failed at `at`: `kind` is the class of the error, the rest are its three parts."""

    at: float
    kind: str
    what: str
    data: str = ""
    do: str = ""

    @property
    def summary(self) -> str:
        """The error in one line."""
        return f"{self.what}; {self.do}" if self.do else self.what


TaskState = Running | Done | FailedTask


class RequestNotAccepted(SluicegateError, retryable=True):
    """No driver accepted the stop request, which was withdrawn."""


class NotAnswered(SluicegateError, retryable=True):
    """A driver accepted the stop request and did not answer it in time."""


class NotStopped(SluicegateError, retryable=True):
    """The driver accepted the stop request and ended without taking the savepoint."""


def task_name(task: Task) -> str:
    """Return a task's name on the command line."""
    return next(name for name, (kind, _) in TASKS.items() if isinstance(task, kind))


def parse_task(name: str, body: Mapping[str, Any]) -> Task:
    """Return the task of a name from its JSON object.

    Raises:
        LookupError: no task has this name.
        TypeError: the object has other fields than the task.
    """
    task: Task = TASKS[name][0](**_with_tuples(body))
    return task


def parse_result(name: str, body: Mapping[str, Any]) -> Result:
    """Return the result of the task of a name from its JSON object; raises like `parse_task`."""
    result: Result = TASKS[name][1](**_with_tuples(body))
    return result


def _with_tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in body.items()}
