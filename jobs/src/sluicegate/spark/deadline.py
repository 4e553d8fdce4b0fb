"""The time that an epoch has: past it, the process ends (rule 18). Called by `query` and `batch`."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluicegate.protocol.errors import EpochTimeout
from sluicegate.tracing import outcome

log = logging.getLogger("sluicegate.query")


@contextmanager
def deadline(epoch: int, timeout_s: float) -> Iterator[None]:
    """End the process if the epoch takes too long: a callback cannot be cancelled (rule 18)."""
    if not timeout_s:
        yield
        return
    timer = threading.Timer(timeout_s, _expire, (epoch, timeout_s))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _expire(epoch: int, timeout_s: float) -> None:
    error = EpochTimeout(
        f"epoch {epoch} took longer than its timeout of {timeout_s:g} s; the process ends",
        data="undecided: run again; decided: applied at the next start. Nothing is lost or repeated",
        do="start the driver again; give it more time or smaller epochs if it goes on",
    )
    log.critical("%s", error)
    outcome.write(error)
    logging.shutdown()
    os._exit(EpochTimeout.exit_code)
