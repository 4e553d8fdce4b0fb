"""Groups the spans of a run into the attempts at each epoch, with their phases. Pure.

A killed driver leaves the spans that had ended, without their root span; an attempt is therefore the set of
spans with one trace id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

NS_PER_MS: Final = 1_000_000
_NEVER: Final = 1 << 63

_PHASES: Final = frozenset({"stage", "decide", "apply"})
_STEPS: Final = frozenset({"begin", "write", "flush", "commit"})

Span = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """One phase of a try."""

    phase: str  # 'stage', 'decide' or 'apply <sink>'
    start_ns: int  # since 1970
    end_ns: int  # the same
    said: str  # duration and rows, for people
    steps: tuple[tuple[str, float], ...] = ()  # of an apply, name and ms

    @property
    def duration_ms(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / NS_PER_MS


@dataclass(frozen=True)
class Try:
    """One try of an epoch."""

    epoch: int  # its number
    start_ns: int  # since 1970
    end_ns: int  # of the epoch, or of the kill
    ended: bool  # whether it came to an end, a good or a bad one, by itself
    # whether it was applied from its record; None if it failed or did not end
    replayed: bool | None
    killed_ns: int | None  # when it was killed, if it was
    rows: int  # that were decided, to all sinks together
    bars: tuple[Bar, ...]  # its phases in order

    @property
    def duration_ms(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / NS_PER_MS


def tries_of(spans: Sequence[Span], kills_ns: Sequence[int]) -> list[Try]:
    """Return every try of every epoch in the order in which they began, from spans in any order."""
    by_trace = sorted(spans, key=lambda span: (span["trace_id"], span["start_ns"]))
    made = [_try(list(trace)) for _, trace in groupby(by_trace, key=lambda span: span["trace_id"])]
    tries = sorted((one for one in made if one is not None), key=lambda one: one.start_ns)
    following = [*(one.start_ns for one in tries[1:]), _NEVER]
    return [_cut(one, at, kills_ns) for one, at in zip(tries, following, strict=False)]


def _try(trace: list[Span]) -> Try | None:
    """Return the try that a trace is about, None if it is about no epoch."""
    numbers = [span["attributes"]["epoch"] for span in trace if "epoch" in span["attributes"]]
    if not numbers:
        return None
    root = next((span for span in trace if span["name"] == "epoch"), None)
    phases = [span for span in trace if span["name"] in _PHASES]
    decided = sum(s["attributes"].get("rows", 0) for s in phases if s["name"] == "decide")
    applied = sum(s["attributes"].get("rows", 0) for s in phases if s["name"] == "apply")
    replayed = None if root is None or root["error"] else root["attributes"].get("replayed")
    return Try(
        epoch=int(numbers[0]),
        start_ns=(root or trace[0])["start_ns"],
        end_ns=root["end_ns"] if root else max(span["end_ns"] for span in trace),
        ended=root is not None,
        replayed=replayed,
        killed_ns=None,
        rows=decided or applied,
        bars=(*(_bar(span, trace) for span in phases), *_torn(trace)),
    )


def _bar(span: Span, trace: Sequence[Span]) -> Bar:
    within = [s for s in trace if s["parent_id"] == span["span_id"] and s["name"] in _STEPS]
    attributes = span["attributes"]
    phase = f"apply {attributes.get('sink', '?')}" if span["name"] == "apply" else span["name"]
    said = f"{phase}, {_ms(span):,.1f} ms"
    rows = attributes.get("rows", sum(_chunk_rows(s, span) for s in trace) or None)
    if rows is not None:
        said += f", {rows:,} rows"
    if within:
        said += f" ({_listed(within)})"
    if span.get("error"):
        said += f"; it failed: {span['error']}"
    return Bar(
        phase, span["start_ns"], span["end_ns"], said, tuple((s["name"], _ms(s)) for s in within)
    )


def _torn(trace: Sequence[Span]) -> list[Bar]:
    """Return applies that were killed before they ended, by the steps that had.

    Only steps of a whole apply are written today, so this is for a runtime that writes them early.
    """
    known = {span["span_id"] for span in trace}
    torn = [s for s in trace if s["name"] in _STEPS and s["parent_id"] not in known]
    bars = []
    for sink in dict.fromkeys(span["attributes"].get("sink", "?") for span in torn):
        mine = [span for span in torn if span["attributes"].get("sink", "?") == sink]
        start, end = min(s["start_ns"] for s in mine), max(s["end_ns"] for s in mine)
        said = f"apply {sink}, cut short after {_listed(mine)}"
        bars.append(Bar(f"apply {sink}", start, end, said))
    return bars


def _chunk_rows(span: Span, stage: Span) -> int:
    """Return the rows of a staged chunk, 0 for anything else."""
    ours = span["name"] == "stage chunk" and span["parent_id"] == stage["span_id"]
    return int(span["attributes"].get("rows", 0)) if ours else 0


def _cut(one: Try, following_ns: int, kills_ns: Sequence[int]) -> Try:
    """Let a try that did not end by itself end at its kill: the first after it began."""
    kill = next((at for at in sorted(kills_ns) if one.start_ns <= at < following_ns), None)
    if one.ended or kill is None:
        return one
    return replace(one, killed_ns=kill, end_ns=max(kill, one.end_ns))


def _listed(steps: Sequence[Span]) -> str:
    return ", ".join(f"{step['name']} {_ms(step):,.1f} ms" for step in steps)


def _ms(span: Span) -> float:
    return float(span["end_ns"] - span["start_ns"]) / NS_PER_MS
