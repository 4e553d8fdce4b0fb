"""The pace of a query: the pause between epochs, tolerated failures, its clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sluicegate.errors import ClockSetBack, ExecutorStopping, SluicegateError
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings

log = logging.getLogger("sluicegate.epoch")

_POLL_S = 0.05
_RETRY_PAUSE_S = 1.0
"""The pause before an epoch is retried; Spark itself has already retried its failed tasks."""

_STOPPING_S = 60.0
"""How long an executor may take to stop. Until then the failures that it causes do not count."""

_TOLERATED_BACK_S = 10.0
"""By how much the clock may be set back: the start of another driver takes about as long."""


class Pace:
    """The pauses between the epochs of a query, and between the attempts at one."""

    def __init__(self, settings: EpochSettings) -> None:
        bounded = settings.interval == AVAILABLE_NOW
        self._pause_s = 0.0 if bounded else settings.min_pause_ms / 1000
        self._tolerated = settings.tolerated_failures
        self._ended: float | None = None

    def epoch_ended(self) -> None:
        """Start the pause after an epoch."""
        self._ended = time.monotonic()

    def may_start(self) -> bool:
        """Wait briefly; return whether the next epoch may start."""
        if self._ended is None:
            return True
        left = self._ended + self._pause_s - time.monotonic()
        if left > 0:
            time.sleep(min(left, _POLL_S))
        return left <= _POLL_S

    def run(self, epoch: int, work: Callable[[], None], may_retry: Callable[[], bool]) -> None:
        """Run an epoch; retry it after a failure that a retry by the same driver may resolve.

        Args:
            epoch: its number.
            work: an attempt at it.
            may_retry: called after a failure and during the pause before the next attempt; False ends
                the epoch with its failure, because the query stops.

        Raises:
            SluicegateError: not retryable, or more consecutive failures than are tolerated. Those of an
                executor that is stopping do not count for a minute.
        """
        failures, began = 0, time.monotonic()
        while True:
            try:
                return work()
            except SluicegateError as error:
                stopping = isinstance(error, ExecutorStopping)
                counts = not stopping or time.monotonic() >= began + _STOPPING_S
                failures += counts
                if not error.retryable or failures > self._tolerated or not may_retry():
                    raise
                count = f" (consecutive failure {failures} of {self._tolerated} tolerated)"
                pause = f"retrying in {_RETRY_PAUSE_S:g} s"
                log.warning("epoch %d failed%s, %s: %s", epoch, count * counts, pause, error)
                retry_s = time.monotonic() + _RETRY_PAUSE_S
                while time.monotonic() < retry_s:
                    time.sleep(_POLL_S)
                    if not may_retry():
                        raise


class TriggerClock:
    """The wall clock, by which Spark waits for the next trigger: set back by an hour, it waits an hour."""

    def __init__(self, settings: EpochSettings) -> None:
        self._waits = settings.waits_for_triggers
        self._ahead_s = _ahead_s()

    def failure(self) -> ClockSetBack | None:
        """Return an error if the clock was set back, since the last call, by too much to wait."""
        before_s, self._ahead_s = self._ahead_s, _ahead_s()
        back_s = before_s - self._ahead_s
        if not self._waits or back_s <= _TOLERATED_BACK_S:
            return None
        return ClockSetBack(
            f"the clock was set back by {back_s:.0f} s, and Spark would start no epoch for as long",
            data="nothing is lost or repeated: the driver ends between two epochs",
            do="restart the driver, unless its supervisor does; let the machine slew its clock instead "
            "of setting it",
        )


def _ahead_s() -> float:
    """Return how far the wall clock is ahead of the monotonic clock, in seconds."""
    return time.time() - time.monotonic()
