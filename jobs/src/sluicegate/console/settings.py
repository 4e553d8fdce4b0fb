"""What a job's last driver runs with, and what differs from the driver before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sluicegate.storage.driver_start import DriverStart


@dataclass(frozen=True)
class Difference:
    """A setting that differs; None: the driver's version did not record it."""

    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class RunningSettings:
    """The settings of the last driver.

    Args:
        started_at_ms: when it started.
        since_ms: when the first driver with these very settings started.
        drivers: how many drivers in a row have had them.
        settings: by name.
        before_ms: when the last driver with other settings started, 0 if none is recorded.
        differences: from that one.
        seconds: how long each part of its start took, by name.
    """

    started_at_ms: int
    since_ms: int
    drivers: int
    settings: Mapping[str, str]
    before_ms: int = 0
    differences: tuple[Difference, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def running_settings(starts: Sequence[DriverStart]) -> RunningSettings | None:
    """Return the settings of the last driver, None if no start is recorded; `starts`: newest first."""
    if not starts:
        return None
    newest = starts[0]
    others = (i for i, start in enumerate(starts) if start.settings != newest.settings)
    drivers = next(others, len(starts))
    before = starts[drivers] if drivers < len(starts) else None
    return RunningSettings(
        newest.started_at_ms,
        starts[drivers - 1].started_at_ms,
        drivers,
        newest.settings,
        before.started_at_ms if before else 0,
        _differences(before.settings, newest.settings) if before else (),
        newest.seconds,
    )


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    names = sorted({*before, *now})
    return tuple(
        Difference(name, before.get(name), now.get(name))
        for name in names
        if before.get(name) != now.get(name)
    )
