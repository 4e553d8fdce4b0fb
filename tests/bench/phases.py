"""Reads our trace of a run: the duration of each phase, and repeated epochs.

Pure: reads the spans of the trace file. Spark's sinks have no such phases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.bench.epochs import Epoch
from tests.bench.plan import WARM_UP_EPOCHS

Span = Mapping[str, Any]

OUTSIDE_CALLBACK = "Spark around it"
"""Time of an epoch outside our callback: planning, offsets, Spark's own commit."""

_PHASES = ("stage", "decide", "apply")
_STEPS = ("begin", "write", "flush", "commit")


def phase_times(
    spans: Iterable[Span], epochs: Sequence[Epoch], warm_up: int = WARM_UP_EPOCHS
) -> dict[str, list[float]]:
    """Return phase -> milliseconds of each measured epoch, in the order of the protocol."""
    took_ms = {epoch.number: epoch.took_ms for epoch in epochs[warm_up:]}
    all_spans = list(spans)
    applies = {s["span_id"]: s["attributes"] for s in all_spans if s["name"] == "apply"}
    times: dict[str, list[float]] = {}
    for span in sorted(all_spans, key=lambda s: int(s["start_ns"])):
        name, attributes = span["name"], span["attributes"]
        if name in _STEPS:
            attributes = applies.get(span["parent_id"], {})
        if attributes.get("epoch") not in took_ms:
            continue
        spent_ms = (span["end_ns"] - span["start_ns"]) / 1e6
        if name in _PHASES:
            label = f"apply {_sink(attributes['sink'])}" if name == "apply" else name
            times.setdefault(label, []).append(spent_ms)
        elif name in _STEPS:
            label = f"apply {_sink(attributes['sink'])}: {name}"
            times.setdefault(label, []).append(spent_ms)
        elif name == "epoch" and spent_ms <= took_ms[attributes["epoch"]]:
            # a span that is longer than Spark's epoch belongs to overlapping epochs
            times.setdefault(OUTSIDE_CALLBACK, []).append(took_ms[attributes["epoch"]] - spent_ms)
    return dict(sorted(times.items(), key=lambda item: _sort_key(item[0])))


def _sink(sink: str) -> str:
    """Return a sink's name without the run's topic or table name, so that rounds can be pooled."""
    system = sink.partition(".")[0]
    return f"{system} dead letters" if sink.endswith("-dead-letters") else system


def _sort_key(label: str) -> tuple[int, str, int]:
    """Return the sort key of a phase: the steps of an apply follow it in order."""
    if label == OUTSIDE_CALLBACK:
        return 9, "", 0
    apply, _, step = label.partition(": ")
    return _PHASES.index(label.split(maxsplit=1)[0]), apply, _STEPS.index(step) + 1 if step else 0


def repeated(spans: Iterable[Span]) -> str:
    """Describe the epochs that were replayed or staged more than once; empty if none."""
    all_spans = list(spans)
    replayed = [s["attributes"]["epoch"] for s in all_spans if s["attributes"].get("replayed")]
    stages = Counter(s["attributes"].get("epoch") for s in all_spans if s["name"] == "stage")
    staged_again = [epoch for epoch, count in stages.items() if count > 1]
    if replayed:
        return f"epochs replayed: {replayed}"
    return f"epochs staged more than once: {staged_again}" if staged_again else ""
