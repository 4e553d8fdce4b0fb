"""Random schedules in realistic proportions: the steps of `test_simulation`, weighted.

Where all steps are equally likely, a driver rarely decides more than one epoch. These schedules mostly
let drivers work, and often let one sleep at a critical step while another goes on. A seed identifies
and repeats a schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sluicegate.errors import OffsetLogDiverged
from sluicegate.protocol.markers import Marker
from sluicegate.settings.epoch import EXACTLY_ONCE
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.exhaustive_search import recover
from tests.robustness.model.protocol.simulated_sealer import start_sealer
from tests.robustness.validate import invariants

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
        driver = _started(m, r)
        return driver if driver.alive else _picked(m, r)
    return r.choice(alive)


def _started(m: Machine, r: random.Random) -> Driver:
    driver: Driver = m.world.start(next(m.names), overlap=r.random() < 0.4)
    return driver


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
        _started(m, r)
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
    """Discard an epoch that a killed driver has decided and not applied.

    Sometimes restore a sink, often to before the discard, and seal when the next driver has the epoch.
    """
    if not hasattr(m, "discard_newest"):
        return
    _until(_picked(m, r), "open")
    for driver in m.world.alive():
        driver.crash()
    if m.world.decided and not m.world.is_sealed:
        m.discard_newest(sink=r.choice(("kafka", "mysql", "mysql")))
    if r.random() < 0.3 and _may_be_restored(m):
        m.restore_mysql(back=1)
        if r.random() < 0.3 and not m.world.has_regressed():
            driver, sealer = _started(m, r), start_sealer(m.world, next(m.names))
            _until(driver, "log commit")
            driver.step()
            _steps(sealer, 40)


def _late_decision(m: Machine, r: random.Random) -> None:
    """Deliver a request to decide after its epoch was pruned, to a driver that still runs that epoch.

    Then restore a sink from a backup, often the newest one from before that epoch.
    """
    driver = _picked(m, r)
    _until(driver, "CreateRecord")
    if not driver.alive or driver.next_step != "CreateRecord":
        return
    epoch = max(driver.memory)
    driver.step("late")
    driver.crash()
    for other in m.world.alive():
        other.crash()
    can_discard = hasattr(m, "discard_newest")
    before = r.choice(("nothing", "discard", "discard") if can_discard else ("nothing", "commit"))
    if before == "commit":
        first = m.world.start(next(m.names), overlap=True)
        _until(first, "log commit")
        first.step()
        first.crash()
    elif before == "discard":
        _is_discarded(m, r)
    sleeper, other = _started(m, r), _started(m, r)
    _until(sleeper, "ReadRecord")
    for _ in range(400):
        if not other.alive or epoch in m.world.pruned:
            break
        other.step()
    while m.world.late:
        m.world.end_late_request(0, deliver=True)
    _steps(sleeper, r.choice((0, 20)))
    if _may_be_restored(m):
        for driver in (sleeper, other):
            driver.crash()
        since = sum(_has(state, epoch) for state in m.world.sinks["mysql"].history)
        m.restore_mysql(back=r.choice((since, since, since, r.randint(1, 16))))


def _has(state: Iterable[tuple[object, Marker | None]], epoch: int) -> bool:
    """Return whether a state of a sink has an epoch or a later one."""
    return any(marker is not None and marker.epoch >= epoch for _, marker in state)


def _offsets_are_overwritten(m: Machine, r: random.Random) -> None:
    if not hasattr(m, "break_offset_log"):
        return
    first = _picked(m, r)
    for driver in (first, m.world.start(next(m.names))):
        _until(driver, "log offsets")
    first.step()
    if r.random() < 0.5:
        _until(first, "log commit")
    _steps(first, r.choice((0, 1, 15)))
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


def _markers_are_wiped(m: Machine, r: random.Random) -> None:
    """Remove the markers where a killed driver may have applied an epoch that Spark runs again."""
    if not hasattr(m, "wipe_markers"):
        return
    _until(_picked(m, r), r.choice(("log commit", *CRITICAL)))
    if m.world.decided and not m.world.may_be_sealed():
        m.wipe_markers(sink=r.choice(("kafka", "mysql")))


def _seals(m: Machine, r: random.Random) -> None:
    """Start a sealer after a driver or next to it; often one sleeps, or two sealers race."""
    driver = _picked(m, r)
    if r.random() < 0.5:
        driver.last = max(driver.memory, default=0)  # it ends in order after this epoch
        _steps(driver, 80)
    else:
        _until(driver, r.choice(("log offsets", "CreateRecord", r.choice(CRITICAL))))
    if len(m.world.alive()) >= MAX_ALIVE or m.world.has_regressed():
        return
    sealer = start_sealer(m.world, next(m.names))
    if r.random() < 0.7:
        _until(sealer, r.choice(("CreateSeal", "CreateSeal", "LatestEpoch")))
        if r.random() < 0.5:
            sealer.step(r.choice((None, *FAULTS)))
        other: Driver
        if r.random() < 0.4:
            other = start_sealer(m.world, next(m.names))
        else:
            other = driver if driver.alive else _started(m, r)
        _steps(other, r.choice((1, 5, 20, 150, 150)))
    _steps(sealer, r.choice((1, 3, 40)))


_STEPS: tuple[tuple[float, Step], ...] = (
    (4, _runs),
    (5, _sleeps),
    (3, _meets_a_fault),
    (2, _crashes),
    (2, _late_request_ends),
    (0.5, lambda m, _r: m.server_ends_connections()),
    (1.2, _is_restored),
    (0.8, _is_discarded),
    (0.4, _markers_expire),
    (1.2, _late_decision),
    (1, _offsets_are_overwritten),
    (0.2, _markers_are_wiped),
    (1, _seals),
)


def _stops_for_good(m: Machine, r: random.Random) -> None:
    """Let a sink lose what no driver can replace while a driver is killed in an epoch.

    MySQL is restored from a backup that is older than its first epoch. Or, a hazard, Kafka has older
    markers and newer rows, as after the election of a leader that lacks commits. The next driver must
    stop.
    """
    world: World = m.world
    if not hasattr(m, "restore_mysql") or world.may_be_sealed():
        return
    if isinstance(world.drivers[-1].error, OffsetLogDiverged):
        return  # no driver gets as far as the sinks
    killed = _started(m, r)
    _until(killed, r.choice(("open", "compare", "commit", "log commit")))
    killed.crash()
    if hasattr(m, "wipe_markers") and r.random() < 0.5:
        world.lose_markers("kafka", back=r.randint(1, 3))
    else:
        world.restore_before_seeds("mysql")
    invariants.check_recovery(world, recover(world, epochs=9, name="X"))


def run_schedule(machine: type[Any], seed: int) -> World:
    """Run one schedule, and then one healthy driver to the end; return the world.

    Then a sink loses what stops a job for good. It comes last: no later step would find anything.

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
    _stops_for_good(simulation, rng)
    world: World = simulation.world
    return world
