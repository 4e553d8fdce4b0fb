"""Rules 1 to 5 (docs/concepts/protocol.md) in the coordinator, one directed schedule per claim.

Each test has the number of its rule in its name and fails if the rule is removed from the coordinator.
Rules 8 to 16 are in test_rules_applying.py and test_rules_chain.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import (
    CheckpointOfAnotherJob,
    DecisionUnknown,
    Fenced,
    OffsetLogDiverged,
    RecordOfAnotherJob,
)
from sluicegate.protocol.coordinator import run_epoch
from sluicegate.protocol.effects import Apply, run_effects
from sluicegate.protocol.record import SinkBinding, encode
from tests.robustness.model.protocol.directed_schedules import (
    attempts,
    decided_and_not_applied,
    died_of,
    offsets,
    world_of,
)
from tests.robustness.model.protocol.exhaustive_search import recover, to_the_end, until
from tests.robustness.model.protocol.simulated_sinks import cached_decode
from tests.robustness.validate import invariants

# --- 1, 2: one decision ---------------------------------------------------------------------


def test_rule_01_a_lost_reply_is_resolved_by_a_retry() -> None:
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    driver.step("lost")
    to_the_end(driver)
    assert driver.error is None
    assert attempts(world, "kafka") == {"A1"}


def test_rule_01_a_record_that_is_not_visible_yet_is_no_answer() -> None:
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    driver.step()
    driver.step("glitch")
    to_the_end(driver)
    assert driver.error is None


def test_rule_01_without_a_reply_nothing_is_applied() -> None:
    """The record may exist: the next start finds out and applies it."""
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    while driver.alive:
        driver.step("lost")
    died_of(driver, DecisionUnknown)
    assert offsets(world, "kafka") == []
    assert recover(world).error is None
    assert attempts(world, "kafka") == {"A1"}


def test_rule_01_a_record_of_another_attempt_fences_ours() -> None:
    world = world_of()
    ours, theirs = world.start("A", last=0), world.start("B", last=0)
    until(ours, "CreateRecord")
    until(theirs, "open")
    to_the_end(ours)
    died_of(ours, Fenced)
    assert offsets(world, "kafka") == []
    to_the_end(theirs)
    assert attempts(world, "kafka") == {"B1"}


def test_rule_01_the_stored_record_is_applied() -> None:
    """If the stored record differed from the one in memory, the stored one would count."""
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "ReadRecord", times=2)
    stored = replace(cached_decode(world.records[0]), traceparent="stored")
    world.records[0] = encode(stored)
    until(driver, "open")
    effect = driver._pending
    assert isinstance(effect, Apply)
    assert effect.record.traceparent == "stored"


def test_rule_01_a_late_request_of_a_dead_driver_decides_only_once() -> None:
    world = world_of()
    dead = world.start("A")
    until(dead, "CreateRecord")
    dead.step("late")
    dead.crash()
    successor = world.start("B", last=0)
    until(successor, "CreateRecord")
    world.end_late_request(0, deliver=True)
    to_the_end(successor)
    died_of(successor, Fenced)
    assert recover(world).error is None
    assert attempts(world, "mysql") == {"A1"}


def test_rule_02_a_zombie_that_finds_its_record_is_fenced_before_the_apply() -> None:
    world = world_of()
    to_the_end(world.start("A", last=0))
    world.commits.clear()
    zombie = world.start("Z")
    until(zombie, "ReadRecord")
    zombie.step()
    to_the_end(world.start("B", last=2))
    to_the_end(zombie)
    died_of(zombie, Fenced)
    assert not any(point == "before-apply" for point, _, _ in zombie.points)


def test_rule_02_a_zombie_that_decides_a_pruned_epoch_is_fenced_before_the_apply() -> None:
    world = world_of(retention=2)
    zombie = world.start("Z")
    until(zombie, "CreateRecord")
    to_the_end(world.start("A", last=4))
    to_the_end(zombie)
    died_of(zombie, Fenced)
    assert "before-apply" not in [point for point, _, _ in zombie.points]
    assert cached_decode(world.records[0]).attempt == "Z1"
    assert attempts(world, "kafka") == {f"A{n}" for n in range(1, 6)}


@pytest.mark.parametrize(
    ("paused_before", "times"),
    [("ReadRecord", 1), ("ReadOffsets", 1), ("ReadOffsets", 2), ("Stage", 1), ("CreateRecord", 1)],
)
def test_rule_02_a_zombie_whose_files_were_pruned_is_fenced(paused_before: str, times: int) -> None:
    """It does not report a broken log, which would alert an operator for nothing."""
    world = world_of(retention=2)
    to_the_end(world.start("A", last=0))
    zombie = world.start("Z")
    until(zombie, "LatestEpoch")
    zombie.step()
    until(zombie, paused_before, times=times)
    to_the_end(world.start("B", last=6))
    to_the_end(zombie)
    died_of(zombie, Fenced)


# --- 3: the same offsets --------------------------------------------------------------------


def test_rule_03_missing_offsets_stop_the_epoch_before_it_is_staged() -> None:
    world = world_of()
    driver = world.start("A")
    until(driver, "log offsets")
    driver.step("vanish")
    to_the_end(driver)
    died_of(driver, OffsetLogDiverged)
    assert not world.ranges


def test_rule_03_a_replay_with_other_offsets_is_rejected() -> None:
    world = world_of()
    first, second = world.start("A"), world.start("B")
    until(second, "log offsets")
    until(first, "open")
    second.memory[0] = (0, 5)
    second.step("overwrite")
    first.crash()
    died_of(recover(world), OffsetLogDiverged)
    assert offsets(world, "kafka") == []


def test_rule_03_an_epoch_after_changed_offsets_is_rejected() -> None:
    """Epoch 0 is applied and committed; after the changed file, epoch 1 would skip input."""
    world = world_of()
    first, second = world.start("A"), world.start("B")
    until(second, "log offsets")
    until(first, "log commit")
    first.step()
    second.memory[0] = (0, 5)
    second.step("overwrite")
    first.crash()
    died_of(recover(world, epochs=1), OffsetLogDiverged)
    assert offsets(world, "kafka") == [0, 1]


# --- 4: the record binds the job ------------------------------------------------------------


def test_rule_04_a_replay_without_one_of_the_sinks_is_rejected() -> None:
    world = decided_and_not_applied()
    job = replace(world.job, sinks={"kafka": world.job.sinks["kafka"]})
    with pytest.raises(RecordOfAnotherJob, match="no such sink"):
        run_effects(run_epoch(job, 0), world.start("B").ports)
    assert offsets(world, "kafka") == []


@pytest.mark.parametrize(
    "change", [{"target": "topic b"}, {"marker_key": "M"}, {"parts": 3}, {"kind": "mysql"}]
)
def test_rule_04_a_replay_into_another_target_is_rejected(change: dict[str, Any]) -> None:
    world = decided_and_not_applied()
    sinks = world.job.sinks | {"kafka": replace(world.job.sinks["kafka"], **change)}  # type: ignore[operator]
    with pytest.raises(RecordOfAnotherJob):
        run_effects(run_epoch(replace(world.job, sinks=sinks), 0), world.start("B").ports)
    assert offsets(world, "mysql") == []


def test_rule_04_a_replay_ignores_sinks_that_were_added_since() -> None:
    world = decided_and_not_applied()
    more = world.job.sinks | {"new": SinkBinding("kafka", "topic new", 1, "L.new")}  # type: ignore[operator]
    decided = run_effects(run_epoch(replace(world.job, sinks=more), 0), world.start("B").ports)
    assert set(decided.record.sinks) == {"kafka", "mysql"}
    invariants.check_end(world)


@pytest.mark.parametrize("change", [{"name": "other"}, {"lineage": "other"}])
@pytest.mark.parametrize("epoch", [0, 1])
def test_rule_04_a_checkpoint_of_another_job_or_lineage_is_rejected(
    change: dict[str, str], epoch: int
) -> None:
    """Both if the epoch's own record is found and if only the previous one is."""
    world = world_of()
    to_the_end(world.start("A", last=0))
    world.offsets[1] = 4
    with pytest.raises(CheckpointOfAnotherJob):
        run_effects(run_epoch(replace(world.job, **change), epoch), world.start("B").ports)  # type: ignore[arg-type]


def test_rule_04_an_epoch_before_the_lineage_is_rejected() -> None:
    world = world_of()
    world.offsets[3] = 5
    with pytest.raises(OffsetLogDiverged, match="older than the lineage"):
        run_effects(run_epoch(replace(world.job, first_epoch=4), 3), world.start("B").ports)


# --- 5: empty epochs ------------------------------------------------------------------------


def test_rule_05_an_empty_epoch_is_decided_and_touches_no_sink() -> None:
    world = world_of(size=lambda _name, epoch: 0 if epoch == 1 else 2)
    driver = world.start("A", last=2)
    to_the_end(driver)
    assert driver.error is None
    assert set(world.decided) == {0, 1, 2}
    assert {(e, s) for p, e, s in driver.points if p == "before-apply"} == {
        (e, s) for e in (0, 2) for s in ("kafka", "mysql")
    }


def test_rule_05_a_part_without_rows_keeps_its_marker() -> None:
    world = world_of(size=lambda _n, _e: 1, route=lambda offset, _a, parts: offset % parts)
    to_the_end(world.start("A", last=2))
    markers = [part.marker.epoch for part in world.sinks["mysql"].parts if part.marker]
    assert markers == [2, 1]
    assert recover(world, epochs=2).error is None
    invariants.check_end(world)
