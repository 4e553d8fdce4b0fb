"""Draws the faults of a long run from its seed. Pure: a seed draws the same plan on every machine.

A fault is a failpoint (or any moment), an actor that fails there, and sometimes a second fault during the
recovery and a setting that the next driver starts with. Failpoints and actors are drawn without
replacement: each cell of the matrix comes once before one comes twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluicegate.failpoints import POINTS
from tests.robustness.failpoints.actors import (
    ACTORS,
    ACTORS_OF,
    OUTLIVED_ACTORS,
    REPLACED_BY_RUN,
    SECOND_ACTORS,
    STORE_EFFECTS,
    STORE_REQUESTS,
    SUPERVISED_SECOND_ACTORS,
    Actor,
    Matrix,
)
from tests.robustness.failpoints.random_failpoint import DRIVER_POINTS, SINK_POINTS

DEAD_LETTERS = "dead-letters"
SINKS = ("topic", "table", DEAD_LETTERS)
"""The sinks of a job of the run: a Kafka topic, a MySQL table, the topic of dead letters."""

ANY_MOMENT = ""
"""The failpoint of a fault that waits for none."""

Cell = tuple[tuple[str, str], Actor]
"""A cell of a matrix: failpoint and sink, and the actor that fails there."""


@dataclass(frozen=True)
class Strike:
    """One failure: a failpoint and an actor.

    Args:
        point: a failpoint, ANY_MOMENT, a key of STORE_REQUESTS, or one of MOVE_POINTS.
        sink: one of SINKS if the failpoint is passed once for each sink, otherwise empty.
        actor: what fails.
        length_s: how long a paused server stays paused, and a killed one down.
    """

    point: str
    sink: str
    actor: Actor
    length_s: float

    @property
    def failpoint(self) -> str:
        """The failpoint, as a row of the report."""
        return failpoint_name(self.point, self.sink)

    def described(self) -> dict[str, str]:
        """Return the failure for the history."""
        return {"failpoint": self.failpoint, "actor": self.actor}


@dataclass(frozen=True)
class Change:
    """What is changed before the next driver starts.

    Args:
        setting: name of a setting; PARTITIONS, which are added to the source; or SAVEPOINT, by which the
            job is moved to a new checkpoint.
        value: of the setting; how many partitions; or a failpoint where a command of the move, or the first
            driver after it, is killed before it is repeated, empty for none.
    """

    setting: str
    value: bool | int | str


@dataclass(frozen=True)
class PlannedFault:
    """A fault of the plan.

    Args:
        number: its number, from 1.
        delay_s: how long the job runs in between.
        strike: what fails.
        second: what fails during the recovery; None for a single fault.
        change: what is changed before the next driver starts; None for nothing.
    """

    number: int
    delay_s: float
    strike: Strike
    second: Strike | None
    change: Change | None

    def described(self) -> dict[str, Any]:
        """Return the plan for the history."""
        return {
            "number": self.number,
            **self.strike.described(),
            "second": self.second.described() if self.second else None,
            "change": f"{self.change.setting}={self.change.value}" if self.change else "",
        }


PARTITIONS, SAVEPOINT = "partitions", "savepoint"

CHANGES = (
    Change("overlap", value=True),
    Change("overlap", value=False),
    Change("max_records", 40),
    Change("max_records", 300),
    Change("max_records", 200_000),
    Change("inline_bytes", 0),
    Change("inline_bytes", 16 << 20),
    Change(PARTITIONS, 1),
)

MOVE_POINTS = tuple(
    p for p, user in POINTS.items() if user.startswith(("savepoint:", "restore:", "takeover:"))
)
"""Failpoints of the commands of a move and of the first driver after them. In the matrix of moves the driver
before them is struck at MOVED_FROM, and the command or driver is killed at one of these."""

MOVED_FROM = "before-stage"
"""Spark has committed every decided epoch here, so the job can be moved."""

MOVES = tuple(Change(SAVEPOINT, point) for point in ("", *MOVE_POINTS))
"""Moves of the job; each of its commands, or the first driver after them, may be killed once."""

_PRUNING = "before-sweep"
"""A driver prunes in its first epoch and then in each tenth; in most of them it deletes nothing."""

_SECOND_ONE_IN = 4
_CHANGE_ONE_IN = 3
_MOVE_ONE_IN = 3


def all_failpoints() -> list[tuple[str, str]]:
    """Return every failpoint of the matrix, with its sink or an empty one."""
    points = [point for point, user in POINTS.items() if user.startswith("executor:")]
    found = [(ANY_MOMENT, ""), *((point, "") for point in (*points, _PRUNING))]
    for point in DRIVER_POINTS:
        found += [(point, sink) for sink in (SINKS if point in SINK_POINTS else ("",))]
    return found


def failpoint_name(point: str, sink: str) -> str:
    """Return a failpoint as a row of the report."""
    if point == ANY_MOMENT:
        return "any moment"
    return f"{point}:{sink}" if sink else point


def cell_named(name: str, matrix: Matrix) -> Cell:
    """Return the cell 'failpoint:actor' of a matrix, in the words of the report.

    Raises:
        ValueError: there is none.
    """
    failpoint, _, actor = name.rpartition(":")
    cells = cells_of(matrix)
    found = [c for c in cells if (failpoint_name(*c[0]), c[1]) == (failpoint, actor)]
    if not found:
        names = ", ".join(dict.fromkeys(failpoint_name(*c[0]) for c in cells))
        actors = ", ".join(dict.fromkeys(c[1] for c in cells))
        raise ValueError(f"no cell {name!r}; failpoints: {names}; actors: {actors}")
    return found[0]


def draw_plan(
    seed: int,
    faults: int,
    matrix: Matrix = Matrix.ANY_RUN,
    *,
    part: str = "1/1",
    only: Sequence[Cell] = (),
) -> list[PlannedFault]:
    """Return the faults of a seed; more faults continue the same plan.

    Args:
        seed: any number.
        faults: how many.
        matrix: of the first faults. Second ones are those of any run, or of one with a supervisor.
        part: which part of the matrix they are of, such as '1/4' for the first quarter.
        only: draw single faults of these cells alone, and no change; if empty, of the part.
    """
    rng = random.Random(seed)
    # apart, so that the faults of older runs are repeated
    moves = random.Random(f"moves of {seed}")
    number, _, parts = part.partition("/")
    cells = _shuffled(rng, only or cells_of(matrix)[int(number) - 1 :: int(parts)])
    seconds = SUPERVISED_SECOND_ACTORS if matrix is Matrix.SUPERVISOR else SECOND_ACTORS
    plan = [_draw(rng, moves, number, next(cells), seconds) for number in range(1, faults + 1)]
    return [replace(fault, second=None, change=None) for fault in plan] if only else plan


def cells_of(matrix: Matrix) -> list[Cell]:
    """Return the cells of a matrix: every failpoint with every actor that can fail there."""
    if matrix is Matrix.STORE:
        return [
            ((name, ""), actor)
            for name, requests in STORE_REQUESTS.items()
            for actor in STORE_EFFECTS
            # only a creation can find that the object exists
            if requests.kind == "PUT" or actor is not Actor.STORE_SAYS_EXISTS
        ]
    failpoints = [(p, "") for p in MOVE_POINTS] if matrix is Matrix.MOVE else all_failpoints()
    return [
        (failpoint, actor) for failpoint in failpoints for actor in ACTORS_OF.get(matrix, ACTORS)
    ]


def _shuffled(rng: random.Random, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Yield every cell in a random order, then again in another one."""
    while True:
        yield from rng.sample(cells, len(cells))


def _draw(
    rng: random.Random, moves: random.Random, number: int, cell: Cell, seconds: Sequence[Actor]
) -> PlannedFault:
    failpoint, actor = cell
    strike = Strike(*failpoint, actor, round(rng.uniform(0.5, 8), 1))
    delay_s = round(rng.uniform(0, 3), 1)
    second_point, second_actor = rng.choice(all_failpoints()[1:]), rng.choice(seconds)
    second = Strike(*second_point, second_actor, round(rng.uniform(0.5, 8), 1))
    doubled = rng.randrange(_SECOND_ONE_IN) == 0 and actor not in OUTLIVED_ACTORS
    change = rng.choice(CHANGES)
    changed = rng.randrange(_CHANGE_ONE_IN) == 0 and actor in REPLACED_BY_RUN
    # the driver of a killed supervisor still runs, and a job is moved after its driver has ended
    movable = actor is not Actor.SUPERVISOR_KILLED
    if changed and movable and moves.randrange(_MOVE_ONE_IN) == 0:
        change = moves.choice(MOVES)
    if actor in ACTORS_OF[Matrix.MOVE]:
        changed, change = True, Change(SAVEPOINT, strike.point)
    return PlannedFault(
        number, delay_s, strike, second if doubled else None, change if changed else None
    )
