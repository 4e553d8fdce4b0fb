"""Random walks through the simulation: the same rules as Hypothesis draws, in likelier orders.

A rule drawn evenly rarely lets a driver live long enough to be upgraded, and then given up: walks
mostly let all go well, and then err. A walk is named by its seed, and repeated by it. Called by
`test_simulation` and `mutants`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .world import BAD

Machine = Any
"""A machine of `test_simulation`; it imports this module."""

STEPS = 40

Step = Callable[[Machine, random.Random], None]


def _errs(m: Machine, r: random.Random) -> None:
    ages = tuple(r.choice((0, 0, 0, 1, 2, 3, 8, 30)) for _ in range(3))
    m.operator_errs(ages=ages, acts_done=r.randrange(5), late=r.random() < 0.3)


def _upgrades(m: Machine, r: random.Random) -> None:
    m.user_upgrades(
        image=r.choice(("jobs:1", "jobs:2", "jobs:3", BAD, BAD)),
        mode=r.choice(("last-state", "savepoint", "savepoint", "stateless")),
    )


def _fate(m: Machine, r: random.Random) -> None:
    fates = ("bind", "run", "progress", "delete_pod", "silence", "return_node", "remove_node")
    m.pod_meets_its_fate(which=r.randrange(6), fate=r.choice(fates))


_STEPS: tuple[tuple[float, Step], ...] = (
    (
        6,
        lambda m, r: m.all_goes_well_for_a_while(
            seconds=r.choice((0.5, 7.0, 20.0, 61.0)), times=r.randint(1, 8)
        ),
    ),
    (3, lambda m, r: m.operator_passes(times=r.randint(1, 3))),
    (3, _errs),
    (2, lambda m, r: m.time_goes_by(seconds=r.choice((0.5, 3.0, 6.0, 31.0, 700.0)))),
    (1, lambda m, r: m.request_lands(which=r.randrange(6), lost=r.random() < 0.5)),
    (2, lambda m, r: m.pod_starts(which=r.randrange(6))),
    (2, _fate),
    (
        1,
        lambda m, r: m.process_ends(
            which=r.randrange(6), code=r.choice((0, 1, 64, 65, 66, 75, 137, 143))
        ),
    ),
    (
        3,
        lambda m, r: m.savepoint_meets_its_fate(
            which=r.randrange(6), fate=r.choice(("seal", "seal", "ready", "ready", "fail"))
        ),
    ),
    (1, lambda m, _r: m.savepoints_are_taken()),
    (1, lambda m, r: m.user_suspends_or_resumes(suspend=r.random() < 0.3)),
    (3, _upgrades),
    (0.5, lambda m, _r: m.user_restarts()),
    (0.1, lambda m, _r: m.user_deletes(sure=True)),
)


def walk(machine: type[Any], seed: int) -> None:
    """Let one walk happen, and the world come to rest after it.

    Raises:
        AssertionError: a law was broken, or it came to no rest.
    """
    drawn = random.Random(seed)
    one = machine()
    weights = [weight for weight, _ in _STEPS]
    for _, step in drawn.choices(_STEPS, weights, k=STEPS):
        step(one, drawn)
        one.laws()
    one.teardown()
