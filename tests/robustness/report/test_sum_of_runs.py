"""The sum of several long runs."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from infra.workspace import CHECKOUT
from tests.robustness.__main__ import _print_sum, read_arguments, run_options
from tests.robustness.failpoints.actors import Matrix
from tests.robustness.failpoints.fault_plan import cell_named, cells_of
from tests.robustness.report.run_report import ELSEWHERE, RunReport
from tests.robustness.report.sum_of_runs import (
    REPORT,
    chosen_cells,
    command_of,
    published_reports,
    read_report,
    sum_as_markdown,
    sum_as_page,
)
from tests.robustness.scenarios.run_options import KINDS

KILLED, PAUSED = "driver killed", "Kafka paused"


def report(seed: int, actor: str, failpoint: str, recovery_s: float, **fields: object) -> RunReport:
    """Return the report of a run with one fault that passed."""
    run: dict[str, Any] = {"seed": seed, "faults": 9, "minutes": 4.0, "end_minutes": 10.5}
    run |= {"job": "two_sinks", "delivery": "exactly-once", "rate": 40.0, "only": []}
    run["state_backend"] = "rocksdb"
    run |= dict.fromkeys(KINDS, False)
    values = {
        "seconds": 90.0,
        "cells": {actor: {failpoint: 1}},
        "recovery_s": {actor: {"single": [recovery_s]}},
        "reader_wait_s": {actor: {"single": [0.5]}},
        "single": 1,
        "judged": True,
        "rows": 1234,
        "drivers": 2,
    }
    return RunReport(run, **{**values, **fields})  # type: ignore[arg-type]


def number_in(page: str, failpoint: str, actor: str) -> str:
    """Return what the table of cells has of a failpoint and an actor."""
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    (head,) = (row for row in rows if row[1:2] == ["failpoint"])
    (found,) = (row for row in rows if row[1:2] == [failpoint])
    return found[head.index(actor)]


def test_cells_and_times_of_all_runs_are_summed() -> None:
    runs = [
        report(1, KILLED, "before-stage", 10.0),
        report(2, KILLED, "before-stage", 20.0),
        report(3, PAUSED, "any moment", 5.0),
    ]
    page = sum_as_markdown(runs)
    assert "3 faults, 0 of them double" in page
    assert number_in(page, "before-stage", KILLED) == "2"
    assert "| driver killed | single | 2 | 15.0 | 20.0 | 20.0 | 0.5 | 0.5 |" in page
    assert "| 2 | two_sinks, exactly-once | 1 | 0 | 1.5 | 2 | 1,234 | 0 |  | `make " in page
    assert "**No anomaly in these runs**: of 3,702 records" in page


def test_changes_of_all_runs_are_summed() -> None:
    runs = [
        report(1, KILLED, "before-stage", 10.0, changes={"savepoint=": 1, "overlap=True": 2}),
        report(2, KILLED, "before-stage", 10.0, changes={"savepoint=": 3}),
    ]
    page = sum_as_markdown(runs)
    assert "6 with a changed setting, 4 of which moved the job by a savepoint" in page
    assert "| moved by a savepoint | 4 |" in page
    assert "| `overlap=True` | 2 |" in page


def test_a_cell_counts_as_covered_once_and_only_at_its_failpoint() -> None:
    runs = [report(n, KILLED, "before-stage", 10.0) for n in (1, 2)]
    page = sum_as_markdown([*runs, report(3, PAUSED, ELSEWHERE, 5.0)])
    assert "Covered: 1 of 290 cells of any run, 0 of 56 cells of the object store" in page


def test_a_cell_of_no_run_is_a_zero_and_one_that_cannot_be_is_empty() -> None:
    page = sum_as_markdown([report(1, KILLED, "before-stage", 10.0)])
    assert number_in(page, "after-stage", KILLED) == "0"
    assert number_in(page, "decide", "store slow") == "0"
    assert number_in(page, "decide", KILLED) == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"anomalies": ["repeated: 7 in topic"]}, "seed 2: repeated: 7 in topic"),
        ({"judged": False}, "seed 2: its rows are not judged"),
    ],
)
def test_one_failed_run_fails_the_sum_and_is_named(fields: dict[str, object], reason: str) -> None:
    page = sum_as_markdown(
        [
            report(1, KILLED, "before-stage", 10.0),
            report(2, KILLED, "before-stage", 10.0, **fields),
        ]
    )
    assert "**1 runs failed.**" in page
    assert reason in page
    assert "No anomaly" not in page


def test_the_report_of_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    run = report(1, KILLED, "before-stage", 10.0)
    (tmp_path / REPORT).write_text(json.dumps(run.as_json()))
    assert read_report(tmp_path) == run


def test_a_run_that_was_killed_is_not_left_out_in_silence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"report\.json"):
        read_report(tmp_path)


def test_a_sum_skips_logs_and_names_the_runs_that_have_not_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ALL=1` writes a log next to the folder of each run, and `SUM=".work/robustness/*"` names both."""
    ended, log, running = tmp_path / "1", tmp_path / "1.log", tmp_path / "2"
    ended.mkdir()
    running.mkdir()
    log.touch()
    run = report(1, KILLED, "before-stage", 10.0)
    (ended / REPORT).write_text(json.dumps(run.as_json()))
    assert _print_sum([ended, log]) == 0
    assert _print_sum([ended, log, running]) == 1
    printed = capsys.readouterr()
    assert printed.err == f"{running} has no report.json: the run has not ended\n"
    assert printed.out.count("1 faults, 0 of them double") == 2


def test_the_commit_of_a_run_is_in_its_row() -> None:
    run = report(2, KILLED, "before-stage", 10.0)
    run.run["commit"] = "0123456789+"
    assert "| 1,234 | 0 | 0123456789+ | `make " in sum_as_markdown([run])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"minutes": 1440, "faults": 12, "rate": 0.5, "job": "ip_count"},
        {"store": True, "standby": True, "delivery": "at-least-once"},
        {"job": "ip_count", "state_backend": "hdfs"},
        {"part": "2/4"},
        {"only": ["before-commit:topic:driver killed", "any moment:Kafka killed"]},
    ],
)
def test_the_command_of_a_run_repeats_its_options(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"part": "1/1", **report(5, KILLED, "before-stage", 10.0).run, **changes}
    make, target, *variables = shlex.split(command_of(run))
    values = dict(variable.split("=", 1) for variable in variables)
    arguments = shlex.split(values.pop("ARGS"))
    arguments += [f"--{name.lower()}={value}" for name, value in values.items()]
    monkeypatch.setattr("sys.argv", ["robustness", *arguments])
    assert (make, target) == ("make", "robustness")
    options = dataclasses.asdict(run_options(read_arguments()))
    assert {**options, "only": list(options["only"])} == run


def test_cells_of_no_published_run_can_be_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = report(5, KILLED, "before-stage", 10.0)
    monkeypatch.setattr("tests.robustness.report.sum_of_runs.published_reports", lambda: [run])
    covered = cell_named(f"before-stage:{KILLED}", Matrix.ANY_RUN)
    chosen = chosen_cells(["uncovered"], Matrix.ANY_RUN)
    assert sorted([covered, *chosen]) == sorted(cells_of(Matrix.ANY_RUN))


def test_an_old_report_without_some_options_has_a_command() -> None:
    run = report(5, KILLED, "before-stage", 10.0).run
    del run["brokers"], run["state_backend"]
    assert command_of(run).startswith("make robustness SEED=5 FAULTS=9 JOB=two_sinks ARGS=")


def test_the_published_page_is_the_sum_of_the_kept_reports() -> None:
    page = CHECKOUT / "docs" / "reference" / "long-runs.md"
    assert page.read_text() == sum_as_page(published_reports())
