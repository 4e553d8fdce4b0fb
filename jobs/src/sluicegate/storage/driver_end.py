"""How the last drivers of a checkpoint ended without a failure, `ends/…`: for people.

As `driver_failure`, it is information only. A driver of which neither is recorded was killed together with
the process that would have recorded it.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sluicegate.storage.driver_failure import write_newest
from sluicegate.storage.epoch_report import finite, read_parsed
from sluicegate.storage.object_store import ObjectStore

FOLDER = "ends/"


class Why(enum.StrEnum):
    """Why a driver ended without a failure."""

    STOPPED = "stopped"
    """A signal requested it."""
    FINISHED = "finished"
    """Its query ended: it has read all input, or the checkpoint had a stop request."""


@dataclass(frozen=True)
class DriverEnd:
    """A driver that ended without a failure.

    Args:
        ended_at_ms: when, in ms since 1970.
        ran_s: how long it had run, in seconds.
        why: one of Why; another text was written by a newer version.
    """

    ended_at_ms: int
    ran_s: float
    why: str

    @classmethod
    def now(cls, ran_s: float, *, stopped: bool) -> DriverEnd:
        """Return the end of a driver that has just ended.

        Args:
            ran_s: how long it had run, in seconds.
            stopped: whether a signal requested it.
        """
        why = Why.STOPPED if stopped else Why.FINISHED
        return cls(time.time_ns() // 1_000_000, round(ran_s, 3), why)


def write_end(address: str, end: DriverEnd) -> None:
    """Write an end into the checkpoint at an address; a failure is logged and changes nothing."""
    write_newest(address, FOLDER, end.ended_at_ms, asdict(end))


def read_end(checkpoint: ObjectStore, name: str) -> DriverEnd | None:
    """Return the end in an object of FOLDER, None if it was deleted meanwhile.

    Raises:
        ValueError: the object is damaged, or has the format of another version.
        StoreUnavailable: the store did not answer.
    """
    return read_parsed(checkpoint, name, _parsed)


def _parsed(fields: Mapping[str, Any]) -> DriverEnd:
    why = fields["why"]
    if not isinstance(why, str):
        raise TypeError("the reason is no text")
    return DriverEnd(int(fields["ended_at_ms"]), finite(fields["ran_s"]), why)
