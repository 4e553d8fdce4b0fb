"""The runs that together cover every cell."""

from __future__ import annotations

import pytest

from tests.robustness.__main__ import read_arguments, run_options
from tests.robustness.all_runs import RUNS, Run
from tests.robustness.failpoints import namespace
from tests.robustness.failpoints.actors import Matrix
from tests.robustness.failpoints.fault_plan import Cell, cells_of, draw_plan
from tests.robustness.scenarios.run_options import matrix_of


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow namespaces, of which no test of this file makes any."""
    monkeypatch.setattr(namespace, "missing", lambda _programs: "")


def first_cells(run: Run) -> list[Cell]:
    """Return the cells of a run's first faults."""
    options = run_options(read_arguments(run.command(7)))
    assert matrix_of(options) is run.matrix
    plan = draw_plan(7, options.faults, run.matrix, part=options.part)
    return [((fault.strike.point, fault.strike.sink), fault.strike.actor) for fault in plan]


@pytest.mark.parametrize("matrix", Matrix)
def test_every_cell_of_a_matrix_is_drawn_by_a_run(matrix: Matrix) -> None:
    drawn = {cell for run in RUNS if run.matrix is matrix for cell in first_cells(run)}
    assert drawn == set(cells_of(matrix))


def test_there_are_a_thousand_faults_with_the_second_ones() -> None:
    plans = [draw_plan(7 + at, run.faults, run.matrix) for at, run in enumerate(RUNS)]
    assert sum(1 + (fault.second is not None) for plan in plans for fault in plan) >= 1000


def test_no_two_runs_have_the_same_folder() -> None:
    assert len({run.folder(at) for at, run in enumerate(RUNS)}) == len(RUNS)


@pytest.mark.parametrize("part", ["0/4", "5/4", "1", "a/b", ""])
def test_a_part_that_does_not_exist_is_refused(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_arguments(["--part", part])
    assert "--part" in capsys.readouterr().err
