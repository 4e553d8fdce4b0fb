"""The sum of several long runs, made of their JSON reports: `python -m tests.robustness --sum FOLDER...`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.robustness.failpoints.fault_plan import Cell, cells_of, place_name
from tests.robustness.report.run_report import Cells, RunReport, Times, cells_table, times_table


def read_report(folder: Path) -> RunReport:
    """Return the report of a run.

    Raises:
        FileNotFoundError: the run has not ended.
        ValueError: another version wrote it.
    """
    file = folder / "report.json"
    try:
        return RunReport.from_json(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def sum_as_markdown(reports: Sequence[RunReport]) -> str:
    """Return the sum of some runs as a page."""
    cells, recovery_s, reader_wait_s = _sum_of_cells(reports), Times(), Times()
    for report in reports:
        _extend(recovery_s, report.recovery_s)
        _extend(reader_wait_s, report.reader_wait_s)
    lines = [f"# {len(reports)} runs", "", _summary(reports, cells), ""]
    failed = [report for report in reports if not report.passed]
    if failed:
        lines += [f"**{len(failed)} runs failed.**", ""]
        lines += [f"- seed {r.run['seed']}: {text}" for r in failed for text in _reasons(r)]
    else:
        lines.append("**No anomaly**: nothing lost, repeated, altered, invented, late or stuck.")
    lines += [
        "",
        "| seed | job | faults | of them double | minutes | drivers | rows judged | anomalies |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(report) for report in reports),
        "",
    ]
    if cells:
        lines += [*times_table(recovery_s, reader_wait_s), "", *cells_table(cells)]
    return "\n".join(lines) + "\n"


def _summary(reports: Sequence[RunReport], cells: Cells) -> str:
    faults, double = sum(r.faults for r in reports), sum(r.double for r in reports)
    missed, skipped = sum(r.missed for r in reports), sum(r.skipped for r in reports)
    struck = [_coverage(cells, store=store) for store in (False, True)]
    return (
        f"{faults} faults, {double} of them double, {sum(r.changed for r in reports)} with a changed "
        f"setting; {missed} failures not at their failpoint. {skipped} planned faults did not happen. "
        f"Struck were {struck[0]} cells, and {struck[1]} of the object store."
    )


def _coverage(cells: Cells, *, store: bool) -> str:
    matrix = cells_of(store=store)
    return f"{sum(_struck(cells, cell) for cell in matrix)} of {len(matrix)}"


def _struck(cells: Cells, cell: Cell) -> bool:
    place, actor = cell
    return place_name(*place) in cells.get(actor, {})


def _row(report: RunReport) -> str:
    run = report.run
    options = [run["job"], *(["store"] if run["store"] else []), run["delivery"]]
    rows = f"{report.rows:,}" if report.judged else "not judged"
    return (
        f"| {run['seed']} | {', '.join(options)} | {report.faults} | {report.double} "
        f"| {report.seconds / 60:.1f} | {report.drivers} | {rows} | {len(report.anomalies)} |"
    )


def _reasons(report: RunReport) -> list[str]:
    """Return why a run has failed."""
    if report.anomalies:
        return report.anomalies
    return ["no fault happened" if report.judged else "its rows are not judged"]


def _sum_of_cells(reports: Sequence[RunReport]) -> Cells:
    total: Cells = {}
    for report in reports:
        for actor, places in report.cells.items():
            row = total.setdefault(actor, {})
            for place, number in places.items():
                row[place] = row.get(place, 0) + number
    return total


def _extend(total: Times, more: Times) -> None:
    for actor, kinds in more.items():
        for kind, values in kinds.items():
            total.setdefault(actor, {}).setdefault(kind, []).extend(values)
