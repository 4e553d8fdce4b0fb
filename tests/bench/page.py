"""Writes the report page with its plots: `python -m tests.bench.page FILE...`.

A full run takes hours, so the JSON files of several runs (`--only X --json FILE`) can be joined. Where two
files have the same workload the later one counts. Without files it writes a page without figures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra.workspace import CHECKOUT
from tests.bench import charts, page_growth
from tests.bench.console import report as console_report
from tests.bench.console.rounds import VIEWERS
from tests.bench.figures import Spread, anomalies, ratios, shown, spread
from tests.bench.joined import Joined, join
from tests.bench.markdown import NOT_MEASURED, Plot, capital, cell, command, table
from tests.bench.operator import report as operator_report
from tests.bench.plan import (
    LATENCY,
    MEASURED,
    MYSQL_LATENCY,
    OTHER_ENGINES,
    OVERLAP,
    PACES,
    SLUICEGATE,
    WORKLOADS,
    Pace,
    Workload,
)
from tests.bench.report import describe, seen_by

PAGE: Final = CHECKOUT / "docs" / "reference" / "performance.md"

_EQUAL: Final = 0.02
"""Ratios closer to 1 are called equal."""

_INTRODUCTION: Final = """# Performance

Written by `make bench`, or from the JSON files of several runs by `python -m tests.bench.page`. [How
each figure is measured](../benchmarks.md). A value is the median of the rounds, with the smallest and
the largest in parentheses; a ratio is that of two runs of the same round. A run whose sinks did not
hold exactly what they should has no figure."""


def write(results: Sequence[Mapping[str, Any]], page: Path = PAGE) -> None:
    """Write the page, and its plots into a folder `.plots` of the same name."""
    plots = page.with_suffix(".plots")
    drawn: dict[str, str] = {}

    def plot(name: str, title: str, svg: str) -> str:
        drawn[name] = svg
        return f"![{title}]({plots.name}/{name}.svg)"

    text = "\n".join(_lines(join(results), plot)).rstrip() + "\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    plots.mkdir(exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    for name, svg in drawn.items():
        (plots / f"{name}.svg").write_text(svg, encoding="utf-8")


def _lines(joined: Joined, plot: Plot) -> Iterator[str]:
    yield _INTRODUCTION
    yield from _circumstances(joined)
    yield from _summary(joined)
    yield from ("", "## Throughput")
    for workload in WORKLOADS:
        yield from _throughput(joined, joined.workloads.get(workload.name), workload.name, plot)
    yield from ("", "## Latency")
    for pace in PACES:
        yield from _latency(joined, joined.paces.get(pace.name, pace), plot)
    yield from ("", "## Growth")
    yield from page_growth.partitions(joined, plot)
    yield from page_growth.state(joined, plot)
    yield from page_growth.starts(joined, plot)
    yield from _operator(joined)
    yield from _console(joined)
    yield from _without_number(joined)


def _circumstances(joined: Joined) -> Iterator[str]:
    yield from ("", "## What was run", "")
    if not joined.parts:
        yield "Nothing yet: the tables name the commands that fill them."
        return
    rows = [
        (f"`{part.about.command}`", part.about.date, part.about.commit, part.rounds, part.warnings)
        for part in joined.parts
    ]
    heads = ("command", "date", "commit", "rounds", "rounds that began on a busy machine")
    yield from table(heads, rows)
    for label, values in (
        ("Machine", {part.about.machine for part in joined.parts}),
        ("Software", {part.about.software for part in joined.parts}),
    ):
        yield from ("", f"{label}: {'; '.join(sorted(values))}.")


def _summary(joined: Joined) -> Iterator[str]:
    """Yield the ratios of the exactly-once contenders to all others, those that are lost too."""
    rows = []
    for name, contenders in joined.compared().items():
        own = [contender for contender in contenders if contender in MEASURED]
        others = [contender for contender in contenders if contender not in MEASURED]
        for contender, other in itertools.product(own, others):
            for figure, meaning, more_is_better in _COMPARED:
                if (figure == "append_records_s") != (
                    other in OTHER_ENGINES and name in joined.workloads
                ):
                    continue
                values = ratios(joined.runs, name, figure, contender, other)
                if values is not None:
                    result = _result(values.median, more_is_better=more_is_better)
                    rows.append((name, contender, other, meaning, shown(values, 2), result))
    yield from ("", "## Ahead and behind", "")
    yield "Latencies are times, so a ratio below 1 is ahead; throughput is ahead above 1."
    yield ""
    heads = ("workload", "contender", "next to", "figure", "ratio", "")
    yield from table(heads, rows) if rows else [NOT_MEASURED]


_COMPARED: Final = (
    ("records_s", "records/s", True),
    ("append_records_s", "appended/s", True),
    ("p50_ms", "latency, p50", False),
    ("p99_ms", "latency, p99", False),
)


def _result(ratio: float, *, more_is_better: bool) -> str:
    if abs(ratio - 1) <= _EQUAL:
        return "equal"
    return "ahead" if (ratio > 1) == more_is_better else "behind"


def _throughput(joined: Joined, workload: Workload | None, name: str, plot: Plot) -> Iterator[str]:
    yield from ("", f"### {name}", "", command(name))
    if workload is None:
        yield from ("", NOT_MEASURED)
        return
    yield from (
        "",
        f"{capital(describe(workload))}. {capital(workload.note)}".rstrip(" .") + ".",
        "",
    )
    yield from table(
        (
            "",
            "records/s",
            "appended/s",
            "appended/s, 2nd half",
            "CPU µs/record",
            "epoch p50 ms",
            "runs",
        ),
        [
            (
                contender,
                *(
                    cell(joined, name, contender, figure, digits)
                    for figure, digits in (
                        ("records_s", 0),
                        ("append_records_s", 0),
                        ("warm_records_s", 0),
                        ("cpu_us", 1),
                        ("epoch_p50_ms", 0),
                    )
                ),
                joined.sound(name, contender),
            )
            for contender in workload.contenders
        ],
    )
    engines = [contender for contender in workload.contenders if contender in OTHER_ENGINES]
    figure = "append_records_s" if engines else "records_s"
    medians = {
        contender: value
        for contender in workload.contenders
        if (value := spread(joined.runs, name, contender, figure)) is not None
    }
    if medians:
        title = f"{name}: {'appended' if engines else 'records'} a second"
        yield from ("", plot(name, title, charts.bars(title, medians)))
    if set(workload.contenders) == {SLUICEGATE, OVERLAP}:
        values = ratios(joined.runs, name, "records_s", OVERLAP, SLUICEGATE)
        yield from ("", f"{capital(OVERLAP)} / {SLUICEGATE}: {shown(values, 2)}.")


def _latency(joined: Joined, pace: Pace, plot: Plot) -> Iterator[str]:
    only = MYSQL_LATENCY if pace.kind == MYSQL_LATENCY else LATENCY
    yield from ("", f"### {capital(pace.name)}", "", command(only), "")
    yield (
        f"From when a record was due to be sent until it is {seen_by(pace)}: {pace.records_s:,} records/s "
        f"for {pace.seconds:.0f} s, with more before and after them."
    )
    yield ""
    if pace.name not in joined.paces:
        yield NOT_MEASURED
        return
    figures = ("p50_ms", "p99_ms", "max_ms")
    yield from table(
        ("", "p50 ms", "p99 ms", "largest ms", "runs"),
        [
            (
                contender,
                *(cell(joined, pace.name, contender, figure, 0) for figure in figures),
                joined.sound(pace.name, contender),
            )
            for contender in pace.contenders
        ],
    )
    for figure in figures[:2]:
        medians = {
            contender: value
            for contender in pace.contenders
            if (value := spread(joined.runs, pace.name, contender, figure)) is not None
        }
        title = f"{pace.name}: {figure.removesuffix('_ms')}, ms"
        name = f"{only}-{pace.trigger}-{figure}".replace(" ", "-")
        if medians:
            yield from ("", plot(name, title, charts.bars(title, medians)))


def _operator(joined: Joined) -> Iterator[str]:
    yield from ("", "## Operator", "", command("operator"), "")
    if not joined.operator:
        yield NOT_MEASURED
        return
    rows = []
    for measure in operator_report.measures(joined.jobs):
        values = [figures[measure.key] for figures in joined.operator if measure.key in figures]
        shown_here = shown(Spread.of(values), measure.digits)
        rows.append((measure.name.strip(), shown_here, measure.least, measure.aim))
    for at_once in operator_report.SUBMITS:
        key = operator_report.rate_key(at_once)
        values = [figures[key] for figures in joined.operator if key in figures]
        name = f"spark-submit in cluster mode, {at_once} JVMs at once: pods created a second"
        rows.append((name, shown(Spread.of(values), 2), "", ""))
    yield from table(("measure", "here", "at least", "aim"), rows)


def _console(joined: Joined) -> Iterator[str]:
    yield from ("", "## Console", "", command("console"), "")
    if not joined.console:
        yield NOT_MEASURED
        return
    rows = []
    for measure in console_report.measures(joined.console_jobs, VIEWERS):
        cells = []
        for store in console_report.STORES:
            found = (figures.get(store, {}).get(measure.key) for figures in joined.console)
            values = [value for value in found if value is not None]
            cells.append(shown(Spread.of(values), measure.digits))
        rows.append((measure.name.strip(), *cells, measure.aim))
    yield from table(("measure", *console_report.STORES, "aim"), rows)


def _without_number(joined: Joined) -> Iterator[str]:
    found = anomalies(joined.runs)
    if joined.runs:
        yield from ("", "## Runs without a number", "")
        yield f"{len(found)} of {len(joined.runs)} runs." + (" None." if not found else "")
    if found:
        yield ""
        yield from table(
            ("round", "workload", "contender", "why"),
            [(run.round_, run.workload, run.contender, run.anomaly) for run in found],
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Join files and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="written by --json")
    parser.add_argument("--page", type=Path, default=PAGE, help="docs/reference/performance.md")
    options = parser.parse_args(arguments)
    write([json.loads(file.read_text(encoding="utf-8")) for file in options.files], options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
