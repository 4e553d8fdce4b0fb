"""What runs beside a query for as long as it runs: a receiver of lines, for one.

Not here: any such thing. Called by `query`, which starts it before its first epoch, ends when it
fails, and stops it before its last.
"""

from __future__ import annotations

from typing import Protocol

from sluicegate.protocol.errors import SluicegateError
from sluicegate.storage.objects import Objects


class Beside(Protocol):
    """A thread, or several, of the driver's process."""

    def start(self, checkpoint: Objects) -> None:
        """Begin; the checkpoint belongs to this job by now."""

    def failure(self) -> SluicegateError | None:
        """Return what has ended it, None while it runs."""

    def stop(self) -> None:
        """End it and wait for that; may be called when it was never started, and twice."""
