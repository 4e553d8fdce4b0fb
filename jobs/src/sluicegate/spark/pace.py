"""When an epoch may begin, and how often it may fail: min_pause_ms and tolerated_failures.

Not here: its timeout, which ends the process (rule 18). Called by `query`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sluicegate.protocol.errors import SluicegateError
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings

log = logging.getLogger("sluicegate.epoch")

_MOMENT_S = 0.05
_BACKOFF_S = 1.0
"""Between two tries of an epoch; a task that failed has been tried again by Spark already."""


class Pace:
    """The pauses between a query's epochs, and between the tries of one."""

    def __init__(self, settings: EpochSettings) -> None:
        bounded = settings.interval == AVAILABLE_NOW
        self._pause_s = 0.0 if bounded else settings.min_pause_ms / 1000
        self._tolerated = settings.tolerated_failures
        self._ended: float | None = None

    def ended(self) -> None:
        """Note that an epoch has ended."""
        self._ended = time.monotonic()

    def rested(self) -> bool:
        """Wait for a moment at most; return whether the next epoch may begin."""
        if self._ended is None:
            return True
        left = self._ended + self._pause_s - time.monotonic()
        if left > 0:
            time.sleep(min(left, _MOMENT_S))
        return left <= _MOMENT_S

    def run(self, epoch: int, work: Callable[[], None]) -> None:
        """Do an epoch's work, again after a failure that the same driver may mend.

        Raises:
            SluicegateError: of another kind, or one more in a row than is tolerated.
        """
        failed = 0
        while True:
            try:
                return work()
            except SluicegateError as error:
                failed += 1
                if not error.restartable or failed > self._tolerated:
                    raise
                log.warning(
                    "epoch %d failed, failure %d in a row of %d tolerated; tried again in %g s: %s",
                    epoch,
                    failed,
                    self._tolerated,
                    _BACKOFF_S,
                    error,
                )
            time.sleep(_BACKOFF_S)
