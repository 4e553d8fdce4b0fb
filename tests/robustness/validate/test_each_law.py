"""Each law of the simulation has a broken protocol that only this law catches.

A law that no broken protocol violates may check nothing, and one that never fires alone is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.settings.epoch import AT_LEAST_ONCE, AT_MOST_ONCE
from tests.robustness.model.protocol.directed_schedules import KAFKA, MYSQL, world_of
from tests.robustness.model.protocol.exhaustive_search import recover, to_the_end, until
from tests.robustness.model.protocol.simulated_sealer import start_sealer
from tests.robustness.model.protocol.world import World
from tests.robustness.validate import invariants
from tests.robustness.validate.broken_protocols import BY_LAW, Patch


def small(**changes: Any) -> World:  # noqa: ANN401 - any field
    """Return a world with MySQL alone, one part, and two rows per epoch."""
    return world_of(**({"sinks": (MYSQL,), "parts": 1} | changes))


def ends(world: World, epochs: int = 1) -> None:
    """Run the world to its end without faults, and check it."""
    driver = recover(world, epochs=epochs)
    invariants.check_recovery(world, driver)


def one_epoch(**changes: Any) -> World:  # noqa: ANN401 - any field
    """Return a small world in which a driver has run one epoch."""
    world = small(**changes)
    to_the_end(world.start("A", last=0))
    return world


def decided_by_another() -> None:
    world = world_of(sinks=(KAFKA,), parts=1, delivery=AT_LEAST_ONCE)
    late = world.start("A", last=0)
    until(late, "CreateRecord")
    to_the_end(world.start("B", last=0))
    to_the_end(late)
    ends(world)


def restored_to_before_a_discard() -> None:
    world = small()
    to_the_end(world.start("A", last=1))
    driver = world.start("B", last=2)
    until(driver, "open")
    driver.crash()
    world.discard(2, "mysql")
    world.restore_sink("mysql", 2)
    ends(world, epochs=0)


def two_parts() -> None:
    ends(one_epoch(parts=2, size=lambda _name, _epoch: 6), epochs=0)


def killed_before_the_decision() -> None:
    world = small()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    driver.crash()
    to_the_end(world.start("B", last=0))
    invariants.check_end(world)


def three_epochs() -> None:
    world = small()
    to_the_end(world.start("A", last=2))
    invariants.check_end(world)


def without_markers() -> None:
    """With at-least-once no marker shows that rows are missing."""
    ends(one_epoch(delivery=AT_LEAST_ONCE), epochs=0)


def two_attempts() -> None:
    world = small()
    to_the_end(world.start("A", last=1))
    ends(world)


def restored_to_before_discarded_rows() -> None:
    world = small()
    driver = world.start("A", last=2)
    until(driver, "open", times=3)
    driver.crash()
    world.discard(2, "mysql")
    world.restore_sink("mysql", 2)
    ends(world)


def offsets_overwritten() -> None:
    world = one_epoch(delivery=AT_MOST_ONCE)
    world.offsets[0] += 3
    ends(world)


def seeds_of_kafka() -> None:
    world = world_of(sinks=(KAFKA,), parts=2, size=lambda _name, _epoch: 6)
    to_the_end(world.start("A", last=0))
    ends(world)


def killed_after_the_write() -> None:
    world = small(delivery=AT_MOST_ONCE)
    driver = world.start("A", last=0)
    until(driver, "commit")
    driver.step()
    driver.crash()
    ends(world)


def one_undisturbed_epoch() -> None:
    invariants.check_end(one_epoch(delivery=AT_LEAST_ONCE))


def nothing_happens() -> None:
    ends(small())


def restored() -> None:
    world = small()
    to_the_end(world.start("A", last=2))
    world.restore_sink("mysql", 1)
    ends(world)


def a_sealer_sleeps_while_decisions_are_pruned() -> None:
    world = small(retention=2)
    to_the_end(world.start("A", last=0))
    sealer = start_sealer(world)
    until(sealer, "CreateSeal")
    to_the_end(world.start("B", last=5))
    to_the_end(sealer)
    ends(world)


def sealed_before_an_apply() -> None:
    world = small()
    until(world.start("A"), "open")
    to_the_end(start_sealer(world))


def sealed_before_a_decision() -> None:
    world = small()
    driver = world.start("A")
    until(driver, "CreateRecord", times=2)
    to_the_end(start_sealer(world))
    driver.step()


def a_replay_sleeps_while_its_epoch_is_discarded_and_sealed() -> None:
    world = small()
    first = world.start("A", last=0)
    until(first, "log commit")
    world.discard(0, "mysql")
    paused = world.start("B", last=0)
    until(paused, "open")
    to_the_end(first)
    assert to_the_end(start_sealer(world)).error is None
    until(paused, "commit")
    paused.step()


SCHEDULES: dict[str, Callable[[], None]] = {
    "agreement": decided_by_another,
    "atomicity": restored_to_before_a_discard,
    "chain": two_parts,
    "commit of an undecided epoch": killed_before_the_decision,
    "commit of an unapplied epoch": three_epochs,
    "conservation": without_markers,
    "death": two_attempts,
    "discard": restored_to_before_discarded_rows,
    "input": offsets_overwritten,
    "marker": seeds_of_kafka,
    "once": killed_after_the_write,
    "presumed abort": one_undisturbed_epoch,
    "progress": nothing_happens,
    "redo": restored,
    "redo log": two_attempts,
    "seal that stands": a_sealer_sleeps_while_decisions_are_pruned,
    "seal of an unapplied epoch": sealed_before_an_apply,
    "decision after the seal": sealed_before_a_decision,
    "change after the seal": a_replay_sleeps_while_its_epoch_is_discarded_and_sealed,
}


def test_every_law_is_broken_below() -> None:
    assert set(BY_LAW) == set(SCHEDULES) == set(invariants.LAWS)


@pytest.mark.parametrize("law", SCHEDULES)
def test_a_protocol_that_breaks_the_law_is_caught(law: str, monkeypatch: Patch) -> None:
    BY_LAW[law](monkeypatch)
    with pytest.raises(invariants.InvariantBroken, match=f"^{law}: "):
        SCHEDULES[law]()


@pytest.mark.parametrize("law", [law for law in SCHEDULES if law != "progress"])
def test_no_other_law_catches_it(law: str, monkeypatch: Patch) -> None:
    BY_LAW[law](monkeypatch)
    monkeypatch.delitem(invariants.LAWS, law)
    SCHEDULES[law]()
