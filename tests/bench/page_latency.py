"""The part of the report page about latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.reference_docs.markdown import paragraph
from tests.bench import charts
from tests.bench.figures import spread
from tests.bench.joined import Joined
from tests.bench.page_parts import NOT_MEASURED, Plot, capital, cell, command, table
from tests.bench.plan import SLUICEGATE, Pace
from tests.bench.report import seen_by

_COLUMNS: Final = {
    "p50 ms": ("p50_ms", 0),
    "p99 ms": ("p99_ms", 0),
    "largest ms": ("max_ms", 0),
    "cores": ("cores", 2),
    "cores of the sender": ("sender_cores", 2),
    "cores of the reader": ("reader_cores", 2),
    "sender behind, ms": ("sender_behind_ms", 0),
}
_PLOTTED: Final = ("p50_ms", "p99_ms")


def latency(joined: Joined, pace: Pace, plot: Plot) -> Iterator[str]:
    """Yield the lines of a workload."""
    yield from ("", f"### {capital(pace.name)}", "", command(pace.workload), "")
    yield paragraph(
        f"From when a record was due to be sent until it is {seen_by(pace)}: {pace.records_s:,} records/s "
        f"for {pace.seconds:.0f} s, with more before and after them.{_load(joined, pace)}"
    )
    yield ""
    if pace.name not in joined.paces:
        yield NOT_MEASURED
        return
    yield from table(
        ("", *_COLUMNS, "runs"),
        [
            (
                contender,
                *(cell(joined, pace.name, contender, *figure) for figure in _COLUMNS.values()),
                joined.sound(pace.name, contender),
            )
            for contender in pace.contenders
        ],
    )
    for figure in _PLOTTED:
        medians = {
            contender: value
            for contender in pace.contenders
            if (value := spread(joined.runs, pace.name, contender, figure)) is not None
        }
        title = f"{pace.name}: {figure.removesuffix('_ms')}, ms"
        name = f"{pace.workload}-{pace.trigger}-{figure}".replace(" ", "-")
        if medians:
            yield from ("", plot(name, title, charts.bars(title, medians)))


def _load(joined: Joined, pace: Pace) -> str:
    """Return a sentence about the rate, empty if full load was not measured."""
    full = spread(joined.runs, pace.full_load, SLUICEGATE, "records_s")
    if full is None:
        return ""
    return f" That is {pace.records_s / full.median:.2f} of the rate of {SLUICEGATE} in {pace.full_load}."
