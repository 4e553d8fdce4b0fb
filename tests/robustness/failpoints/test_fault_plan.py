"""The plan of a long run: a seed repeats it, and it covers the matrix."""

from __future__ import annotations

import pytest

from tests.robustness.failpoints.actors import (
    ACTORS,
    DRIVER_ACTORS,
    STORE_EFFECTS,
    STORE_REQUESTS,
    Actor,
    Matrix,
)
from tests.robustness.failpoints.fault_plan import (
    MOVES,
    SAVEPOINT,
    Change,
    cell_named,
    cells_of,
    draw_plan,
)

CELLS = len(cells_of(Matrix.ANY_RUN))


def test_a_seed_draws_the_same_plan_again() -> None:
    assert draw_plan(7, 300) == draw_plan(7, 300)


def test_another_seed_draws_another_plan() -> None:
    assert draw_plan(7, 20) != draw_plan(8, 20)


def test_more_faults_continue_the_plan_of_the_seed() -> None:
    """So that a long run repeats the beginning of a short one."""
    assert draw_plan(7, CELLS + 20)[:20] == draw_plan(7, 20)


@pytest.mark.parametrize("matrix", Matrix)
def test_every_cell_comes_once_before_one_comes_twice(matrix: Matrix) -> None:
    cells = cells_of(matrix)
    plan = draw_plan(7, len(cells), matrix)
    drawn = [((f.strike.point, f.strike.sink), f.strike.actor) for f in plan]
    assert sorted(drawn) == sorted(cells)


def test_only_a_creation_is_answered_that_the_object_exists() -> None:
    actors: dict[str, set[Actor]] = {}
    for (request, _), actor in cells_of(Matrix.STORE):
        actors.setdefault(STORE_REQUESTS[request].kind, set()).add(actor)
    every = set(STORE_EFFECTS)
    others = every - {Actor.STORE_SAYS_EXISTS}
    assert actors == {"PUT": every, "LIST": others, "DELETE": others}


def test_double_faults_and_changed_settings_are_drawn() -> None:
    plan = draw_plan(7, CELLS)
    assert sum(fault.second is not None for fault in plan) > CELLS // 6
    drivers = DRIVER_ACTORS.intersection(ACTORS)
    assert {fault.strike.actor for fault in plan if fault.change} == drivers


def test_the_job_is_moved_and_each_command_of_a_move_is_killed_at_each_failpoint() -> None:
    plan = draw_plan(7, 4 * CELLS)
    assert set(MOVES) <= {fault.change for fault in plan}


def test_a_plan_of_given_cells_has_single_faults_of_these_alone() -> None:
    names = ["before-commit:topic:driver killed", "any moment:Kafka paused"]
    plan = draw_plan(7, 20, only=[cell_named(name, Matrix.ANY_RUN) for name in names])
    assert {f"{fault.strike.failpoint}:{fault.strike.actor}" for fault in plan} == set(names)
    assert not any(fault.second or fault.change for fault in plan)


def test_an_unknown_cell_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"before-commit:topic.* driver killed"):
        cell_named("before-commit:driver killed", Matrix.ANY_RUN)


def test_each_fault_of_the_matrix_of_moves_moves_the_job_and_is_a_kill_at_its_failpoint() -> None:
    plan = draw_plan(7, 20, Matrix.MOVE)
    assert [fault.change for fault in plan] == [
        Change(SAVEPOINT, fault.strike.point) for fault in plan
    ]
