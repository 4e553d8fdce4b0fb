"""What the directed tests of the rules share: small worlds and what to ask of them."""

from __future__ import annotations

from typing import Any

from .drivers import Driver
from .search import until
from .setting import Setting
from .world import World

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")


def world_of(**changes: Any) -> World:  # noqa: ANN401 - any setting
    settings: dict[str, Any] = {"size": lambda _name, _epoch: 2, "retention": 9}
    return World(Setting(**(settings | changes)))


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
