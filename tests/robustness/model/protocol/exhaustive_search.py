"""Searches of simulated worlds: one healthy run to the end, and all interleavings.

A generator cannot be copied, so a state is reached again by repeating its choices. A state that was
seen before on any path is not entered twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.simulated_sinks import Fault
from tests.robustness.model.protocol.world import World
from tests.robustness.validate import invariants

STEPS_TO_THE_END = 3000


def recover(world: World, *, deliver: bool = True, epochs: int = 0, name: str = "Z") -> Driver:
    """Kill every driver, deliver or drop what is in the network, and run one more driver to the end.

    Args:
        world: the world.
        deliver: whether requests in the network are delivered.
        epochs: number of epochs to run after the decided ones.
        name: of the driver; attempts are named after it.

    Returns:
        The driver; the caller checks its error and calls `check_end`.
    """
    for driver in world.alive():
        driver.crash()
    while world.late:
        world.end_late_request(0, deliver=deliver)
    last = max([*world.decided, *world.offsets, -1]) + epochs
    driver = world.start(name, last=last)
    for _ in range(STEPS_TO_THE_END):
        if not driver.alive:
            return driver
        if driver.blocked:
            raise invariants.InvariantBroken("progress: the only running driver waits for a lock")
        driver.step()
    raise invariants.InvariantBroken("progress: the only running driver never ends")


def until(driver: Driver, step: str, *, times: int = 1) -> None:
    """Run a driver until its next step has this name, `times` times; the step is not performed."""
    for turn in range(times):
        if turn:
            driver.step()
        for _ in range(STEPS_TO_THE_END):
            if not driver.alive or driver.next_step == step:
                break
            driver.step()
        assert driver.next_step == step, f"{driver.name} is at {driver.next_step}: {driver.error!r}"


def to_the_end(driver: Driver) -> Driver:
    """Run a driver until it has ended, with or without an error."""
    for _ in range(STEPS_TO_THE_END):
        if not driver.alive:
            return driver
        driver.step()
    raise invariants.InvariantBroken(f"progress: {driver.name} never ends")


@dataclass(frozen=True)
class Choice:
    """A possible next event: a driver's step, with or without a fault.

    There is no crash: a driver that is never stepped again behaves like a dead one, and `at_each`
    kills them all.
    """

    driver: int
    fault: Fault = None

    def do(self, world: World) -> None:
        """Perform the step."""
        world.drivers[self.driver].step(self.fault)


FAULTS: dict[str, tuple[Fault, ...]] = {
    "CreateRecord": ("lost", "failed", "late"),
    "CreateSeal": ("lost", "failed", "late"),
    "commit": ("lost", "failed", "late"),
    "ReadRecord": ("glitch",),
}
"""The faults to try, by step."""


def choices(world: World, faults: int) -> Iterator[Choice]:
    """Return every possible next event; this path may still have `faults` faults."""
    for index, driver in enumerate(world.drivers):
        if not driver.alive or driver.blocked:
            continue
        yield Choice(index)
        for fault in FAULTS.get(driver.next_step, ()) if faults else ():
            yield Choice(index, fault)


@dataclass
class SearchResult:
    """The result of a search."""

    states: int = 0


def everywhere(
    make: Callable[[], World], at_each: Callable[[World], None], *, faults: int = 0
) -> SearchResult:
    """Visit every state that the world of `make` can reach, with up to `faults` faults per path.

    `at_each` is called in every new state and may modify the world.
    """
    result = SearchResult()
    seen: set[tuple[int, int]] = set()
    paths: list[tuple[Choice, ...]] = [()]
    while paths:
        path = paths.pop()
        world = make()
        for choice in path:
            choice.do(world)
        faults_left = faults - sum(choice.fault is not None for choice in path)
        if (state := (world.key(), faults_left)) in seen:
            continue
        seen.add(state)
        next_choices = list(choices(world, faults_left))
        paths.extend((*path, choice) for choice in next_choices)
        result.states += 1
        at_each(world)
    return result
