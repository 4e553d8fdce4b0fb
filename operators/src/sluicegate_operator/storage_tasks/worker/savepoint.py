"""Taking a savepoint, in this process or by the running driver, and deleting savepoints.

The library does the work (`sluicegate.savepoints`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sluicegate.errors import SavepointRefused, SluicegateError
from sluicegate.savepoints import stop_request
from sluicegate.savepoints.catalog import Savepoint, dispose_savepoint, list_savepoints
from sluicegate.savepoints.manifest import MANIFEST, Manifest, is_unfinished
from sluicegate.savepoints.take import take_savepoint
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store
from sluicegate_operator.reconcile.storage_tasks import (
    COPY,
    FINISH,
    REQUEST,
    Dispose,
    Disposed,
    NotAnswered,
    NotStopped,
    RequestNotAccepted,
    SavepointTaken,
    TakeSavepoint,
)

_ANSWER_TIMEOUT_S = 900.0
"""How long a driver that accepted a request may take to finish its epoch and copy its checkpoint."""


def take(task: TakeSavepoint) -> SavepointTaken:
    """Take a savepoint, or return the one that its folder already contains.

    Raises:
        RequestNotAccepted, NotAnswered, NotStopped: by the driver that received a request.
        SavepointRefused: FINISH, and this savepoint has not sealed the checkpoint.
        SluicegateError: see `take_savepoint`.
    """
    found = _find(task)
    if found is not None:
        return found
    checkpoint = open_store(task.checkpoint)
    seal = StoredEpochLog(checkpoint).seal()
    if task.method == REQUEST and seal is None:
        return _request(task, checkpoint)
    if task.method == FINISH and (seal is None or f" {task.folder}/" not in seal.why):
        state = "is not sealed" if seal is None else f"was sealed by another savepoint ({seal.why})"
        raise SavepointRefused(
            f"{task.checkpoint} {state}",
            data="nothing was changed",
            do="restore the savepoint that sealed the checkpoint",
        )
    savepoint = take_savepoint(checkpoint, task.folder, seal=task.method != COPY)
    assert savepoint.manifest is not None
    return _result(savepoint, savepoint.manifest)


def _find(task: TakeSavepoint) -> SavepointTaken | None:
    """Return the newest suitable savepoint in the folder, which an earlier attempt has left."""
    for savepoint in reversed(list_savepoints(task.folder)):
        manifest = savepoint.manifest
        if manifest is not None and (manifest.sealed or task.method == COPY):
            return _result(savepoint, manifest)
    return None


def _result(savepoint: Savepoint, manifest: Manifest) -> SavepointTaken:
    taken_at = manifest.created_at_ms / 1000
    return SavepointTaken(savepoint.url, manifest.epoch, taken_at, manifest.sealed)


def _request(task: TakeSavepoint, checkpoint: ObjectStore) -> SavepointTaken:
    """Request the running driver to stop after its epoch and take the savepoint."""
    lineage = read_lineage(checkpoint)
    if lineage is None:
        raise SavepointRefused(
            f"{task.checkpoint} has no lineage yet",
            data="nothing was changed",
            do="wait for the first start of the job's driver; the operator keeps trying",
        )
    request = stop_request.request_stop(
        checkpoint, lineage.id, savepoint=task.folder, valid_s=task.accept_timeout_s
    )
    timeout_s = task.accept_timeout_s + _ANSWER_TIMEOUT_S
    try:
        answer = stop_request.await_answer(checkpoint, request, timeout_s=timeout_s)
    except TimeoutError as error:
        raise NotAnswered(
            f"the driver accepted the request but has not answered for {_ANSWER_TIMEOUT_S:g} s",
            data="it is finishing an epoch or copying, or it has died; decided epochs are applied later",
            do="read the driver's log; the operator keeps trying",
        ) from error
    found = _find(task)
    if found is not None:
        return found
    if answer is None:
        raise RequestNotAccepted(
            f"no driver of job {lineage.job} accepted the request within {task.accept_timeout_s:g} s",
            data="the request was withdrawn and nothing was changed",
            do="check that the job's driver completes epochs; the operator keeps trying",
        )
    raise NotStopped(
        answer.message,
        data="decided epochs are applied later; nothing is lost or repeated",
        do="read how the driver ended; the operator keeps trying",
    )


class Steps:
    """Runs steps, continues after one that fails, and remembers the first error."""

    def __init__(self) -> None:
        self._error: SluicegateError | None = None

    def run(self, step: Callable[..., int], *arguments: object) -> int:
        """Return how many things a step deleted, 0 if it failed."""
        try:
            return int(step(*arguments))
        except SluicegateError as error:
            self._error = self._error or error
            return 0

    def check(self) -> None:
        """Raise the first error, if any."""
        if self._error is not None:
            raise self._error


def dispose(task: Dispose) -> Disposed:
    """Delete savepoints; if one cannot be deleted, the others still are.

    Raises:
        SavepointRefused: a savepoint moves a job that was never restored.
        SluicegateError: see `dispose_savepoint`.
    """
    in_folder = [one.url for one in list_savepoints(task.folder)] if task.folder else []
    steps, delete = Steps(), partial(delete_savepoint, force=task.force)
    deleted = sum(steps.run(delete, url) for url in dict.fromkeys((*task.locations, *in_folder)))
    steps.check()
    return Disposed(deleted)


def delete_savepoint(url: str, *, force: bool = False) -> bool:
    """Delete a savepoint, complete or not; return False if there is none.

    Raises:
        SluicegateError: see `dispose_savepoint`.
    """
    savepoint = open_store(url)
    unfinished = is_unfinished(savepoint)
    if not unfinished and savepoint.read(MANIFEST) is None:
        return False
    dispose_savepoint(savepoint, unfinished=unfinished, force=force)
    return True
