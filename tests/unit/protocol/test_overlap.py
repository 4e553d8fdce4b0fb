"""Overlap: an epoch is applied while the next one is staged, after Spark has committed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import Fenced, RecordOfAnotherJob
from sluicegate.protocol import coordinator, recovery
from sluicegate.protocol.effects import LatestEpoch, LogSteps, run_effects
from sluicegate.protocol.job import Job
from sluicegate.protocol.record import DecidedEpoch, SinkBinding
from sluicegate.settings.epoch import AT_LEAST_ONCE
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.exhaustive_search import everywhere, recover, to_the_end, until
from tests.robustness.model.protocol.simulated_sinks import SimulatedSink
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import WorldConfig
from tests.robustness.validate import invariants

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")


def overlapping(**changes: Any) -> World:  # noqa: ANN401 - any field
    """Return a world with one part per sink and two rows per epoch."""
    fields: dict[str, Any] = {"sinks": (KAFKA, MYSQL), "parts": 1, "size": lambda _n, _e: 2}
    return World(WorldConfig(**(fields | changes), overlap=True))


def killed_before_its_apply(world: World) -> World:
    """A dies after Spark has committed epoch 1, before any sink has it."""
    driver = world.start("A")
    until(driver, "log commit", times=2)
    driver.step()
    assert 1 in world.commits
    assert not any(invariants.has_epoch(sink, world.decided[1]) for sink in world.sinks.values())
    driver.crash()
    return world


def completes(world: World) -> None:
    recover(world)
    invariants.check_end(world)


def nothing_pending(_job: object, _record: object) -> Iterator[Any]:
    yield LatestEpoch()


def test_a_committed_epoch_that_no_sink_has_is_applied_before_the_next_driver_decides() -> None:
    world = killed_before_its_apply(overlapping())
    until(world.start("B"), "CreateRecord")
    assert all(invariants.has_epoch(sink, world.decided[1]) for sink in world.sinks.values())


@pytest.mark.parametrize("sink", [KAFKA, MYSQL])
def test_a_start_that_skips_the_pending_apply_is_caught(
    monkeypatch: pytest.MonkeyPatch, sink: tuple[str, str]
) -> None:
    world = killed_before_its_apply(overlapping(sinks=(sink,)))
    monkeypatch.setattr(coordinator, "overlapped_apply", nothing_pending)
    monkeypatch.setattr(recovery, "overlapped_apply", nothing_pending)
    with pytest.raises(
        invariants.InvariantBroken,
        match=rf"(atomicity: epoch 1 is decided and|chain:|death: Z died of .*) .*{sink[0]}",
    ):
        completes(world)


def test_deciding_before_the_previous_epoch_is_applied_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two epochs would be unapplied, and a start applies only one; the marker shows it as well."""
    monkeypatch.setattr(SimulatedSink, "_name", lambda _self, _effect, _part, expected: expected)
    monkeypatch.setattr(Driver, "_run_background", lambda _self: iter(()))
    monkeypatch.setattr(coordinator, "overlapped_apply", nothing_pending)
    monkeypatch.setattr(recovery, "overlapped_apply", nothing_pending)
    world = overlapping()
    driver = world.start("A")
    with pytest.raises(
        invariants.InvariantBroken,
        match=r"commit of an unapplied epoch: Spark commits 1; .* not have 0",
    ):
        until(driver, "log commit", times=3)


def test_two_drivers_with_a_crash_in_every_state() -> None:
    def make() -> World:
        world = overlapping(sinks=(MYSQL,))
        world.start("A", last=0)
        world.start("B", last=0)
        return world

    everywhere(make, completes)


def test_an_epoch_committed_after_this_driver_started_is_applied() -> None:
    """B starts before A's epoch is committed; A commits it and dies; Spark continues after it in B."""
    world = overlapping()
    first = world.start("A")
    until(first, "log commit")
    second = world.start("B")
    until(second, "read logs")
    first.step()
    first.crash()
    until(second, "CreateRecord")
    assert all(invariants.has_epoch(sink, world.decided[0]) for sink in world.sinks.values())


def test_sinks_may_change_after_a_driver_that_stopped_normally() -> None:
    world = overlapping()
    to_the_end(world.start("A", last=2))
    world.job = replace(world.job, sinks={"other": SinkBinding("mysql", "table other", 1, "L.o")})
    assert find_pending_apply(world) is None


def test_sinks_may_not_change_while_an_epoch_is_unapplied() -> None:
    world = killed_before_its_apply(overlapping())
    world.job = replace(world.job, sinks={"other": SinkBinding("mysql", "table other", 1, "L.o")})
    with pytest.raises(RecordOfAnotherJob):
        find_pending_apply(world)


@pytest.mark.parametrize("find", [recovery.pending_apply, recovery.unapplied])
def test_rule_02_a_start_that_was_paused_applies_no_record_of_a_pruned_epoch(
    find: Callable[[Job], LogSteps[DecidedEpoch | None]],
) -> None:
    """A late request created the record again, of an attempt that was never decided."""
    world = overlapping(sinks=(KAFKA,), delivery=AT_LEAST_ONCE)
    late = world.start("L", overlap=True)
    until(late, "CreateRecord")
    late.step("late")
    late.crash()
    driver = world.start("A", overlap=True)
    until(driver, "log commit")
    driver.step()
    driver.crash()

    ports = Driver(world, "P", -1).ports
    steps = find(world.job)
    newest = next(steps).perform(ports)
    other = world.start("B", overlap=False)
    while 0 not in world.pruned:
        other.step()
    world.end_late_request(0, deliver=True)

    def paused() -> LogSteps[DecidedEpoch | None]:
        effect = steps.send(newest)
        while True:
            try:
                effect = steps.send((yield effect))
            except StopIteration as end:
                found: DecidedEpoch | None = end.value
                return found

    with pytest.raises(Fenced, match="epoch 2 is already decided"):
        run_effects(paused(), ports)


def find_pending_apply(world: World) -> object:
    """Run `recovery.pending_apply` on the ports of a driver that does nothing else."""
    return run_effects(recovery.pending_apply(world.job), Driver(world, "C", -1).ports)


def test_switching_overlap_on_over_a_decided_epoch_applies_it_before_spark_commits() -> None:
    """A decides without overlap and dies before its apply; B runs with overlap and dies too."""
    world = overlapping(sinks=(KAFKA,))
    first = world.start("A", overlap=False)
    until(first, "open")
    first.crash()
    second = world.start("B")
    until(second, "log commit")
    assert invariants.has_epoch(world.sinks["kafka"], world.decided[0])
    second.step()
    second.crash()
    completes(world)


def test_a_driver_without_overlap_applies_a_committed_epoch_before_it_decides() -> None:
    world = killed_before_its_apply(overlapping())
    until(world.start("B", overlap=False), "CreateRecord")
    assert all(invariants.has_epoch(sink, world.decided[1]) for sink in world.sinks.values())
