"""What a simulated world is made of; the defaults are the real protocol.

Not here: what happens in it (`world.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluicegate.protocol import coordinator
from sluicegate.protocol.coordinator import Job
from sluicegate.protocol.effects import (
    AwaitSettled,
    Begin,
    CheckState,
    Feed,
    Now,
    Pause,
    Reach,
    Steps,
)
from sluicegate.protocol.markers import Verdict, judge
from sluicegate.protocol.ports import Ports

LOCAL = (Begin, Now, Reach, Pause, AwaitSettled, CheckState, Feed)
"""Effects that nobody else can see: nothing is gained by letting another driver come between."""


def spread(name: str, epoch: int) -> int:
    """Return how much input a driver takes into an epoch: none, or some."""
    return zlib.crc32(f"{name}/{epoch}".encode()) % 4


def salted(offset: int, attempt: str, parts: int) -> int:
    """Route a row as a nondeterministic plan does: another attempt, another part."""
    return (offset + zlib.crc32(attempt.encode())) % parts


def real(job: Job, epoch: int) -> Steps[Any]:
    """Run the coordinator as it is when called, so that a test may break a piece of it."""
    return coordinator.run_epoch(job, epoch)


@dataclass(frozen=True)
class Setting:
    """What a world is made of; the defaults are the real protocol."""

    run_epoch: Callable[[Job, int], Steps[Any]] = real
    judge: Callable[..., Verdict] = judge
    sinks: tuple[tuple[str, str], ...] = (("kafka", "fencing"), ("mysql", "locking"))
    parts: int = 2
    overlap: bool = False
    retention: int = 2
    """Records and offsets of this many epochs are kept; below 2 Spark itself could not go on."""
    size: Callable[[str, int], int] = spread
    route: Callable[[int, str, int], int] = salted


@dataclass(frozen=True)
class Call:
    """An effect of Spark's own loop."""

    name: str
    do: Callable[[], Any]

    def perform(self, ports: Ports) -> Any:  # noqa: ANN401, ARG002 - as any effect
        """Do it."""
        return self.do()
