"""Flame graphs as SVG (https://www.brendangregg.com/flamegraphs.html), without a script. Pure.

The outermost frame is at the top; the width of a frame is its share of the CPU time, with all that it calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

Stacks = Mapping[tuple[str, ...], int]
"""Stack, outermost frame first -> milliseconds."""

LEAST_SHARE: Final = 0.005
"""Narrower frames are left out."""

_ALMOST_ALL: Final = 0.95
"""Of its caller's time: the callee is the next link of a chain, of which only the ends are kept."""

_WIDTH, _ROW, _TOP = 1200, 17, 34
_LETTER = 6.6
_STYLE = (
    "<style>text{font:11px ui-monospace,monospace;fill:#222}.title{font:bold 14px system-ui,sans-serif}"
    "rect{stroke:#fff;stroke-width:.6}</style>"
)


@dataclass
class _Frame:
    """A frame with its callees; `ms` includes theirs."""

    ms: int = 0
    callees: dict[str, _Frame] = field(default_factory=dict)


def pruned(stacks: Stacks) -> Stacks:
    """Return the stacks without narrow frames and without the middle of chains of calls.

    Their time stays with their callers. Spark's stacks have a hundred frames, most of which only call the
    next one.
    """
    root = _tree(stacks)
    least = root.ms * LEAST_SHARE
    kept: Counter[tuple[str, ...]] = Counter()

    def walk(frame: _Frame, stack: tuple[str, ...]) -> None:
        wide = [(name, callee) for name, callee in frame.callees.items() if callee.ms >= least]
        own = frame.ms - sum(callee.ms for _, callee in wide)
        if own and stack:
            kept[stack] += own
        for name, callee in wide:
            ends, last = _chain(name, callee)
            kept[*stack, name] += callee.ms - last.ms
            walk(last, (*stack, *ends))

    walk(root, ())
    return +kept


def _chain(name: str, frame: _Frame) -> tuple[tuple[str, ...], _Frame]:
    """Return the first and the last name of a chain of calls, one if it has no other, and its last frame."""
    ends: tuple[str, ...] = (name,)
    while True:
        widest = max(frame.callees.items(), key=lambda one: one[1].ms, default=None)
        if widest is None or widest[1].ms < _ALMOST_ALL * frame.ms:
            return ends, frame
        ends, frame = (name, widest[0]), widest[1]


def to_text(stacks: Stacks) -> str:
    """Return a stack per line, in the form that flame graph tools read."""
    return "".join(f"{';'.join(stack)} {ms}\n" for stack, ms in sorted(stacks.items()))


def from_text(text: str) -> Stacks:
    """Return the stacks of such a text."""
    pairs = (line.rpartition(" ") for line in text.splitlines())
    return {tuple(stack.split(";")): int(ms) for stack, _, ms in pairs}


def svg(title: str, stacks: Stacks) -> str:
    """Return the flame graph of stacks."""
    root = _tree(stacks)
    frames = list(_placed(root, 0.0, 0, root.ms or 1))
    height = _TOP + _ROW * (1 + max((depth for _, depth, _, _ in frames), default=0)) + 8
    parts = [f'<text class="title" x="8" y="22">{escape(title)}</text>']
    for name, depth, left, share in frames:
        x, y, width = left * _WIDTH, _TOP + depth * _ROW, share * _WIDTH
        label = name if len(name) * _LETTER < width - 4 else f"{name[: int(width / _LETTER) - 2]}…"
        parts.append(
            f'<g><title>{escape(name)}: {100 * share:.1f} %</title><rect x="{x:.1f}" y="{y}" '
            f'width="{width:.1f}" height="{_ROW}" rx="2" fill="{_color(name)}"/>'
            + (f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(label)}</text>' if width > 30 else "")
            + "</g>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">{_STYLE}'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _tree(stacks: Stacks) -> _Frame:
    root = _Frame()
    for stack, ms in stacks.items():
        root.ms += ms
        frame = root
        for name in stack:
            frame = frame.callees.setdefault(name, _Frame())
            frame.ms += ms
    return root


def _placed(
    frame: _Frame, left: float, depth: int, total: int
) -> Iterator[tuple[str, int, float, float]]:
    """Yield name, depth, left side and share of each frame that is wide enough, the widest first."""
    for name, callee in sorted(frame.callees.items(), key=lambda one: (-one[1].ms, one[0])):
        share = callee.ms / total
        if share >= LEAST_SHARE:
            yield name, depth, left, share
            yield from _placed(callee, left, depth + 1, total)
        left += share


def _color(name: str) -> str:
    """Return a warm color that is the same for the same class or module."""
    hue = sum(map(ord, name.rpartition(".")[0] or name)) % 50
    return f"hsl({hue},75%,72%)"
