"""The report page has what was measured, what was lost, and the command of each part."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.dom.minidom import parseString

import pytest

from tests.bench import charts, growth, page, page_parts, report
from tests.bench.about import About, about
from tests.bench.figures import Run, Spread
from tests.bench.plan import (
    FLINK,
    PACES,
    RECOVERY,
    SERIAL,
    SLUICEGATE,
    SPARK,
    STANDBY,
    WORKLOADS,
    Workload,
)
from tests.bench.report import Results

NAMED = {workload.name: workload for workload in WORKLOADS}
COPY = NAMED["pass-through-100"]
ABOUT = About("make bench", "2026-11-25", "abc", "2 cores", "Spark")


def results(*runs: Run, workload: Workload = COPY, date: str = "2026-11-25") -> dict[str, Any]:
    """Return the content of a JSON file."""
    found = Results(1, 1, [workload], PACES[:1], [growth.Start(10)], ABOUT)
    found.runs.extend(runs)
    return {**report.as_json(found), "about": {**ABOUT.__dict__, "date": date}}


def rate(contender: str, records_s: float, workload: Workload = COPY) -> Run:
    figure = "append_records_s" if contender == FLINK else "records_s"
    both = {figure: records_s, "append_records_s": records_s}
    return Run(workload.name, contender, 1, figures=both)


def written(folder: Path, *files: dict[str, Any]) -> str:
    """Return the page of some files."""
    page.write(files, folder / "page.md")
    return (folder / "page.md").read_text(encoding="utf-8")


def test_what_is_lost_is_on_the_page_as_what_is_won(tmp_path: Path) -> None:
    text = written(
        tmp_path, results(rate(SLUICEGATE, 100.0), rate(SPARK, 50.0), rate(FLINK, 200.0))
    )
    assert f"| {SLUICEGATE} | {SPARK} | records/s | 2.00 (2.00 - 2.00) | ahead | 1.3: met |" in text
    assert (
        f"| {SLUICEGATE} | {FLINK} | appended/s | 0.50 (0.50 - 0.50) | behind | 1.0: missed |"
        in text
    )


def test_a_lower_latency_is_ahead(tmp_path: Path) -> None:
    runs = [
        Run(PACES[0].name, contender, 1, figures={"p50_ms": ms, "p99_ms": 500.0})
        for contender, ms in ((SLUICEGATE, 100.0), (FLINK, 200.0))
    ]
    text = written(tmp_path, results(*runs))
    assert "| latency, p50 | 0.50 (0.50 - 0.50) | ahead | at most 1: met |" in text
    assert "| latency, p99 | 1.00 (1.00 - 1.00) | equal | at most 1: met |" in text


@pytest.mark.parametrize(
    ("epoch_ms", "change"), [(500.0, "90 ms shorter"), (600.0, "10 ms longer")]
)
def test_what_overlap_changes_is_on_the_page_next_to_rivals(
    tmp_path: Path, epoch_ms: float, change: str
) -> None:
    runs = [
        Run(COPY.name, SPARK, 1, {"records_s": 100.0}),
        Run(COPY.name, SLUICEGATE, 1, {"records_s": 120.0, "epoch_p50_ms": epoch_ms}),
        Run(
            COPY.name,
            SERIAL,
            1,
            {"records_s": 100.0, "epoch_p50_ms": 590.0},
            phases={"stage": [400.0], "apply kafka": [90.0], "apply kafka: write": [70.0]},
        ),
    ]
    text = written(tmp_path, results(*runs)).replace("\n", " ")
    assert f"Sluicegate / {SERIAL}: 1.20 (1.20 - 1.20)." in text
    assert f"stage 400 ms, apply kafka 90 ms. With it the epoch is {change}." in text


def test_overlap_that_was_not_compared_has_no_sentence(tmp_path: Path) -> None:
    assert "Without overlap" not in written(tmp_path, results(rate(SLUICEGATE, 100.0)))


def test_the_rate_of_a_latency_is_compared_with_full_load(tmp_path: Path) -> None:
    latency = Run(PACES[0].name, SLUICEGATE, 1, figures={"p50_ms": 100.0})
    text = written(tmp_path, results(rate(SLUICEGATE, 4 * PACES[0].records_s), latency))
    assert f"That is 0.25 of the rate of {SLUICEGATE} in {COPY.name}." in text.replace("\n", " ")


def test_a_sender_that_was_late_is_on_the_page(tmp_path: Path) -> None:
    figures = {"p50_ms": 100.0, "sender_cores": 0.25, "sender_behind_ms": 1234.0}
    text = written(tmp_path, results(Run(PACES[0].name, SLUICEGATE, 1, figures=figures)))
    assert "| cores of the sender | sender behind, ms |" in text
    assert "| 0.25 (0.25 - 0.25) | 1,234 (1,234 - 1,234) |" in text


def test_recoveries_have_a_row_for_each_way_to_recover(tmp_path: Path) -> None:
    figures = {"recovery_p50_s": 1.8, "recovery_max_s": 2.1}
    result = {**results(Run(RECOVERY, STANDBY, 1, figures=figures)), "kills": 5}
    text = written(tmp_path, result)
    assert "| standby | 1.8 (1.8 - 1.8) | 2.1 (2.1 - 2.1) | 1/1 |" in text
    assert "| cold-start |  |  | 0/0 |" in text


def test_a_run_with_an_anomaly_is_named_and_has_no_figure(tmp_path: Path) -> None:
    text = written(tmp_path, results(Run(COPY.name, SPARK, 1, anomaly="2 rows instead of 3")))
    assert f"| 1 | {COPY.name} | {SPARK} | 2 rows instead of 3 |" in text
    assert f"| {SPARK} | 0/1 |" in text


def test_files_are_joined_and_the_later_one_counts(tmp_path: Path) -> None:
    other = NAMED["ip_count"]
    text = written(
        tmp_path,
        results(rate(SLUICEGATE, 111.0)),
        results(rate(SLUICEGATE, 222.0, other), workload=other),
        results(rate(SLUICEGATE, 333.0), date="2026-11-26"),
    )
    assert "111" not in text
    assert "222" in text
    assert "333" in text
    assert "2026-11-26" in text


def test_a_page_without_files_names_the_command_of_each_part(tmp_path: Path) -> None:
    text = written(tmp_path)
    for name in (
        *NAMED,
        *growth.NAMES,
        RECOVERY,
        *(pace.workload for pace in PACES),
        "operator",
        "console",
    ):
        assert f"--only {name}" in text
    assert (
        text.count(page_parts.NOT_MEASURED)
        == len(WORKLOADS) + len(PACES) + len(growth.NAMES) + 3 + 1
    )


def test_each_plot_that_the_page_shows_is_written(tmp_path: Path) -> None:
    starts = Run("growth-start-10", SLUICEGATE, 1, figures={"query_s": 5.0, "first_epoch_s": 8.0})
    text = written(tmp_path, results(rate(SLUICEGATE, 100.0), starts))
    plots = sorted(path.name for path in (tmp_path / "page.plots").iterdir())
    assert plots == ["growth-start.svg", "pass-through-100.svg"]
    assert all(f"(page.plots/{name})" in text for name in plots)


def test_plots_of_an_earlier_page_are_removed(tmp_path: Path) -> None:
    written(tmp_path, results(rate(SLUICEGATE, 100.0)))
    written(tmp_path)
    assert not list((tmp_path / "page.plots").iterdir())


def test_a_column_without_values_is_left_out() -> None:
    rows = [("a", "", 1), ("b", "", 2)]
    assert next(page_parts.table(("", "empty", "full"), rows)) == "|  | full |"


def test_plots_are_valid_xml_with_their_values() -> None:
    spread = Spread(10.0, 20.0, 30.0, 3)
    drawn = charts.lines("t & u", "a < b", "c", {"s": [(1.0, spread), (8.0, spread)]})
    bars = charts.bars("t", {"a": spread, "b<": spread})
    for svg in (drawn, bars):
        parseString(svg)  # noqa: S318 - drawn above
    assert drawn.count("<circle") == bars.count(">20</text>") == 2


def test_an_axis_has_round_numbers_up_to_the_largest_value() -> None:
    drawn = charts.lines("t", "x", "y", {"s": [(1.0, Spread(1.0, 2.0, 193_000.0, 3))]})
    assert all(f">{number}</text>" in drawn for number in ("0", "50,000", "200,000"))


def test_a_plot_without_values_is_drawn() -> None:
    assert "</svg>" in charts.lines("t", "x", "y", {"s": []})


def test_the_command_of_the_page_names_no_file_of_the_machine() -> None:
    assert about(["--only", "latency", "--json", "a/b"]).command == (
        'make bench ARGS="--only latency"'
    )
