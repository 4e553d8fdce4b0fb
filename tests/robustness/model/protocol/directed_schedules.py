"""Small worlds and helpers for the tests that direct a schedule step by step."""

from __future__ import annotations

from typing import Any

from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.exhaustive_search import to_the_end, until
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import WorldConfig

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")


def world_of(**changes: Any) -> World:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {"size": lambda _name, _epoch: 2, "retention": 9}
    return World(WorldConfig(**(fields | changes)))


def attempts(world: World, sink: str) -> set[str]:
    return {row.attempt for part in world.sinks[sink].parts for row in part.rows}


def offsets(world: World, sink: str) -> list[int]:
    return sorted(row.offset for part in world.sinks[sink].parts for row in part.rows)


def died_of(driver: Driver, kind: type[BaseException]) -> None:
    assert isinstance(driver.error, kind), driver.error


def decided_and_not_applied() -> World:
    world = world_of()
    driver = world.start("A")
    until(driver, "open")
    driver.crash()
    return world


def paused_before_its_seed(world: World) -> Driver:
    """Return a driver about to seed; meanwhile another applied the epoch, whose marker expired again."""
    to_the_end(world.start("A", last=1))
    world.expire_markers("kafka")
    paused = world.start("P")
    until(paused, "seed")
    other = world.start("B")
    until(other, "log commit")
    other.crash()
    world.expire_markers("kafka")
    return paused
