"""The geometry of the charts: a ribbon of epochs and the waterfall of one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluicegate.console.model import Epoch
from sluicegate.storage.epoch_report import APPLY, EpochReport, TimedStep
from sluicegate.storage.verdict import DECIDE, STAGE

COLORS = 6
"""Number of colors for sinks; a job with more sinks repeats them."""


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in percent of the chart, with its color's class."""

    css: str
    start: float
    length: float
    label: str = ""


@dataclass(frozen=True)
class Bar:
    """An epoch of the ribbon: its phases from the bottom up; without a report it has none."""

    epoch: int
    total_ms: float
    segments: tuple[Segment, ...]
    tries: int
    replayed: bool
    label: str
    thrown_away: int = 0
    """The number of attempts at it that ended before it was decided."""


@dataclass(frozen=True)
class Sparkline:
    """A small ribbon in one picture: the path of each color's class, in a box `width` by 100."""

    width: int
    paths: tuple[tuple[str, str], ...]
    label: str


@dataclass(frozen=True)
class WaterfallLine:
    """A step of the waterfall."""

    step: TimedStep
    after_ms: float
    segment: Segment


def color(report: EpochReport, step: TimedStep) -> str:
    """Return the class of a step's color: its phase, or the position of its sink."""
    sinks = list(report.sinks)
    if step.sink not in sinks:
        return step.name if step.name in (STAGE, DECIDE) else "other"
    return f"sink{sinks.index(step.sink) % COLORS}"


def ribbon(epochs: Sequence[Epoch], thrown_away: Mapping[int, int] | None = None) -> list[Bar]:
    """Return a bar for each epoch; the longest of them has the full height.

    Args:
        epochs: in order.
        thrown_away: epoch -> the number of its attempts that were thrown away.
    """
    longest = max((_busy(epoch.report) for epoch in epochs if epoch.report), default=0.0)
    lost = thrown_away or {}
    return [_bar(epoch, longest or 1.0, lost.get(epoch.number, 0)) for epoch in epochs]


def sparkline(epochs: Sequence[Epoch]) -> Sparkline:
    """Return the ribbon of some epochs in few bytes: a page has one for each of a thousand jobs."""
    paths: dict[str, list[str]] = {}
    bars = ribbon(epochs)
    for position, bar in enumerate(bars):
        left = position * 10
        for part in bar.segments or (Segment("other", 0.0, 4.0),):
            top = f"M{left} {100 - part.start - part.length:.0f}h8v{part.length:.0f}h-8z"
            paths.setdefault(part.css, []).append(top)
    longest = max((bar.total_ms for bar in bars), default=0.0)
    label = f"last {len(bars)} epochs, the longest {longest:,.0f} ms"
    of = tuple((css, "".join(path)) for css, path in paths.items())
    return Sparkline(10 * max(1, len(bars)), of, label)


def _busy(report: EpochReport) -> float:
    return sum(step.duration_ms for step in _phases(report))


def _phases(report: EpochReport) -> list[TimedStep]:
    return [step for step in report.steps if step.name in (STAGE, DECIDE, APPLY)]


def _bar(epoch: Epoch, longest_ms: float, lost: int) -> Bar:
    report = epoch.report
    rows = f"epoch {epoch.number}: {sum(epoch.rows.values()):,} rows"
    again = f", {lost} {'attempt' if lost == 1 else 'attempts'} thrown away" if lost else ""
    if report is None:
        label = f"{rows}, no report{again}"
        return Bar(epoch.number, 0.0, (), 0, replayed=False, label=label, thrown_away=lost)
    segments, at = [], 0.0
    for step in _phases(report):
        length = 100 * step.duration_ms / longest_ms
        segments.append(Segment(color(report, step), at, length))
        at += length
    total_ms = _busy(report)
    tries = max((sink.tries for sink in report.sinks.values()), default=0)
    label = f"{rows}, {total_ms:,.0f} ms"
    label += ", replayed" if report.replayed else ""
    label += f", {tries} tries" if tries > 1 else ""
    return Bar(epoch.number, total_ms, tuple(segments), tries, report.replayed, label + again, lost)


def waterfall(report: EpochReport) -> list[WaterfallLine]:
    """Return the steps in the order in which they started; the chart is as wide as all of them."""
    steps = sorted(report.steps, key=lambda step: (step.start_ms, -step.duration_ms))
    if not steps:
        return []
    first = steps[0].start_ms
    width = max(1e-3, max(step.start_ms + step.duration_ms for step in steps) - first)
    return [
        WaterfallLine(
            step,
            step.start_ms - first,
            Segment(
                color(report, step),
                100 * (step.start_ms - first) / width,
                max(0.3, 100 * step.duration_ms / width),
            ),
        )
        for step in steps
    ]
