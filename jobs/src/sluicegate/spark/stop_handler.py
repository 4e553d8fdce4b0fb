"""Answers a stop request that arrives through the checkpoint (`savepoints.stop_request`)."""

from __future__ import annotations

import logging

from sluicegate.errors import PreflightFailed, SavepointFailed, SluicegateError, StoreUnavailable
from sluicegate.savepoints.stop_request import Answer, StopRequestInbox
from sluicegate.savepoints.take import take_savepoint
from sluicegate.storage.object_store import ObjectStore
from sluicegate.storage.s3_config import is_s3

log = logging.getLogger("sluicegate.stop")

_LOCAL_POLL_S, _REMOTE_POLL_S = 1.0, 5.0
"""How often the checkpoint is polled; for a bucket each poll is a request that costs money."""


class StopRequestHandler:
    """Handles the stop requests of one query, which arrive in its checkpoint."""

    def __init__(self, address: str, checkpoint: ObjectStore, lineage: str) -> None:
        self._checkpoint = checkpoint
        poll_s = _REMOTE_POLL_S if is_s3(address) else _LOCAL_POLL_S
        self._inbox = StopRequestInbox(checkpoint, lineage, poll_s)
        self._inbox.clean_up()

    def requested(self) -> bool:
        """Return whether the query must stop at the end of the epoch."""
        return self._inbox.poll() is not None

    def complete(self, error: SluicegateError | None) -> SluicegateError | None:
        """Take the requested savepoint and answer the request, after everything has stopped.

        Args:
            error: the error that ended the query, None if it was stopped.

        Returns:
            The error that ends the driver. If the savepoint could not be taken, the supervisor
            restarts the driver after this error, and unless the lineage is sealed the job continues.
        """
        request = self._inbox.poll(now=True)
        if request is None:
            return error
        savepoint = ""
        if error is None and request.savepoint:
            try:
                savepoint = take_savepoint(self._checkpoint, request.savepoint, seal=True).url
            except PreflightFailed as raised:
                # ends with exit code 1, after which a supervisor goes on: the job itself is healthy
                error = SavepointFailed(
                    f"the requested savepoint could not be taken: {raised.what}",
                    data="nothing was sealed; every decided epoch is in every sink",
                    do=f"restart the job if needed; {raised.do}, then request the savepoint again",
                )
            except SluicegateError as raised:
                error = raised
        if error is None:
            suffix = f", with savepoint {savepoint}" if savepoint else ""
            text = f"the job has stopped at the end of an epoch{suffix}"
        else:
            text = f"the job ended with {type(error).__name__}: {error}"
        log.info("%s", text)
        try:
            self._inbox.answer(Answer(stopped=error is None, message=text, savepoint=savepoint))
        except StoreUnavailable as raised:
            log.warning("the stop request could not be answered: %s", raised)
        return error
