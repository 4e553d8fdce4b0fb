"""Rules 8 to 16 (docs/concepts/protocol.md) in the coordinator, one directed schedule per claim.

Rule 11, the chain of markers, is in test_rules_chain.py.

Each test has the number of its rule in its name and fails if the rule is removed from the coordinator.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.errors import (
    SinkRejected,
    SinkUnavailable,
    StateIncomplete,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol.coordinator import run_epoch
from sluicegate.protocol.effects import run_effects
from tests.robustness.model.protocol.directed_schedules import (
    KAFKA,
    MYSQL,
    decided_and_not_applied,
    died_of,
    offsets,
    world_of,
)
from tests.robustness.model.protocol.exhaustive_search import recover, to_the_end, until
from tests.robustness.validate import invariants

# --- 8, 9: staging --------------------------------------------------------------------------


def test_rule_08_every_attempt_stages_under_its_own_name() -> None:
    world = world_of()
    first = world.start("A")
    until(first, "CreateRecord")
    first.crash()
    second = world.start("B")
    until(second, "CreateRecord")
    assert {name.split("/")[1] for name in world.staged} == {"A1", "B1"}


def test_rule_08_staged_objects_stay_until_every_sink_has_the_epoch() -> None:
    world = world_of()
    loser, driver = world.start("A"), world.start("B", last=0)
    until(loser, "CreateRecord")
    until(driver, "PruneLog")
    assert offsets(world, "kafka") == offsets(world, "mysql") == [0, 1]
    assert {name.split("/")[1] for name in world.staged} == {"A1", "B1"}
    driver.step()
    assert {name.split("/")[1] for name in world.staged} == {"B1"}


def test_rule_09_an_epoch_with_incomplete_state_is_not_decided() -> None:
    world = world_of()
    world.offsets[0] = 2
    driver = world.start("A")
    driver.memory[0] = (0, 2)

    def incomplete(epoch: int) -> None:
        raise StateIncomplete(f"epoch {epoch}")

    driver.check_state = incomplete  # type: ignore[method-assign]
    with pytest.raises(StateIncomplete):
        run_effects(run_epoch(world.job, 0), driver.ports)
    assert not world.decided


# --- 14: failing after the decision ---------------------------------------------------------


@pytest.mark.parametrize("error", [SinkUnavailable("down"), SinkRejected("too long")])
def test_rule_14_an_epoch_that_a_sink_does_not_accept_stays_decided(error: Exception) -> None:
    world = world_of()
    world.offsets[0], driver = 2, world.start("A")
    driver.memory[0] = (0, 2)
    calls: list[str] = []

    def refuse(_record: object, sink: str, _parts: object, *, discard: bool) -> None:
        calls.append(f"{sink} {discard}")
        raise error

    driver.apply = refuse  # type: ignore[assignment,method-assign]
    with pytest.raises(Stuck, match="epoch 0 is decided and sink kafka") as caught:
        run_effects(run_epoch(world.job, 0), driver.ports)
    assert caught.value.__cause__ is error
    again = world.job.apply_tries if isinstance(error, SinkUnavailable) else 1
    assert calls == ["kafka False"] * again
    assert 0 in world.decided
    assert recover(world).error is None
    invariants.check_end(world)


def test_rule_14_a_discarded_epoch_moves_the_marker_and_writes_nothing() -> None:
    """It was discarded before the sink was reached: the next start skips its rows."""
    world = decided_and_not_applied()
    world.discards.add((0, "mysql"))
    assert recover(world, epochs=1).error is None
    assert offsets(world, "kafka") == [0, 1, 2, 3]
    assert offsets(world, "mysql") == [2, 3]
    assert [p.marker for p in world.sinks["mysql"].parts] == [world.decided[1].marker] * 2


def test_rule_14_a_discarded_epoch_is_not_written_when_the_sink_is_brought_forward() -> None:
    world = world_of(parts=1)
    to_the_end(world.start("A", last=0))
    stuck = world.start("B")
    until(stuck, "commit")
    stuck.step()
    until(stuck, "open")
    stuck.crash()
    world.discard(1, "mysql")
    to_the_end(world.start("C", last=2))
    assert offsets(world, "mysql") == [0, 1, 4, 5]
    world.restore_sink("mysql", 1)
    assert recover(world, epochs=1).error is None
    assert offsets(world, "mysql") == [0, 1, 4, 5, 6, 7]


def test_rule_14_rows_discarded_for_one_sink_reach_the_other() -> None:
    world = decided_and_not_applied()
    world.discard(0, "mysql")
    assert recover(world).error is None
    assert (offsets(world, "kafka"), offsets(world, "mysql")) == ([0, 1], [])


# --- 15, 16: eventually all; replays --------------------------------------------------------


def test_rule_15_a_crash_between_two_sinks_is_completed_by_the_next_start() -> None:
    world = world_of()
    driver = world.start("A")
    until(driver, "open")
    while not any(point == "after-apply" for point, _, _ in driver.points):
        driver.step()
    assert (offsets(world, "kafka"), offsets(world, "mysql")) == ([0, 1], [])
    assert recover(world).error is None
    assert (offsets(world, "kafka"), offsets(world, "mysql")) == ([0, 1], [0, 1])


def test_rule_15_sinks_are_applied_in_the_order_of_the_job_that_decided() -> None:
    """Also in a replay by a job that has them in another order."""
    world = world_of(sinks=(MYSQL, KAFKA))
    first = world.start("A")
    until(first, "open")
    first.crash()
    world.job = replace(world.job, sinks=dict(reversed(list(world.job.sinks.items()))))
    second = to_the_end(world.start("B", last=0))
    for driver, order in ((first, ["mysql"]), (second, ["mysql", "kafka"])):
        assert [sink for point, _, sink in driver.points if point == "before-apply"] == order


def test_rule_15_spark_commits_only_after_the_last_sink() -> None:
    world = world_of()
    driver = world.start("A", last=0)
    to_the_end(driver)
    points = [point for point, _, _ in driver.points]
    assert points[-2:] == ["after-apply", "before-done"]


def test_rule_16_the_watermark_of_a_skipped_plan_is_restored_before_the_apply() -> None:
    world = decided_and_not_applied()
    driver = world.start("B", last=0)
    until(driver, "open")
    assert driver.restored_watermarks == [2]
    assert "B1" not in world.ranges


def test_rule_16_the_watermark_of_a_plan_that_ran_is_not_restored() -> None:
    driver = world_of().start("A", last=1)
    assert to_the_end(driver).restored_watermarks == []


# --- a store that is down ------------------------------------------------------------------


@pytest.mark.parametrize("step", ["ReadRecord", "LatestEpoch", "ReadOffsets"])
def test_a_store_that_is_down_stops_the_driver_and_a_restart_helps(step: str) -> None:
    world = world_of()
    driver = world.start("A")
    until(driver, step)
    driver.step("failed")
    died_of(driver, StoreUnavailable)
    assert recover(world, epochs=1).error is None
    invariants.check_end(world)
