"""What can be done on an object store: tasks, their results, and how far one is. Values only.

A task is a value: the same task is the same work, each can be repeated, and may be killed anywhere.
It names no credentials: those are of the CheckpointVolume that it is run for. Not here: how it is
done (`store.child`), who runs it (`store.desk`). Called by `volumes` and `store`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BESIDE, SEAL, ASK = "beside", "seal", "ask"
"""How a savepoint is taken: beside the job, running or not; of a stopped job, which ends there; by
the driver of a running job, which ends there."""


@dataclass(frozen=True)
class Prepare:
    """See that a volume is there, lets us in, and creates an object once.

    Args:
        volume: its address.
        make_bucket: make the bucket if there is none. Only before the volume was ever fit: a bucket
            that has gone since took checkpoints with it.
        region: of the bucket, if it is made.
        access: what the answer is about: a digest of endpoint, region and keys.
    """

    volume: str
    make_bucket: bool
    region: str
    access: str


@dataclass(frozen=True)
class Prepared:
    """A volume is fit; `made` says whether its bucket was made now."""

    made: bool


@dataclass(frozen=True)
class Measure:
    """Count what is below an address."""

    volume: str


@dataclass(frozen=True)
class Measured:
    """What is there; `last_epoch_time` is of the newest epoch of any job, in seconds since 1970."""

    bytes: int
    objects: int
    last_epoch_time: float | None = None


@dataclass(frozen=True)
class Exists:
    """Say whether anything is below an address."""

    address: str


@dataclass(frozen=True)
class Found:
    """The answer."""

    exists: bool


@dataclass(frozen=True)
class Delete:
    """Remove everything below an address, which is never a whole bucket."""

    address: str


@dataclass(frozen=True)
class Deleted:
    """How many objects were removed; by a task that is repeated only the rest."""

    objects: int


@dataclass(frozen=True)
class Take:
    """Take a savepoint, unless its folder has one already.

    Args:
        checkpoint: address of the job's checkpoint.
        folder: for this savepoint alone.
        how: BESIDE, SEAL or ASK.
        hold_s: with ASK: how long the driver may take to notice.
    """

    checkpoint: str
    folder: str
    how: str = BESIDE
    hold_s: float = 60.0


@dataclass(frozen=True)
class SavepointTaken:
    """A savepoint that is there.

    Args:
        location: its address.
        epoch: the last that it holds.
        at: when it was taken, in seconds since 1970, by the taker's clock.
        sealed: it can move its job.
    """

    location: str
    epoch: int
    at: float
    sealed: bool


@dataclass(frozen=True)
class Dispose:
    """Remove savepoints; one that is not there is no error.

    Args:
        locations: their addresses.
        folder: and all in this folder, finished or not; nobody may be taking one there.
        force: also one that holds the only way on of a sealed job.
    """

    locations: tuple[str, ...] = ()
    folder: str = ""
    force: bool = False


@dataclass(frozen=True)
class Disposed:
    """How many savepoints were removed."""

    savepoints: int


@dataclass(frozen=True)
class Prune:
    """Remove what retention does not keep, and what nobody else tidies.

    Args:
        volume: its address.
        savepoints: the newest that are kept of each job; 0: all.
        epochs: decided records that are kept of each checkpoint.
        named: savepoints that a resource names: they stay.
        busy: folders in which a savepoint may be being taken: all in them stays.
    """

    volume: str
    savepoints: int
    epochs: int
    named: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pruned:
    """What was removed."""

    savepoints: int
    unfinished: int
    objects: int


Task = Prepare | Measure | Exists | Delete | Take | Dispose | Prune
Result = Prepared | Measured | Found | Deleted | SavepointTaken | Disposed | Pruned

TASKS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "prepare": (Prepare, Prepared),
    "measure": (Measure, Measured),
    "exists": (Exists, Found),
    "delete": (Delete, Deleted),
    "take": (Take, SavepointTaken),
    "dispose": (Dispose, Disposed),
    "prune": (Prune, Pruned),
}
"""Name -> the task, and its result."""


@dataclass(frozen=True)
class Running:
    """It runs, or waits for its turn, since `since` (seconds since 1970)."""

    since: float


@dataclass(frozen=True)
class Done:
    """It is done, at `at` (seconds since 1970)."""

    at: float
    result: Any
    """A `Result`: of the task's own kind."""


@dataclass(frozen=True)
class Broken:
    """It failed, at `at`: `kind` is the error's class; the rest is what the error says."""

    at: float
    kind: str
    what: str
    data: str = ""
    do: str = ""

    @property
    def said(self) -> str:
        """The error in a line."""
        return f"{self.what}; {self.do}" if self.do else self.what


TaskState = Running | Done | Broken


def name_of_task(task: Task) -> str:
    """Return a task's name."""
    return next(name for name, (kind, _) in TASKS.items() if isinstance(task, kind))


def to_json(thing: Task | Result) -> dict[str, Any]:
    """Return a task or result as JSON."""
    return dataclasses.asdict(thing)


def task_from(name: str, body: Mapping[str, Any]) -> Task:
    """Return the task of a name from JSON.

    Raises:
        LookupError: there is no such task.
        TypeError: its fields are others.
    """
    made: Task = TASKS[name][0](**_tuples(body))
    return made


def result_from(name: str, body: Mapping[str, Any]) -> Result:
    """Return the result of a task of a name from JSON; errors as `task_from`."""
    made: Result = TASKS[name][1](**_tuples(body))
    return made


def _tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in body.items()}
