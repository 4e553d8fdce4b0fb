"""Searches through simulated worlds: one healthy run to the end, and all interleavings.

A generator cannot be copied, so a state is reached again by repeating its choices; a state that
was seen before, on whatever way, is not entered twice. Not here: the laws, the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import laws
from .drivers import Driver
from .sim_sinks import Fault
from .world import World

STEPS_TO_THE_END = 3000


def recover(world: World, *, land: bool = True, epochs: int = 0) -> Driver:
    """Kill every driver, let what is in the network land or get lost, and run one more to the end.

    It goes `epochs` further than was decided. The driver is returned; `check_end` is for the caller.
    """
    for driver in world.alive():
        driver.crash()
    while world.late:
        world.settle_late(0, land=land)
    last = max([*world.decided, *world.offsets, -1]) + epochs
    driver = world.start("Z", last=last)
    for _ in range(STEPS_TO_THE_END):
        if not driver.alive:
            return driver
        if driver.blocked:
            raise laws.LawBroken("progress: the only living driver waits for a lock")
        driver.step()
    raise laws.LawBroken("progress: the only living driver goes round in circles")


def until(driver: Driver, step: str, *, times: int = 1) -> None:
    """Run a driver up to, not through, its next step of this name (or the one after)."""
    for turn in range(times):
        if turn:
            driver.step()
        for _ in range(STEPS_TO_THE_END):
            if not driver.alive or driver.next_step == step:
                break
            driver.step()
        assert driver.next_step == step, (
            f"{driver.name} stands at {driver.next_step}: {driver.error!r}"
        )


def to_the_end(driver: Driver) -> Driver:
    """Run a driver until it has ended, well or not."""
    for _ in range(STEPS_TO_THE_END):
        if not driver.alive:
            return driver
        driver.step()
    raise laws.LawBroken(f"progress: {driver.name} goes round in circles")


@dataclass(frozen=True)
class Choice:
    """One thing that can happen next: a driver's step, with a fault or without.

    No crash: a driver that is never stepped again is as good as dead, and `at_each` kills them all.
    """

    driver: int
    fault: Fault = None

    def do(self, world: World) -> None:
        """Make it happen."""
        world.drivers[self.driver].step(self.fault)


FAULTS: dict[str, tuple[Fault, ...]] = {
    "CreateRecord": ("lost", "failed", "late"),
    "CreateSeal": ("lost", "failed", "late"),
    "commit": ("lost", "failed", "late"),
    "ReadRecord": ("glitch",),
}
"""The faults that are worth trying, by the step that they hit."""


def choices(world: World, faults: int) -> Iterator[Choice]:
    """Return everything that can happen next; `faults` of them are left for this way."""
    for index, driver in enumerate(world.drivers):
        if not driver.alive or driver.blocked:
            continue
        yield Choice(index)
        for fault in FAULTS.get(driver.next_step, ()) if faults else ():
            yield Choice(index, fault)


@dataclass
class Found:
    """What a search saw."""

    states: int = 0
    ends: int = 0
    deepest: int = 0


def everywhere(
    make: Callable[[], World], at_each: Callable[[World], None], *, faults: int = 0
) -> Found:
    """Visit every state that `make`'s world can reach, with up to `faults` faults on the way.

    `at_each` is called in every new state and may use the world up.
    """
    found = Found()
    seen: set[tuple[int, int]] = set()
    ways: list[tuple[Choice, ...]] = [()]
    while ways:
        way = ways.pop()
        world = make()
        for choice in way:
            choice.do(world)
        left = faults - sum(choice.fault is not None for choice in way)
        if (state := (world.key(), left)) in seen:
            continue
        seen.add(state)
        nexts = list(choices(world, left))
        ways.extend((*way, choice) for choice in nexts)
        found.states += 1
        found.ends += not nexts
        found.deepest = max(found.deepest, len(way))
        at_each(world)
    return found
