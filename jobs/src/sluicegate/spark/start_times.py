"""How long the parts of a driver's start take, for its metrics and for the record of its start."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class StartPart(enum.StrEnum):
    """A part of a driver's start, in their usual order."""

    RESTORE = "restore"
    """Restoring a savepoint into a new checkpoint."""
    SESSION = "session"
    """Creating the Spark session, and with it the JVM."""
    STANDBY = "standby"
    """As a standby: warming up, and waiting until it takes over."""
    STORE = "store"
    """Preflight of the checkpoint's store, and claiming the checkpoint."""
    SINKS = "sinks"
    """Preflight and binding of the sinks."""
    RECOVERY = "recovery"
    """Applying the epoch that a driver before left decided."""
    QUERY = "query"
    """Starting the services of the job and Spark's query."""
    FIRST_EPOCH = "first-epoch"
    """From there until Spark has planned the first epoch, or found no input."""


class StartTimes:
    """How long each part of a start took so far, by name in `seconds`.

    Args:
        before: the same of what was done before.
    """

    def __init__(self, before: Mapping[str, float] | None = None) -> None:
        self.seconds = dict(before or {})

    @contextmanager
    def part(self, part: StartPart) -> Iterator[None]:
        """Add the time of the block to a part, also if the block raises."""
        started = time.monotonic()
        try:
            yield
        finally:
            took_s = time.monotonic() - started
            self.seconds[str(part)] = self.seconds.get(part, 0.0) + took_s


OF_PROCESS = StartTimes()
"""What a process does once, whatever queries it starts."""
