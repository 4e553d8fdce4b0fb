"""The configuration of a simulated world; the defaults are the real protocol."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluicegate.protocol import coordinator, markers
from sluicegate.protocol.effects import (
    AwaitApplies,
    BeginAttempt,
    CheckState,
    EpochSteps,
    HitFailpoint,
    Now,
    Pause,
    RefreshMarkers,
    RestoreWatermark,
    StartApply,
)
from sluicegate.protocol.job import Job
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.ports import EpochPorts
from sluicegate.settings.epoch import EXACTLY_ONCE

LOCAL = (
    BeginAttempt, Now, HitFailpoint, Pause, AwaitApplies, StartApply, CheckState, RestoreWatermark,
    RefreshMarkers,
)  # fmt: skip
"""Effects that nobody else can observe: interleaving them with another driver finds nothing new."""


def spread(name: str, epoch: int) -> int:
    """Return the amount of input of an epoch: from none to three rows."""
    return zlib.crc32(f"{name}/{epoch}".encode()) % 4


def salted(offset: int, attempt: str, parts: int) -> int:
    """Route a row like a nondeterministic plan: another attempt may choose another part."""
    return (offset + zlib.crc32(attempt.encode())) % parts


def current_run_epoch(job: Job, epoch: int) -> EpochSteps[Any]:
    """Look the coordinator up when called, so that a test may patch a piece of it."""
    return coordinator.run_epoch(job, epoch)


def current_compare(found: Marker | None, **markers_of_record: Any) -> Verdict:  # noqa: ANN401 - passed on
    """Look the comparison up when called, as `current_run_epoch`."""
    return markers.compare_marker(found, **markers_of_record)


def current_seed(found: Marker | None, **how: Any) -> Marker:  # noqa: ANN401 - passed on
    """Look up when called which marker a record names, as `current_run_epoch`."""
    return markers.marker_to_name(found, **how)


@dataclass(frozen=True)
class WorldConfig:
    """See the module.

    Args:
        run_epoch: the coordinator.
        compare: the decision of an apply, from the markers.
        seed: the marker that a record names, from the one in the sink.
        sinks: names and kinds.
        parts: of each sink.
        overlap: see `Job`.
        delivery: see `Job`.
        retention: number of epochs whose records and offsets are kept; Spark itself needs 2.
        size: the amount of input, by driver and epoch.
        route: the part of a row, by offset, attempt and number of parts.
        reads_ahead: a driver has begun the first reads of an epoch when it has logged its offsets, as
            `storage.read_ahead` does.
    """

    run_epoch: Callable[[Job, int], EpochSteps[Any]] = current_run_epoch
    compare: Callable[..., Verdict] = current_compare
    seed: Callable[..., Marker] = current_seed
    sinks: tuple[tuple[str, str], ...] = (("kafka", "fencing"), ("mysql", "locking"))
    parts: int = 2
    overlap: bool = False
    delivery: str = EXACTLY_ONCE
    retention: int = 2
    size: Callable[[str, int], int] = spread
    route: Callable[[int, str, int], int] = salted
    reads_ahead: bool = False


@dataclass(frozen=True)
class Call:
    """An effect of Spark's own loop: it runs a function."""

    name: str
    do: Callable[[], Any]

    def perform(self, ports: EpochPorts) -> Any:  # noqa: ANN401, ARG002 - as any effect
        """Run the function."""
        return self.do()
