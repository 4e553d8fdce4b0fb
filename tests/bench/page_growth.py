"""The sections about growth of the report page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.bench import charts, growth
from tests.bench.figures import Spread, spread
from tests.bench.joined import Joined
from tests.bench.page_parts import NOT_MEASURED, Plot, cell, command, table
from tests.bench.plan import SLUICEGATE, Workload

Series = dict[str, list[tuple[float, Spread]]]
"""The points of each line of a plot, by its label."""


def partitions(joined: Joined, plot: Plot) -> Iterator[str]:
    """Yield throughput by partitions and cores."""
    name = growth.PARTITIONS
    yield from ("", "### Throughput by partitions", "", command(name, "--cores 1,2"), "")
    yield from _copies(
        joined,
        plot,
        name,
        {"partitions": lambda workload: workload.partitions, "cores": lambda w: w.cores},
        lambda workload, contender: (
            f"{contender}, {workload.cores} core{'' if workload.cores == 1 else 's'}"
        ),
    )


def executors(joined: Joined, plot: Plot) -> Iterator[str]:
    """Yield throughput by executors."""
    name = growth.EXECUTORS
    yield from ("", "### Throughput by executors", "", command(name), "")
    yield from _copies(
        joined,
        plot,
        name,
        {"executors": lambda workload: workload.executors},
        lambda _workload, contender: contender,
        "Executors are processes of one thread on the machine that also runs driver and brokers.",
    )


def _copies(
    joined: Joined,
    plot: Plot,
    name: str,
    grown_by: Mapping[str, Callable[[Workload], int]],
    label: Callable[[Workload, str], str],
    note: str = "",
) -> Iterator[str]:
    """Yield throughput of a copy as a table and a plot, whose x is the first of what grows."""
    grown = [w for w in joined.workloads.values() if w.name.startswith(name)]
    if not grown:
        yield NOT_MEASURED
        return
    yield from (note, "") if note else ()
    yield from table(
        (*grown_by, "", "records/s", "CPU µs/record", "runs"),
        [
            (
                *(number(workload) for number in grown_by.values()),
                contender,
                cell(joined, workload.name, contender, "records_s", 0),
                cell(joined, workload.name, contender, "cpu_us", 1),
                joined.sound(workload.name, contender),
            )
            for workload in grown
            for contender in workload.contenders
        ],
    )
    axis, x = next(iter(grown_by.items()))
    series: Series = {}
    for workload, contender, value in _measured(joined, grown, "records_s"):
        series.setdefault(label(workload, contender), []).append((x(workload), value))
    title = f"Records a second by {axis}"
    yield from ("", plot(name, title, charts.lines(title, axis, "records/s", series)))


def state(joined: Joined, plot: Plot) -> Iterator[str]:
    """Yield the time of an epoch by the size of the state."""
    name = growth.STATE
    yield from ("", "### Epoch by size of the state", "", command(name), "")
    grown = [w for w in joined.workloads.values() if w.name.startswith(name)]
    if not grown:
        yield NOT_MEASURED
        return
    yield f"Epochs of {grown[0].epoch_records:,} records, after those that filled the state."
    yield ""
    heads = ("keys", "", "epoch p50 ms", "epoch p99 ms", "records/s", "runs")
    figures = ("epoch_p50_ms", "epoch_p99_ms", "records_s")
    yield from table(
        heads,
        [
            (
                f"{workload.keys:,}",
                contender,
                *(cell(joined, workload.name, contender, figure, 0) for figure in figures),
                joined.sound(workload.name, contender),
            )
            for workload in grown
            for contender in workload.contenders
        ],
    )
    series: Series = {}
    for workload, contender, value in _measured(joined, grown, "epoch_p50_ms"):
        series.setdefault(contender, []).append((workload.keys, value))
    title = "Milliseconds of an epoch (p50) by keys in the state"
    yield from ("", plot(name, title, charts.lines(title, "keys", "ms", series)))


def _measured(
    joined: Joined, grown: Sequence[Workload], figure: str
) -> Iterator[tuple[Workload, str, Spread]]:
    """Yield a figure of each workload and contender that has it."""
    for workload in grown:
        for contender in workload.contenders:
            value = spread(joined.runs, workload.name, contender, figure)
            if value is not None:
                yield workload, contender, value


def starts(joined: Joined, plot: Plot) -> Iterator[str]:
    """Yield the start of a driver by the length of its log."""
    name = growth.START
    yield from ("", "### Start by length of the epoch log", "", command(name), "")
    if not joined.starts:
        yield NOT_MEASURED
        return
    figures = {"query_s": "query started", "first_epoch_s": "first epoch in the sink"}
    yield from table(
        ("epochs in the log", *(f"{label}, s" for label in figures.values()), "runs"),
        [
            (
                f"{start.epochs:,}",
                *(cell(joined, start.name, SLUICEGATE, figure, 1) for figure in figures),
                joined.sound(start.name, SLUICEGATE),
            )
            for start in joined.starts.values()
        ],
    )
    series = {
        label: [
            (float(start.epochs), value)
            for start in joined.starts.values()
            if (value := spread(joined.runs, start.name, SLUICEGATE, figure)) is not None
        ]
        for figure, label in figures.items()
    }
    title = "Seconds from the start of a driver by epochs in the log"
    yield from ("", plot(name, title, charts.lines(title, "epochs in the log", "s", series)))
