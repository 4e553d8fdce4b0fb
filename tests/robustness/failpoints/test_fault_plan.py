"""The plan of a long run: a seed repeats it, and it covers the matrix."""

from __future__ import annotations

import pytest

from tests.robustness.failpoints.fault_plan import DRIVER_ACTORS, cells_of, draw_plan

CELLS = len(cells_of(store=False))


def test_a_seed_draws_the_same_plan_again() -> None:
    assert draw_plan(7, 300) == draw_plan(7, 300)


def test_another_seed_draws_another_plan() -> None:
    assert draw_plan(7, 20) != draw_plan(8, 20)


def test_more_faults_continue_the_plan_of_the_seed() -> None:
    """So that a long run repeats the beginning of a short one."""
    assert draw_plan(7, CELLS + 20)[:20] == draw_plan(7, 20)


@pytest.mark.parametrize("store", [False, True])
def test_every_cell_comes_once_before_one_comes_twice(*, store: bool) -> None:
    matrix = cells_of(store=store)
    plan = draw_plan(7, len(matrix), store=store)
    cells = [((f.strike.point, f.strike.sink), f.strike.actor) for f in plan]
    assert sorted(cells) == sorted(matrix)


def test_double_faults_and_changed_settings_are_drawn() -> None:
    plan = draw_plan(7, CELLS)
    assert sum(fault.second is not None for fault in plan) > CELLS // 6
    assert {fault.strike.actor for fault in plan if fault.change} == DRIVER_ACTORS
