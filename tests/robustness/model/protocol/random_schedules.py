"""Random schedules in realistic proportions: the steps of `test_simulation`, weighted.

Where all steps are equally likely, a driver rarely decides more than one epoch. These schedules mostly
let drivers work, and often let one sleep at a critical step while another goes on. A seed identifies
and repeats a schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sluicegate.settings.epoch import EXACTLY_ONCE
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.simulated_sealer import start_sealer

if TYPE_CHECKING:
    from tests.robustness.model.protocol.world import World

Machine = Any
"""A state machine of `test_simulation`, which imports this module."""

STEPS = 24
MAX_ALIVE = 3

CRITICAL = (
    "CreateRecord", "CreateRecord", "CreateSeal", "LatestEpoch", "ReadRecord", "ReadOffsets", "Stage",
    "seed", "open", "compare", "write", "commit", "commit", "log offsets", "log commit",
)  # fmt: skip
FAULTS = ("lost", "failed", "late", "glitch")

Step = Callable[[Machine, random.Random], None]


def _picked(m: Machine, r: random.Random) -> Driver:
    """Return a driver that is alive; starts one if there is none, or now and then."""
    alive: list[Driver] = m.world.alive()
    if not alive or (len(alive) < MAX_ALIVE and r.random() < 0.2):
        m.world.start(next(m.names), overlap=r.random() < 0.4)
        return m.world.alive()[-1] if m.world.alive() else _picked(m, r)
    return r.choice(alive)


def _runs(m: Machine, r: random.Random) -> None:
    _steps(_picked(m, r), r.randint(5, 120))


def _steps(driver: Driver, steps: int) -> None:
    for _ in range(steps):
        if not driver.alive or driver.blocked:
            return
        driver.step()


def _until(driver: Driver, name: str) -> None:
    for _ in range(80):
        if not driver.alive or driver.blocked or driver.next_step == name:
            return
        driver.step()


def _meets_a_fault(m: Machine, r: random.Random) -> None:
    """Run into a fault at a critical step; often the same one again and again."""
    driver, fault = _picked(m, r), r.choice(FAULTS)
    _until(driver, r.choice(CRITICAL))
    for _ in range(r.choice((1, 1, 2, 6))):
        driver.step(fault)
        if r.random() < 0.5:
            _steps(driver, r.randint(0, 2))


def _sleeps(m: Machine, r: random.Random) -> None:
    """Let one driver sleep at a critical step while another one goes on."""
    sleeper = _picked(m, r)
    for _ in range(r.randint(1, 3)):
        sleeper.step()
        _until(sleeper, r.choice(CRITICAL))
    if len(m.world.alive()) < MAX_ALIVE:
        m.world.start(next(m.names), overlap=r.random() < 0.4)
    others = [driver for driver in m.world.alive() if driver is not sleeper]
    if others:
        _steps(r.choice(others), r.choice((5, 20, 60, 150)))
    _steps(sleeper, r.choice((1, 3, 40)))


def _crashes(m: Machine, r: random.Random) -> None:
    driver = _picked(m, r)
    _until(driver, r.choice(CRITICAL))
    driver.crash()


def _late_request_ends(m: Machine, r: random.Random) -> None:
    world: World = m.world
    if world.late:
        world.end_late_request(r.randrange(len(world.late)), deliver=r.random() < 0.8)


def _is_restored(m: Machine, r: random.Random) -> None:
    if _may_be_restored(m):
        m.restore_mysql(back=r.randint(1, 4))


def _may_be_restored(m: Machine) -> bool:
    return hasattr(m, "restore_mysql") and m.may_be_restored()


def _is_discarded(m: Machine, r: random.Random) -> None:
    """Discard an epoch that a killed driver has decided and not applied."""
    if not hasattr(m, "discard_newest"):
        return
    _until(_picked(m, r), "open")
    for driver in m.world.alive():
        driver.crash()
    if m.world.decided and not m.world.is_sealed:
        m.discard_newest(sink=r.choice(("kafka", "mysql")))


def _late_decision(m: Machine, r: random.Random) -> None:
    """Deliver a request to decide after its epoch was pruned; then restore a sink from a backup."""
    driver = _picked(m, r)
    _until(driver, "CreateRecord")
    if not driver.alive or driver.next_step != "CreateRecord":
        return
    epoch = max(driver.memory)
    driver.step("late")
    driver.crash()
    for other in m.world.alive():
        other.crash()
    other = m.world.start(next(m.names))
    for _ in range(400):
        if not other.alive or epoch in m.world.pruned:
            break
        other.step()
    while m.world.late:
        m.world.end_late_request(0, deliver=True)
    if _may_be_restored(m):
        other.crash()
        m.restore_mysql(back=r.randint(1, 16))


def _offsets_are_overwritten(m: Machine, r: random.Random) -> None:
    if not hasattr(m, "break_offset_log"):
        return
    for driver in (_picked(m, r), m.world.start(next(m.names))):
        _until(driver, "log offsets")
    if alive := m.world.alive():
        _steps(alive[0], r.choice((1, 15, 30)))
    if any(driver.next_step == "log offsets" for driver in m.world.alive()):
        m.break_offset_log(
            index=r.randrange(6), fault=r.choice(("overwrite", "overwrite", "vanish"))
        )
        if r.random() < 0.5:
            for driver in m.world.alive():
                driver.crash()


def _markers_expire(m: Machine, _r: random.Random) -> None:
    if hasattr(m, "markers_expire") and not m.world.is_sealed:
        m.markers_expire()


def _seals(m: Machine, r: random.Random) -> None:
    """Start a sealer where a driver may have left an epoch unapplied; one of them often sleeps."""
    driver = _picked(m, r)
    _until(driver, r.choice(("log offsets", "Stage", "CreateRecord", r.choice(CRITICAL))))
    if len(m.world.alive()) >= MAX_ALIVE or m.world.has_regressed():
        return
    sealer = start_sealer(m.world, next(m.names))
    if r.random() < 0.5:
        _until(sealer, r.choice(("CreateSeal", "LatestEpoch")))
        sealer.step(r.choice((None, *FAULTS)))
        _steps(driver, r.choice((1, 5, 20, 60)))
    _steps(sealer, r.choice((1, 3, 40)))


_STEPS: tuple[tuple[float, Step], ...] = (
    (4, _runs),
    (5, _sleeps),
    (3, _meets_a_fault),
    (2, _crashes),
    (2, _late_request_ends),
    (0.5, lambda m, _r: m.server_ends_connections()),
    (0.8, _is_restored),
    (0.8, _is_discarded),
    (0.4, _markers_expire),
    (0.5, _late_decision),
    (1, _offsets_are_overwritten),
    (1, _seals),
)


def run_schedule(machine: type[Any], seed: int) -> World:
    """Run one schedule, and then one healthy driver to the end; return the world.

    Raises:
        AssertionError: an invariant is violated.
    """
    rng = random.Random(seed)
    simulation = machine()
    simulation.begin(
        retention=rng.choice((2, 2, 3, 8)),
        parts=rng.choice((1, 1, 2, 4)),
        overlap=rng.random() < 0.3,
        delivery=rng.choice(getattr(machine, "deliveries", [EXACTLY_ONCE])),
    )
    for _, step in rng.choices(_STEPS, [weight for weight, _ in _STEPS], k=STEPS):
        step(simulation, rng)
    simulation.teardown()
    world: World = simulation.world
    return world
