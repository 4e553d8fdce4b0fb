"""A savepoint is taken, by us or by the running driver; and savepoints are removed.

What each means is the library's (`sluicegate.checkpoint`). Called by `store.__main__`.
"""

from __future__ import annotations

from sluicegate.checkpoint import requests, savepoints
from sluicegate.checkpoint.manifest import MANIFEST, TAKING, Manifest
from sluicegate.checkpoint.savepoints import Savepoint
from sluicegate.protocol.errors import SavepointRefused, SluicegateError
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import Objects, open_objects
from sluicegate_operator.volumes.tasks import (
    ASK,
    BESIDE,
    Dispose,
    Disposed,
    SavepointTaken,
    Take,
)

_FINISH_S = 900.0
"""How long a driver that has taken a request up may need: an epoch, and copying."""


class NotTakenUp(SluicegateError):
    """No driver took the request up; it is withdrawn."""

    restartable = True


class NotAnswered(SluicegateError):
    """A driver took the request up, and has not answered."""

    restartable = True


class NotStopped(SluicegateError):
    """The driver ended otherwise than asked."""

    restartable = True


def take(task: Take) -> SavepointTaken:
    """Take a savepoint, or return the one that its folder has already.

    Raises:
        NotTakenUp, NotAnswered, NotStopped: the driver that was asked.
        SluicegateError: see `savepoints.take`.
    """
    found = _finished(task)
    if found is not None:
        return found
    objects = open_objects(task.checkpoint)
    if task.how == ASK and StoredEpochLog(objects).seal() is None:
        return _asked(task, objects)
    made = savepoints.take(task.checkpoint, task.folder, seal=task.how != BESIDE)
    assert made.manifest is not None
    return _told(made, made.manifest)


def _finished(task: Take) -> SavepointTaken | None:
    """Return the newest savepoint of the folder that is as wished: an earlier try's."""
    for one in reversed(savepoints.listed(task.folder)):
        if one.manifest is not None and (one.manifest.sealed or task.how == BESIDE):
            return _told(one, one.manifest)
    return None


def _told(one: Savepoint, manifest: Manifest) -> SavepointTaken:
    return SavepointTaken(one.url, manifest.epoch, manifest.created_at_ms / 1000, manifest.sealed)


def _asked(task: Take, objects: Objects) -> SavepointTaken:
    """Have the running driver stop at an epoch's end and take it."""
    lineage = read_lineage(objects)
    if lineage is None:
        raise SavepointRefused(
            f"{task.checkpoint} has no lineage yet",
            data="nothing was changed",
            do="the job's driver makes one at its first start; it is tried again",
        )
    request = requests.ask(objects, lineage.id, savepoint=task.folder, hold_s=task.hold_s)
    try:
        answer = requests.await_answer(objects, request, patience_s=task.hold_s + _FINISH_S)
    except TimeoutError as error:
        raise NotAnswered(
            f"a driver took the request up and has not answered for {_FINISH_S:g} s",
            data="it ends an epoch or copies, or has died; what is decided is applied in the end",
            do="look at its log; it is tried again",
        ) from error
    found = _finished(task)
    if found is not None:
        return found
    if answer is None:
        raise NotTakenUp(
            f"no driver of job {lineage.job} took the request up in {task.hold_s:g} s",
            data="the request is withdrawn; nothing was changed",
            do="see whether the job's driver makes epochs; it is tried again",
        )
    raise NotStopped(
        answer.said,
        data="what is decided is applied in the end; nothing is lost or repeated",
        do="see the driver's end; it is tried again",
    )


def dispose(task: Dispose) -> Disposed:
    """Remove savepoints; one that refuses does not keep the others.

    Raises:
        SavepointRefused: one moves a job that was never restored.
        SluicegateError: see `savepoints.dispose`.
    """
    inside = [one.url for one in savepoints.listed(task.folder)] if task.folder else []
    removed, failed = 0, None
    for url in dict.fromkeys((*task.locations, *inside)):
        try:
            removed += remove_savepoint(url, force=task.force)
        except SluicegateError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return Disposed(removed)


def remove_savepoint(url: str, *, force: bool = False) -> bool:
    """Remove a savepoint, also what is left of one; False if there is nothing.

    Raises:
        SluicegateError: see `savepoints.dispose`.
    """
    objects = open_objects(url)
    half = objects.read(MANIFEST) is None
    if half and objects.read(TAKING) is None:
        return False
    savepoints.dispose(url, unfinished=half, force=force)
    return True
