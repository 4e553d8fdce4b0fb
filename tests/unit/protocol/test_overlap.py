"""An epoch is applied while the next is staged: Spark counts it as done before it is in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.protocol import coordinator
from sluicegate.protocol.effects import AwaitSettled, NewestEpoch
from sluicegate.protocol.errors import DecidedForAnotherJob
from sluicegate.protocol.record import SinkBinding

from . import laws
from .drivers import Driver
from .search import everywhere, recover, to_the_end, until
from .setting import Setting
from .world import World

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")


def overlapping(**changes: Any) -> World:  # noqa: ANN401 - any setting
    """Return a world of one part a sink and two rows an epoch."""
    settings: dict[str, Any] = {"sinks": (KAFKA, MYSQL), "parts": 1, "size": lambda _n, _e: 2}
    return World(Setting(**(settings | changes), overlap=True))


def killed_before_its_apply(world: World) -> World:
    """A dies when Spark has committed epoch 1, and no sink has it."""
    driver = world.start("A")
    until(driver, "log commit", times=2)
    driver.step()
    assert 1 in world.commits
    assert not any(laws.holds(sink, world.decided[1]) for sink in world.sinks.values())
    driver.crash()
    return world


def ends_well(world: World) -> None:
    recover(world)
    laws.check_end(world)


def owes_nothing(_job: object, _record: object) -> Iterator[Any]:
    yield NewestEpoch()


def test_a_committed_epoch_that_no_sink_has_is_applied_at_the_next_start() -> None:
    world = killed_before_its_apply(overlapping())
    until(world.start("B"), "log offsets")
    assert all(laws.holds(sink, world.decided[1]) for sink in world.sinks.values())


@pytest.mark.parametrize("sink", [KAFKA, MYSQL])
def test_a_start_without_that_is_caught(
    monkeypatch: pytest.MonkeyPatch, sink: tuple[str, str]
) -> None:
    world = killed_before_its_apply(overlapping(sinks=(sink,)))
    monkeypatch.setattr(coordinator, "_owed_of", owes_nothing)
    with pytest.raises(laws.LawBroken):
        ends_well(world)


def test_deciding_before_the_epoch_before_is_in_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs would be owed, and a start makes good one."""
    monkeypatch.setattr(Driver, "_catch_up", lambda _self: iter(()))
    monkeypatch.setattr(coordinator, "_owed_of", owes_nothing)
    world = overlapping()
    driver = world.start("A")
    with pytest.raises(laws.LawBroken, match=r"commit: Spark commits epoch 1; .* does not have 0"):
        until(driver, "log commit", times=3)


def test_two_drivers_with_a_crash_in_every_state_agree() -> None:
    def make() -> World:
        world = overlapping(sinks=(MYSQL,))
        world.start("A", last=0)
        world.start("B", last=0)
        return world

    everywhere(make, ends_well)


def test_an_epoch_that_was_committed_after_this_start_had_looked_is_applied() -> None:
    """B looks while A's epoch is not committed; A commits it and dies; B's Spark goes on from it."""
    world = overlapping()
    first = world.start("A")
    until(first, "log commit")
    second = world.start("B")
    until(second, "look")
    first.step()
    first.crash()
    until(second, "CreateRecord")
    assert all(laws.holds(sink, world.decided[0]) for sink in world.sinks.values())


def test_sinks_may_be_changed_after_a_driver_that_ended_well() -> None:
    world = overlapping()
    to_the_end(world.start("A", last=2))
    world.job = replace(world.job, sinks={"other": SinkBinding("mysql", "table other", 1, "L.o")})
    assert owed_by_itself(world) is None


def test_sinks_may_not_be_changed_while_an_epoch_is_owed_to_them() -> None:
    world = killed_before_its_apply(overlapping())
    world.job = replace(world.job, sinks={"other": SinkBinding("mysql", "table other", 1, "L.o")})
    with pytest.raises(DecidedForAnotherJob):
        owed_by_itself(world)


def owed_by_itself(world: World) -> object:
    """Return what is owed, asked with the ports of a driver that does nothing else."""
    ports = Driver(world, "C", -1).ports
    steps = coordinator.owed(world.job)
    reply: Any = None
    try:
        while True:
            effect = steps.send(reply)
            assert not isinstance(effect, AwaitSettled)
            reply = effect.perform(ports)
    except StopIteration as end:
        return end.value
