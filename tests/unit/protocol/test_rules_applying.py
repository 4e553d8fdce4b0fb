"""DESIGN.md's rules 8 to 16, as far as the coordinator decides them: one schedule a claim.

A test's name carries the number of its rule. Each fails when its rule is taken out of the
coordinator. Not here: what the sinks, the storage and Spark must do for a rule.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.protocol.coordinator import run_epoch
from sluicegate.protocol.effects import drive
from sluicegate.protocol.errors import (
    DecidedForAnotherJob,
    EpochLogBroken,
    MarkerMismatch,
    SinkRejected,
    SinkUnavailable,
    SinkWentBack,
    StateIncomplete,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol.markers import GENESIS
from sluicegate.protocol.record import encode

from . import laws
from .directed import KAFKA, MYSQL, attempts, decided_and_not_applied, died_of, offsets, world_of
from .search import recover, to_the_end, until
from .setting import salted
from .sim_sinks import cached_decode
from .world import World

# --- 8, 9: staging --------------------------------------------------------------------------


def test_rule_08_every_try_stages_under_a_name_of_its_own() -> None:
    world = world_of()
    first = world.start("A")
    until(first, "CreateRecord")
    first.crash()
    second = world.start("B")
    until(second, "CreateRecord")
    assert {name.split("/")[1] for name in world.staged} == {"A1", "B1"}


def test_rule_08_nothing_staged_is_removed_before_every_sink_has_the_epoch() -> None:
    world = world_of()
    loser, driver = world.start("A"), world.start("B", last=0)
    until(loser, "CreateRecord")
    until(driver, "Tidy")
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
        drive(run_epoch(world.job, 0), driver.ports)
    assert not world.decided


# --- 11: the chain --------------------------------------------------------------------------


def gone_back(*, epochs: int, back: int, retention: int = 9, sink: str = "mysql") -> World:
    """Return a world where a sink was put back by `back` commits; two drivers never met."""
    world = world_of(retention=retention, parts=1)
    to_the_end(world.start("A", last=epochs - 1))
    world.restore_sink(sink, len(world.sinks[sink].history) - 1 - back)
    return world


@pytest.mark.parametrize("back", [1, 2, 3])
def test_rule_11_mysql_is_brought_forward_from_the_kept_records(back: int) -> None:
    world = gone_back(epochs=4, back=back)
    assert recover(world, epochs=1).error is None
    laws.check_end(world)


def test_rule_11_kafka_is_not_brought_forward() -> None:
    world = gone_back(epochs=4, back=2, sink="kafka")
    died_of(recover(world, epochs=1), SinkWentBack)
    assert offsets(world, "kafka") == [0, 1, 2, 3]


def test_rule_11_nothing_is_redone_where_a_record_between_is_pruned() -> None:
    world = gone_back(epochs=6, back=4, retention=2)
    died_of(recover(world, epochs=1), SinkWentBack)
    assert offsets(world, "mysql") == [0, 1, 2, 3]


def test_rule_11_a_zombies_record_in_a_pruned_ones_place_is_not_redone() -> None:
    """It fits the chain below it, and was never decided."""
    world = world_of(retention=2, parts=1)
    to_the_end(world.start("A", last=0))
    zombie = world.start("Z")
    until(zombie, "CreateRecord")
    to_the_end(world.start("B", last=4))
    to_the_end(zombie)
    assert cached_decode(world.records[1]).attempt == "Z1"
    # keep what leads down to it, as a longer retention would
    for epoch in (2, 3, 4):
        world.records[epoch] = encode(world.decided[epoch])
        for chunk in world.decided[epoch].chunks:
            rows = [[r.offset, r.attempt] for r in world.watch.rows[epoch, "mysql", 0]]
            if chunk.name:
                world.staged[chunk.name] = str(rows).replace("'", '"').encode()
    world.restore_sink("mysql", 1)
    died_of(recover(world, epochs=1), SinkWentBack)
    assert attempts(world, "mysql") == {"A1"}


def test_rule_11_a_redo_into_another_target_is_refused() -> None:
    world = gone_back(epochs=3, back=2)
    moved = replace(world.job.sinks["mysql"], target="table b")
    job = replace(world.job, sinks=world.job.sinks | {"mysql": moved})  # type: ignore[operator]
    world.offsets[3], driver = 8, world.start("B")
    driver.memory[3] = (6, 8)
    with pytest.raises(DecidedForAnotherJob):
        drive(run_epoch(job, 3), driver.ports)
    assert offsets(world, "mysql") == [0, 1]


def test_rule_11_a_sink_that_fails_while_it_is_brought_forward_is_tried_again() -> None:
    world = gone_back(epochs=4, back=3)
    driver = world.start("B", last=4)
    until(driver, "commit", times=2)
    driver.step("lost")
    to_the_end(driver)
    assert driver.error is None
    laws.check_end(world)


@pytest.mark.parametrize("sink", ["kafka", "mysql"])
def test_rule_11_lost_markers_stop_the_driver(sink: str) -> None:
    world = world_of(parts=1)
    to_the_end(world.start("A", last=1))
    world.events.add("wiped")
    world.sinks[sink].wipe_markers()
    died_of(recover(world, epochs=1), MarkerMismatch)
    assert offsets(world, sink) == [0, 1, 2, 3]


@pytest.mark.xfail(reason="an absent marker is right before a part's first epoch", strict=True)
def test_rule_11_markers_lost_in_a_parts_first_epoch_stop_the_driver() -> None:
    """Open: epoch 0 is in, its commit is not known to Spark, and Kafka's markers are wiped."""
    world = world_of(sinks=(KAFKA,), parts=1)
    driver = world.start("A")
    until(driver, "log commit")
    driver.crash()
    world.events.add("wiped")
    world.sinks["kafka"].wipe_markers()
    died_of(recover(world), MarkerMismatch)


def test_rule_11_the_record_carries_the_chain_across_a_restart() -> None:
    world = world_of(route=salted)
    to_the_end(world.start("A", last=2))
    assert recover(world, epochs=2).error is None
    record = world.decided[3]
    for sink in world.sinks:
        for part in range(2):
            due = [
                world.decided[e].marker
                for e in range(3)
                if part in world.decided[e].parts_with_rows(sink)
            ]
            assert record.prev_of(sink, part) == (due[-1] if due else GENESIS)


def test_rule_11_no_epoch_is_decided_without_the_record_before() -> None:
    world = world_of()
    to_the_end(world.start("A", last=1))
    world.records.clear()
    world.offsets[2] = 6
    with pytest.raises(EpochLogBroken, match="epoch 1 has no record"):
        drive(run_epoch(world.job, 2), world.start("B").ports)
    assert 2 not in world.decided


# --- 14: failing after the decision ---------------------------------------------------------


@pytest.mark.parametrize("error", [SinkUnavailable("down"), SinkRejected("too long")])
def test_rule_14_a_sink_that_does_not_take_it_leaves_the_epoch_decided(error: Exception) -> None:
    world = world_of()
    world.offsets[0], driver = 2, world.start("A")
    driver.memory[0] = (0, 2)
    calls: list[str] = []

    def refuse(_record: object, sink: str, _parts: object, *, discard: bool) -> None:
        calls.append(f"{sink} {discard}")
        raise error

    driver.apply = refuse  # type: ignore[assignment,method-assign]
    with pytest.raises(Stuck, match="epoch 0 is decided and sink kafka") as caught:
        drive(run_epoch(world.job, 0), driver.ports)
    assert caught.value.__cause__ is error
    again = world.job.apply_tries if isinstance(error, SinkUnavailable) else 1
    assert calls == ["kafka False"] * again
    assert 0 in world.decided
    assert recover(world).error is None
    laws.check_end(world)


def test_rule_14_a_discarded_epoch_moves_the_marker_and_writes_nothing() -> None:
    """Told before the sink was reached: create-once, then the next start leaves the rows out."""
    world = decided_and_not_applied()
    world.discards.add((0, "mysql"))
    assert recover(world, epochs=1).error is None
    assert offsets(world, "kafka") == [0, 1, 2, 3]
    assert offsets(world, "mysql") == [2, 3]
    assert [p.marker for p in world.sinks["mysql"].parts] == [world.decided[1].marker] * 2


def test_rule_14_a_discarded_epoch_stays_out_when_the_sink_is_brought_forward() -> None:
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


def test_rule_14_rows_given_up_for_one_sink_reach_the_other() -> None:
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
    """Also by a replay whose job has them in another order."""
    world = world_of(sinks=(MYSQL, KAFKA))
    first = world.start("A")
    until(first, "open")
    first.crash()
    world.job = replace(world.job, sinks=dict(reversed(list(world.job.sinks.items()))))
    second = to_the_end(world.start("B", last=0))
    for driver, order in ((first, ["mysql"]), (second, ["mysql", "kafka"])):
        assert [sink for point, _, sink in driver.points if point == "before-apply"] == order


def test_rule_15_spark_is_told_only_after_the_last_sink() -> None:
    world = world_of()
    driver = world.start("A", last=0)
    to_the_end(driver)
    points = [point for point, _, _ in driver.points]
    assert points[-2:] == ["after-apply", "before-done"]


def test_rule_16_a_skipped_plan_is_given_its_event_times_before_anything_is_applied() -> None:
    world = decided_and_not_applied()
    driver = world.start("B", last=0)
    until(driver, "open")
    assert driver.fed == [2]
    assert "B1" not in world.ranges


def test_rule_16_a_plan_that_ran_is_not_fed() -> None:
    driver = world_of().start("A", last=1)
    assert to_the_end(driver).fed == []


# --- what a store that is down means --------------------------------------------------------


@pytest.mark.parametrize("asked", ["ReadRecord", "NewestEpoch", "ReadOffsets"])
def test_a_store_that_is_down_stops_the_driver_and_a_restart_helps(asked: str) -> None:
    world = world_of()
    driver = world.start("A")
    until(driver, asked)
    driver.step("failed")
    died_of(driver, StoreUnavailable)
    assert recover(world, epochs=1).error is None
    laws.check_end(world)
