"""Random schedules of the simulation: the same steps as Hypothesis generates, in more realistic proportions.

With equal probabilities a driver rarely lives long enough to be upgraded and rolled back. These
schedules mostly let everything work, and then inject faults. A seed identifies and repeats a schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.robustness.model.operator.world import BAD_IMAGE

Machine = Any
"""A state machine of `test_simulation`, which imports this module."""

STEPS = 40

Step = Callable[[Machine, random.Random], None]


def _fails(m: Machine, r: random.Random) -> None:
    ages = tuple(r.choice((0, 0, 0, 1, 2, 3, 8, 30)) for _ in range(3))
    m.operator_fails(ages=ages, actions_done=r.randrange(5), in_flight=r.random() < 0.3)


def _upgrades(m: Machine, r: random.Random) -> None:
    m.user_upgrades(
        image=r.choice(("jobs:1", "jobs:2", "jobs:3", BAD_IMAGE, BAD_IMAGE)),
        mode=r.choice(("LastState", "Savepoint", "Savepoint", "Stateless")),
    )


def _changes_pod(m: Machine, r: random.Random) -> None:
    changes = ("bind", "run", "progress", "delete_pod", "lose_node", "return_node", "remove_node")
    m.pod_changes(index=r.randrange(6), change=r.choice(changes))


_STEPS: tuple[tuple[float, Step], ...] = (
    (
        6,
        lambda m, r: m.everything_works_for_a_while(
            seconds=r.choice((0.5, 7.0, 20.0, 61.0)), times=r.randint(1, 8)
        ),
    ),
    (3, lambda m, r: m.operator_reconciles(times=r.randint(1, 3))),
    (3, _fails),
    (2, lambda m, r: m.time_passes(seconds=r.choice((0.5, 3.0, 6.0, 31.0, 700.0)))),
    (1, lambda m, r: m.request_arrives(index=r.randrange(6), lost=r.random() < 0.5)),
    (2, lambda m, r: m.pod_starts(index=r.randrange(6))),
    (2, _changes_pod),
    (
        1,
        lambda m, r: m.process_ends(
            index=r.randrange(6), code=r.choice((0, 1, 64, 65, 66, 75, 137, 143))
        ),
    ),
    (
        3,
        lambda m, r: m.savepoint_changes(
            index=r.randrange(6), change=r.choice(("seal", "seal", "ready", "ready", "fail"))
        ),
    ),
    (1, lambda m, _r: m.savepoints_are_taken()),
    (1, lambda m, r: m.user_suspends_or_resumes(suspend=r.random() < 0.3)),
    (3, _upgrades),
    (0.5, lambda m, _r: m.user_restarts()),
    (0.1, lambda m, _r: m.user_deletes(sure=True)),
)


_TAKEOVER: tuple[float, Step] = (6, lambda m, _r: m.driver_is_killed_while_a_standby_waits())
"""Otherwise few drivers end while their standby is ready."""


def run_schedule(machine: type[Any], seed: int) -> None:
    """Run one schedule, and then run the world until it comes to rest.

    Raises:
        AssertionError: an invariant was violated, or the world did not come to rest.
    """
    rng = random.Random(seed)
    simulation = machine()
    steps = (
        (*_STEPS, _TAKEOVER)
        if hasattr(machine, "driver_is_killed_while_a_standby_waits")
        else _STEPS
    )
    weights = [weight for weight, _ in steps]
    for _, step in rng.choices(steps, weights, k=STEPS):
        step(simulation, rng)
        simulation.assert_invariants()
    simulation.teardown()
