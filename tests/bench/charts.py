"""The plots of the report page, as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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

_LEFT, _RIGHT, _PLOT_TOP, _BASE = 80, 30, 100, 320
_STEPS = 4
_LEGEND_WIDTH, _LEGEND_COLUMNS = 210, 3


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
    title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, Spread]]]
) -> str:
    """Return a line for each series: its medians, with a vertical line from minimum to maximum.

    Each step to the right multiplies; upwards it is linear, from 0. So what grows linearly bends upwards.
    """
    places = sorted({at for of in series.values() for at, _ in of})
    highest = max((spread.high for of in series.values() for _, spread in of), default=0.0)
    parts, up = _frame(title, x_label, y_label, highest)
    first, width = math.log(min(places, default=1.0)), _WIDTH - _LEFT - _RIGHT
    range_ = math.log(max(places, default=1.0)) - first or 1.0

    def across(at: float) -> float:
        return _LEFT + (math.log(at) - first) / range_ * width

    parts += [_tick(across(at), at) for at in places]
    for number, (name, of) in enumerate(series.items()):
        color = _COLORS[number % len(_COLORS)]
        parts += _legend(number, name)
        parts.append(_polyline([(across(at), up(spread.median)) for at, spread in of], color))
        for at, spread in of:
            parts.append(_line(across(at), up(spread.low), across(at), up(spread.high), color))
            center = f'cx="{across(at):.1f}" cy="{up(spread.median):.1f}"'
            parts.append(f'<circle {center} r="4" fill="{color}"/>')
    return _svg(_BASE + 50, title, parts)


def over_time(
    title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """Return a line for each series of times and values; both axes are linear, from 0."""
    latest = max((at for of in series.values() for at, _ in of), default=0.0) or 1.0
    highest = max((value for of in series.values() for _, value in of), default=0.0)
    parts, up = _frame(title, x_label, y_label, highest)

    def across(at: float) -> float:
        return _LEFT + at / latest * (_WIDTH - _LEFT - _RIGHT)

    parts += [
        _tick(across(latest * part / _STEPS), latest * part / _STEPS) for part in range(_STEPS + 1)
    ]
    for number, (name, of) in enumerate(series.items()):
        parts += _legend(number, name)
        points = [(across(at), up(value)) for at, value in of]
        parts.append(_polyline(points, _COLORS[number % len(_COLORS)]))
    return _svg(_BASE + 50, title, parts)


def _frame(
    title: str, x_label: str, y_label: str, highest: float
) -> tuple[list[str], Callable[[float], float]]:
    """Return title, labels and horizontal lines, and the height in the plot of a value."""
    step = _round_step(highest / _STEPS)

    def up(value: float) -> float:
        return _BASE - value / (step * _STEPS) * (_BASE - _PLOT_TOP)

    parts = [_text(12, 24, title, weight="bold"), _text(12, _PLOT_TOP - 16, y_label, css="small")]
    parts.append(_text(_WIDTH / 2, _BASE + 40, x_label, anchor="middle"))
    for value in (step * number for number in range(_STEPS + 1)):
        parts.append(_line(_LEFT, up(value), _WIDTH - _RIGHT, up(value), "#ddd"))
        parts.append(_text(_LEFT - 8, up(value) + 4, f"{value:,.10g}", anchor="end", css="small"))
    return parts, up


def _tick(x: float, at: float) -> str:
    return _text(x, _BASE + 20, f"{at:,.0f}", anchor="middle", css="small")


def _legend(number: int, name: str) -> list[str]:
    row, column = divmod(number, _LEGEND_COLUMNS)
    left, top = _LEFT + column * _LEGEND_WIDTH, 36 + row * 20
    color = _COLORS[number % len(_COLORS)]
    box = f'<rect x="{left}" y="{top}" width="12" height="12" fill="{color}"/>'
    return [box, _text(left + 18, top + 11, name)]


def _polyline(points: Sequence[tuple[float, float]], color: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'


def _round_step(least: float) -> float:
    """Return 1, 2, 2.5 or 5 times a power of ten that is not less."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least)


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
