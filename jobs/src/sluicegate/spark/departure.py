"""A stop that was asked for through the checkpoint: noticed, carried out, answered.

Not here: how a query is stopped (`query`), what a request is (`checkpoint.requests`). Called by
`query`.
"""

from __future__ import annotations

import logging

from sluicegate.checkpoint.requests import Answer, StopDesk
from sluicegate.checkpoint.savepoints import take
from sluicegate.protocol.errors import (
    PreflightFailed,
    SavepointFailed,
    SluicegateError,
    StoreUnavailable,
)
from sluicegate.storage.objects import Objects

log = logging.getLogger("sluicegate.stop")

_LOCAL_S, _REMOTE_S = 1.0, 5.0
"""How often is looked for a request: a look at a bucket is a request that is paid for."""


class Departure:
    """The end of a query on request.

    Args:
        checkpoint: its address.
        objects: its volume.
        lineage: whose driver this is.
    """

    def __init__(self, checkpoint: str, objects: Objects, lineage: str) -> None:
        self._checkpoint = checkpoint
        remote = checkpoint.startswith(("s3://", "s3a://"))
        self._desk = StopDesk(objects, lineage, _REMOTE_S if remote else _LOCAL_S)
        self._desk.tidy()

    def asked(self) -> bool:
        """Return whether the query is to stop at the end of the epoch."""
        return self._desk.asked() is not None

    def leave(self, error: SluicegateError | None) -> SluicegateError | None:
        """Do what was asked for beyond stopping, once nothing runs any more, and answer.

        Args:
            error: what ended the query otherwise.

        Returns:
            What ends it now. A savepoint that could not be taken ends it with an error that its
            supervisor starts it again after: unless the lineage is sealed already, it can go on.
        """
        request = self._desk.asked(now=True)
        if request is None:
            return error
        savepoint = ""
        if error is None and request.savepoint:
            try:
                savepoint = take(self._checkpoint, request.savepoint, seal=True).url
            except PreflightFailed as raised:
                error = _failed(raised)
            except SluicegateError as raised:
                error = raised
        if error is None:
            what = f", with savepoint {savepoint}" if savepoint else ""
            answer = Answer(
                stopped=True,
                said=f"the job has stopped at the end of an epoch{what}",
                savepoint=savepoint,
            )
        else:
            answer = Answer(
                stopped=False, said=f"the job ended with {type(error).__name__}: {error}"
            )
        log.info("%s", answer.said)
        try:
            self._desk.answer(answer)
        except StoreUnavailable as raised:
            log.warning("who asked for the stop was not answered: %s", raised)
        return error


def _failed(why: PreflightFailed) -> SavepointFailed:
    """Say the same as an error of a job that is well and may go on."""
    return SavepointFailed(
        f"the savepoint that was asked for could not be taken: {why.what}",
        data="nothing was sealed; everything decided is in every sink",
        do=f"the job may be started again; {why.do}, and ask again",
    )
