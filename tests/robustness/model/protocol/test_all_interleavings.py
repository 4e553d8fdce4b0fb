"""A small scope, searched completely: every interleaving of two drivers, with a crash in every state.

In every state that two drivers can reach, both are killed, requests in the network are delivered (and,
in another run, dropped), and a third driver must complete everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.robustness.model.protocol.directed_schedules import decided_and_not_applied
from tests.robustness.model.protocol.exhaustive_search import everywhere, recover, until
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import WorldConfig
from tests.robustness.validate import invariants

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")
SEARCH_ALL = int(os.environ.get("SLUICEGATE_SIM_EXAMPLES", "0")) >= 1000
slow_search = pytest.mark.skipif(
    not SEARCH_ALL, reason="minutes; SLUICEGATE_SIM_EXAMPLES=1000 includes it"
)


def two_drivers(*sinks: tuple[str, str], last: int = 0) -> World:
    world = World(WorldConfig(sinks=sinks, parts=1, size=lambda _name, _epoch: 2))
    world.start("A", last=last)
    world.start("B", last=last)
    return world


def check_recovery(world: World) -> None:
    driver = recover(world, deliver=True)
    assert driver.error is None, driver.error
    invariants.check_end(world)


def check_recovery_without_late_requests(world: World) -> None:
    driver = recover(world, deliver=False)
    assert driver.error is None, driver.error
    invariants.check_end(world)


def test_two_drivers_with_two_sinks_recover_from_every_state() -> None:
    result = everywhere(lambda: two_drivers(KAFKA, MYSQL), check_recovery)
    assert result.states > 3000


def test_two_drivers_recover_from_one_failed_late_or_unanswered_request() -> None:
    result = everywhere(lambda: two_drivers(MYSQL), check_recovery, faults=1)
    assert result.states > 6000


def test_two_drivers_with_two_epochs_recover_from_every_state() -> None:
    """Covers the chain, pruning, and a driver that is one epoch late."""
    result = everywhere(lambda: two_drivers(MYSQL, last=1), check_recovery)
    assert result.states > 4000


@slow_search
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at_each", [check_recovery, check_recovery_without_late_requests])
@pytest.mark.parametrize(
    ("sinks", "last", "faults"), [((KAFKA, MYSQL), 0, 1), ((KAFKA,), 0, 1), ((KAFKA,), 1, 0)]
)
def test_larger_scopes_recover_from_every_state(
    sinks: tuple[tuple[str, str], ...], last: int, faults: int, at_each: Callable[[World], None]
) -> None:
    everywhere(lambda: two_drivers(*sinks, last=last), at_each, faults=faults)


def test_who_owns_an_open_transaction_is_part_of_the_state() -> None:
    """Two drivers that apply one record have the same marker; which one is fenced decides what follows."""
    keys = []
    for order in ("AB", "BA"):
        world = decided_and_not_applied()
        drivers = [world.start(name) for name in "AB"]
        for driver in drivers:
            until(driver, "open")
        for name in order:
            driver = drivers["AB".index(name)]
            driver.step()
        keys.append(world.key())
    assert keys[0] != keys[1]
