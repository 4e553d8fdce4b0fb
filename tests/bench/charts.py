"""The plots of the report page, as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.bench.figures import Spread

_COLORS = ("#00796b", "#5c6bc0", "#ef6c00", "#8e24aa", "#546e7a", "#c62828")
_WIDTH = 720
_STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px;fill:#555}</style>"
    '<rect width="100%" height="100%" rx="6" fill="#fff"/>'
)

_LABEL_WIDTH, _VALUE_WIDTH = 190, 90
_BAR, _GAP, _TOP = 20, 10, 40

_HEIGHT, _LEFT, _RIGHT, _BOTTOM = 340, 80, 20, 50
_LEGEND_STEP = 180
_GRID = 4


@dataclass(frozen=True)
class Axis:
    """An axis of a line chart.

    Args:
        label: what it shows, with its unit.
        logarithmic: whether each step multiplies.
    """

    label: str
    logarithmic: bool = False


def bars(title: str, values: Mapping[str, Spread]) -> str:
    """Return horizontal bars: the median of each name, and a line from its minimum to its maximum."""
    largest = max((spread.high for spread in values.values()), default=0.0) or 1.0
    scale = (_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH) / largest
    parts = [_text(12, 24, title, weight="bold")]
    for row, (name, spread) in enumerate(values.items()):
        top = _TOP + row * (_BAR + _GAP)
        middle = top + _BAR / 2
        low, median, high = (
            _LABEL_WIDTH + value * scale for value in (spread.low, spread.median, spread.high)
        )
        color = _COLORS[0] if name.startswith("sluicegate") else _COLORS[4]
        box = f'x="{_LABEL_WIDTH}" y="{top}" width="{median - _LABEL_WIDTH:.1f}" height="{_BAR}"'
        parts += [
            _text(_LABEL_WIDTH - 8, middle + 4, name, anchor="end"),
            f'<rect {box} fill="{color}"/>',
            _line(low, middle, high, middle, "#222"),
            _text(high + 6, middle + 4, f"{spread.median:,.0f}"),
        ]
    return _svg(_TOP + len(values) * (_BAR + _GAP) + 6, title, parts)


def lines(
    title: str, x: Axis, y: Axis, series: Mapping[str, Sequence[tuple[float, Spread]]]
) -> str:
    """Return a line for each series: its medians, with a vertical line from minimum to maximum."""
    points = [point for of in series.values() for point in of]
    if not points:
        return _svg(_HEIGHT, title, [_text(12, 24, title, weight="bold")])
    across = _Scale.of([at for at, _ in points], _LEFT, _WIDTH - _RIGHT, x)
    highs = [spread.high for _, spread in points]
    lows = [spread.low for _, spread in points] if y.logarithmic else [0.0]
    up = _Scale.of([*lows, *highs], _HEIGHT - _BOTTOM, 70, y)
    parts = [_text(12, 24, title, weight="bold"), *_axes(across, up, x, y, points)]
    for number, (name, of) in enumerate(series.items()):
        color = _COLORS[number % len(_COLORS)]
        parts.append(_text(_LEFT + number * _LEGEND_STEP + 18, 50, name))
        parts.append(
            f'<rect x="{_LEFT + number * _LEGEND_STEP}" y="40" width="12" height="12" fill="{color}"/>'
        )
        path = " ".join(f"{across.at(at):.1f},{up.at(spread.median):.1f}" for at, spread in of)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for at, spread in of:
            place = across.at(at)
            parts.append(_line(place, up.at(spread.low), place, up.at(spread.high), color))
            parts.append(
                f'<circle cx="{place:.1f}" cy="{up.at(spread.median):.1f}" r="4" fill="{color}"/>'
            )
    return _svg(_HEIGHT, title, parts)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float], begin: float, end: float, axis: Axis) -> _Scale:
        low, high = min(values), max(values)
        if axis.logarithmic:
            low, high = math.log(low), math.log(high)
        return cls(low, high if high > low else low + 1, begin, end, axis.logarithmic)

    def at(self, value: float) -> float:
        place = math.log(value) if self.logarithmic else value
        return self.begin + (place - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        steps = [self.low + (self.high - self.low) * part / _GRID for part in range(_GRID + 1)]
        return [math.exp(step) for step in steps] if self.logarithmic else steps


def _axes(
    across: _Scale, up: _Scale, x: Axis, y: Axis, points: Sequence[tuple[float, Spread]]
) -> list[str]:
    parts = [
        _text(_WIDTH / 2, _HEIGHT - 10, x.label, anchor="middle"),
        _text(12, 68, y.label, css="small"),
    ]
    parts += [
        _text(across.at(value), _HEIGHT - 30, f"{value:,.0f}", anchor="middle", css="small")
        for value in sorted({at for at, _ in points})
    ]
    digits = 0 if up.ticks()[-1] >= 10 else 1
    for value in up.ticks():
        place = up.at(value)
        parts.append(_line(_LEFT, place, _WIDTH - _RIGHT, place, "#ddd"))
        parts.append(_text(_LEFT - 8, place + 4, f"{value:,.{digits}f}", anchor="end", css="small"))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", css: str = ""
) -> str:
    named = f' class="{css}"' if css else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"{named}>'
        f"{escape(text)}</text>"
    )


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title>{_STYLE}"
    )
    return "\n".join([head, *parts, "</svg>", ""])
