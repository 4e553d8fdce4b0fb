"""DESIGN.md's rules 1 to 5, on deciding, as far as the coordinator decides them: one directed schedule a claim.

A test's name carries the number of its rule. Each fails when its rule is taken out of the
coordinator. Not here: what the sinks, the storage and Spark must do for a rule; rules 8 to 16
(test_rules_applying.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluicegate.protocol.coordinator import run_epoch
from sluicegate.protocol.effects import Apply, drive
from sluicegate.protocol.errors import (
    CheckpointOfAnotherJob,
    DecidedForAnotherJob,
    DecisionUnknown,
    Fenced,
    OffsetLogDiverged,
)
from sluicegate.protocol.record import SinkBinding, encode

from . import laws
from .directed import attempts, decided_and_not_applied, died_of, offsets, world_of
from .search import recover, to_the_end, until
from .sim_sinks import cached_decode

# --- 1, 2: one decision ---------------------------------------------------------------------


def test_rule_01_a_lost_reply_is_settled_by_asking_again() -> None:
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    driver.step("lost")
    to_the_end(driver)
    assert driver.error is None
    assert attempts(world, "kafka") == {"A1"}


def test_rule_01_a_record_that_is_not_seen_at_once_is_no_answer() -> None:
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    driver.step()
    driver.step("glitch")
    to_the_end(driver)
    assert driver.error is None


def test_rule_01_without_an_answer_nothing_is_applied() -> None:
    """The object may be there: only the next start can tell, and applies it then."""
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    while driver.alive:
        driver.step("lost")
    died_of(driver, DecisionUnknown)
    assert offsets(world, "kafka") == []
    assert recover(world).error is None
    assert attempts(world, "kafka") == {"A1"}


def test_rule_01_another_attempts_record_fences_and_nothing_of_ours_is_applied() -> None:
    world = world_of()
    ours, theirs = world.start("A", last=0), world.start("B", last=0)
    until(ours, "CreateRecord")
    until(theirs, "open")
    to_the_end(ours)
    died_of(ours, Fenced)
    assert offsets(world, "kafka") == []
    to_the_end(theirs)
    assert attempts(world, "kafka") == {"B1"}


def test_rule_01_what_is_applied_is_what_is_stored() -> None:
    """Were the stored object another than the one in memory, the stored one would count."""
    world = world_of()
    driver = world.start("A", last=0)
    until(driver, "ReadRecord", times=2)
    stored = replace(cached_decode(world.records[0]), traceparent="stored")
    world.records[0] = encode(stored)
    until(driver, "open")
    effect = driver._pending
    assert isinstance(effect, Apply)
    assert effect.record.traceparent == "stored"


def test_rule_01_a_predecessors_late_request_decides_or_does_not_but_never_both() -> None:
    world = world_of()
    dead = world.start("A")
    until(dead, "CreateRecord")
    dead.step("late")
    dead.crash()
    successor = world.start("B", last=0)
    until(successor, "CreateRecord")
    world.settle_late(0, land=True)
    to_the_end(successor)
    died_of(successor, Fenced)
    assert recover(world).error is None
    assert attempts(world, "mysql") == {"A1"}


def test_rule_02_a_zombie_that_finds_its_epochs_record_is_fenced_before_it_applies() -> None:
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


def test_rule_02_a_zombie_that_decides_a_pruned_epoch_is_fenced_before_it_applies() -> None:
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
    ("asleep_before", "times"),
    [("ReadRecord", 1), ("ReadOffsets", 1), ("ReadOffsets", 2), ("Stage", 1), ("CreateRecord", 1)],
)
def test_rule_02_a_zombie_whose_files_were_pruned_says_fenced(
    asleep_before: str, times: int
) -> None:
    """Not that the log is broken: that would call a human for nothing."""
    world = world_of(retention=2)
    to_the_end(world.start("A", last=0))
    zombie = world.start("Z")
    until(zombie, "NewestEpoch")
    zombie.step()
    until(zombie, asleep_before, times=times)
    to_the_end(world.start("B", last=6))
    to_the_end(zombie)
    died_of(zombie, Fenced)


# --- 3: the same offsets --------------------------------------------------------------------


def test_rule_03_offsets_that_are_not_there_stop_the_epoch_before_it_is_staged() -> None:
    world = world_of()
    driver = world.start("A")
    until(driver, "log offsets")
    driver.step("vanish")
    to_the_end(driver)
    died_of(driver, OffsetLogDiverged)
    assert not world.ranges


def test_rule_03_a_replay_with_other_offsets_is_refused() -> None:
    world = world_of()
    first, second = world.start("A"), world.start("B")
    until(second, "log offsets")
    until(first, "open")
    second.memory[0] = (0, 5)
    second.step("overwrite")
    first.crash()
    died_of(recover(world), OffsetLogDiverged)
    assert offsets(world, "kafka") == []


def test_rule_03_an_epoch_does_not_follow_offsets_that_changed_after_the_decision() -> None:
    """Epoch 0 is in and committed; from the changed file, epoch 1 would leave input out."""
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


def test_rule_04_a_replay_without_one_of_the_sinks_is_refused() -> None:
    world = decided_and_not_applied()
    job = replace(world.job, sinks={"kafka": world.job.sinks["kafka"]})
    with pytest.raises(DecidedForAnotherJob, match="no such sink"):
        drive(run_epoch(job, 0), world.start("B").ports)
    assert offsets(world, "kafka") == []


@pytest.mark.parametrize(
    "change", [{"target": "topic b"}, {"marker_key": "M"}, {"parts": 3}, {"kind": "mysql"}]
)
def test_rule_04_a_replay_into_another_target_is_refused(change: dict[str, Any]) -> None:
    world = decided_and_not_applied()
    sinks = world.job.sinks | {"kafka": replace(world.job.sinks["kafka"], **change)}  # type: ignore[operator]
    with pytest.raises(DecidedForAnotherJob):
        drive(run_epoch(replace(world.job, sinks=sinks), 0), world.start("B").ports)
    assert offsets(world, "mysql") == []


def test_rule_04_a_replay_goes_to_the_records_sinks_not_to_those_added_since() -> None:
    world = decided_and_not_applied()
    more = world.job.sinks | {"new": SinkBinding("kafka", "topic new", 1, "L.new")}  # type: ignore[operator]
    settled = drive(run_epoch(replace(world.job, sinks=more), 0), world.start("B").ports)
    assert set(settled.record.sinks) == {"kafka", "mysql"}
    laws.check_end(world)


@pytest.mark.parametrize("change", [{"name": "other"}, {"lineage": "other"}])
@pytest.mark.parametrize("epoch", [0, 1])
def test_rule_04_a_checkpoint_of_another_job_or_lineage_is_refused(
    change: dict[str, str], epoch: int
) -> None:
    """Both where the epoch's own record is found and where only the one before is."""
    world = world_of()
    to_the_end(world.start("A", last=0))
    world.offsets[1] = 4
    with pytest.raises(CheckpointOfAnotherJob):
        drive(run_epoch(replace(world.job, **change), epoch), world.start("B").ports)  # type: ignore[arg-type]


def test_rule_04_an_epoch_before_the_lineage_is_refused() -> None:
    world = world_of()
    world.offsets[3] = 5
    with pytest.raises(OffsetLogDiverged, match="older than the lineage"):
        drive(run_epoch(replace(world.job, first_epoch=4), 3), world.start("B").ports)


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


def test_rule_05_a_part_without_rows_keeps_its_marker_and_goes_on_later() -> None:
    world = world_of(size=lambda _n, _e: 1, route=lambda offset, _a, parts: offset % parts)
    to_the_end(world.start("A", last=2))
    markers = [part.marker.epoch for part in world.sinks["mysql"].parts if part.marker]
    assert markers == [2, 1]
    assert recover(world, epochs=2).error is None
    laws.check_end(world)
