"""The chain of markers (rules 2, 4 and 11 of docs/concepts/protocol.md) in the coordinator.

Each test has the number of its rule in its name and fails if the rule is removed from the coordinator.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.errors import (
    EpochLogBroken,
    Fenced,
    MarkerMismatch,
    RecordOfAnotherJob,
    SinkRegressed,
)
from sluicegate.protocol.coordinator import run_epoch
from sluicegate.protocol.effects import run_effects
from sluicegate.protocol.markers import NO_MARKER
from sluicegate.protocol.record import encode
from sluicegate.settings.epoch import AT_LEAST_ONCE
from tests.robustness.model.protocol.directed_schedules import (
    KAFKA,
    MYSQL,
    attempts,
    died_of,
    offsets,
    paused_before_its_seed,
    world_of,
)
from tests.robustness.model.protocol.exhaustive_search import recover, to_the_end, until
from tests.robustness.model.protocol.simulated_sinks import cached_decode
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import salted
from tests.robustness.validate import invariants


def regressed(*, epochs: int, back: int, retention: int = 9, sink: str = "mysql") -> World:
    """Return a world whose sink was restored to `back` commits ago, with no rival drivers."""
    world = world_of(retention=retention, parts=1)
    to_the_end(world.start("A", last=epochs - 1))
    world.restore_sink(sink, len(world.sinks[sink].history) - 1 - back)
    return world


@pytest.mark.parametrize("back", [1, 2, 3])
def test_rule_11_mysql_is_brought_forward_from_the_retained_records(back: int) -> None:
    world = regressed(epochs=4, back=back)
    assert recover(world, epochs=1).error is None
    invariants.check_end(world)


def test_rule_11_kafka_is_not_brought_forward() -> None:
    world = regressed(epochs=4, back=2, sink="kafka")
    died_of(recover(world, epochs=1), SinkRegressed)
    assert offsets(world, "kafka") == [0, 1, 2, 3]


def test_rule_11_nothing_is_redone_if_a_record_in_between_is_pruned() -> None:
    world = regressed(epochs=6, back=4, retention=2)
    died_of(recover(world, epochs=1), SinkRegressed)
    assert offsets(world, "mysql") == [0, 1, 2, 3]


def test_rule_11_a_zombies_record_of_a_pruned_epoch_is_not_redone() -> None:
    """It fits the chain before it, but was never decided."""
    world = world_of(retention=2, parts=1)
    to_the_end(world.start("A", last=0))
    zombie = world.start("Z")
    until(zombie, "CreateRecord")
    to_the_end(world.start("B", last=4))
    to_the_end(zombie)
    assert cached_decode(world.records[1]).attempt == "Z1"
    # keep the records that lead to it, as a longer retention would
    for epoch in (2, 3, 4):
        world.records[epoch] = encode(world.decided[epoch])
        for chunk in world.decided[epoch].chunks:
            rows = [[r.offset, r.attempt] for r in world.watch.rows[epoch, "mysql", 0]]
            if chunk.name:
                world.staged[chunk.name] = str(rows).replace("'", '"').encode()
    world.restore_sink("mysql", 1)
    died_of(recover(world, epochs=1), SinkRegressed)
    assert attempts(world, "mysql") == {"A1"}


def run_elsewhere(world: World, epoch: int) -> None:
    """Run an epoch that a new driver begins with another target of MySQL."""
    moved = replace(world.job.sinks["mysql"], target="table b")
    job = replace(world.job, sinks=world.job.sinks | {"mysql": moved})  # type: ignore[operator]
    world.offsets[epoch], driver = 2 * epoch + 2, world.start(f"N{epoch}")
    driver.memory[epoch] = (2 * epoch, 2 * epoch + 2)
    run_effects(run_epoch(job, epoch), driver.ports)
    world.commits.add(epoch)


def test_rule_11_a_redo_into_another_target_is_rejected() -> None:
    world = world_of(parts=1)
    to_the_end(world.start("A", last=2))
    run_elsewhere(world, 3)
    world.restore_sink("mysql", len(world.sinks["mysql"].history) - 3)
    with pytest.raises(RecordOfAnotherJob):
        run_elsewhere(world, 4)
    assert offsets(world, "mysql") == [0, 1, 2, 3]


def test_rule_11_another_target_that_would_need_a_redo_is_rejected_before_the_decision() -> None:
    world = regressed(epochs=3, back=2)
    with pytest.raises(SinkRegressed):
        run_elsewhere(world, 3)
    assert 3 not in world.decided


def test_rule_11_a_failure_while_a_sink_is_brought_forward_is_retried() -> None:
    world = regressed(epochs=4, back=3)
    driver = world.start("B", last=4)
    until(driver, "commit", times=2)
    driver.step("lost")
    to_the_end(driver)
    assert driver.error is None
    invariants.check_end(world)


def test_rule_11_lost_markers_stop_the_driver() -> None:
    world = world_of(parts=1)
    to_the_end(world.start("A", last=1))
    world.events.add("wiped")
    world.sinks["mysql"].wipe_markers()
    died_of(recover(world, epochs=1), MarkerMismatch)
    assert offsets(world, "mysql") == [0, 1, 2, 3]
    assert max(world.decided) == 1


def test_rule_11_a_job_goes_on_once_it_has_its_former_sink_again() -> None:
    """A database that is another one is noticed before an epoch is decided that it can never apply."""
    world = world_of(parts=1)
    to_the_end(world.start("A", last=1))
    markers = [part.marker for part in world.sinks["mysql"].parts]
    world.events.add("wiped")
    world.sinks["mysql"].wipe_markers()
    died_of(recover(world, epochs=1), MarkerMismatch)
    for part, marker in zip(world.sinks["mysql"].parts, markers, strict=True):
        part.move(marker)
    assert recover(world, epochs=1).error is None
    invariants.check_end(world)


def test_rule_02_a_driver_that_slept_until_its_staged_rows_were_pruned_is_fenced() -> None:
    """Without markers the sink does not stop it, and it must not report a broken log."""
    world = world_of(sinks=(MYSQL,), parts=1, delivery=AT_LEAST_ONCE, retention=2)
    paused = world.start("A", last=0)
    until(paused, "open")
    assert to_the_end(world.start("B", last=4)).error is None
    assert 0 in world.pruned
    died_of(to_the_end(paused), Fenced)


def earlier_version(world: World, **changes: object) -> None:
    """Let the job decide as a version that writes no durable markers."""
    sinks = {
        sink: replace(binding, durable_markers=False, **changes)  # type: ignore[arg-type]
        for sink, binding in world.job.sinks.items()
    }
    world.job = replace(world.job, sinks=sinks)


def lose_markers(world: World) -> None:
    """Remove all markers in Kafka, as their expiry does where none is durable."""
    world.events.add("wiped")
    world.sinks["kafka"].wipe_markers()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_rule_11_a_job_goes_on_after_its_markers_have_expired(
    overlap: bool,  # noqa: FBT001
    durable: bool,  # noqa: FBT001
) -> None:
    """The log proves that every sink has the newest epoch, so nothing is in doubt."""
    world = world_of(sinks=(KAFKA,), overlap=overlap)
    if not durable:
        earlier_version(world)
    to_the_end(world.start("A", last=2))
    if durable:
        world.expire_markers("kafka")
    else:
        lose_markers(world)
    assert recover(world, epochs=3).error is None
    invariants.check_end(world)


@pytest.mark.parametrize("applied", [False, True])
def test_rule_11_markers_that_expired_while_an_epoch_was_unapplied_are_durable(
    applied: bool,  # noqa: FBT001
) -> None:
    """Spark has not committed the epoch: only the durable marker shows whether the sink has it."""
    world = world_of(sinks=(KAFKA,), parts=1)
    to_the_end(world.start("A", last=1))
    driver = world.start("B")
    until(driver, "log commit" if applied else "open")
    driver.crash()
    world.expire_markers("kafka")
    assert recover(world).error is None
    invariants.check_end(world)


@pytest.mark.parametrize("applied", [False, True])
def test_rule_11_markers_of_an_earlier_version_that_expired_while_an_epoch_was_unapplied_stop_it(
    applied: bool,  # noqa: FBT001
) -> None:
    """That version wrote no durable marker, so nothing shows whether the sink has the epoch."""
    world = world_of(sinks=(KAFKA,), parts=1)
    earlier_version(world)
    to_the_end(world.start("A", last=1))
    driver = world.start("B")
    until(driver, "log commit" if applied else "open")
    driver.crash()
    lose_markers(world)
    died_of(recover(world), MarkerMismatch)
    assert offsets(world, "kafka") == list(range(6 if applied else 4))


def test_rule_11_an_epoch_that_is_marked_as_applied_needs_no_marker() -> None:
    """An apply-only run marked it, Spark has not committed it, and its markers have expired."""
    world = world_of(sinks=(KAFKA,), parts=1)
    driver = world.start("A")
    until(driver, "log commit")
    driver.crash()
    world.marked_applied.add(0)
    world.expire_markers("kafka")
    assert recover(world, epochs=2).error is None
    invariants.check_end(world)


def test_rule_11_a_seed_that_is_written_too_late_is_not_taken_for_the_marker_before() -> None:
    """A driver that was paused before it seeded writes its seed after the epoch is applied."""
    world = world_of(sinks=(KAFKA,), parts=1)
    paused = paused_before_its_seed(world)
    died_of(to_the_end(paused), Fenced)
    assert recover(world).error is None
    invariants.check_end(world)


def test_rule_11_a_sink_on_another_cluster_is_an_error_before_anything_is_staged() -> None:
    world = world_of(sinks=(KAFKA,), parts=1)
    to_the_end(world.start("A", last=0))
    moved = replace(world.job.sinks["kafka"], cluster="other")
    world.expire_markers("kafka")
    world.offsets[1], driver = 4, world.start("B")
    driver.memory[1] = (2, 4)
    with pytest.raises(RecordOfAnotherJob, match=r"cluster other; up to epoch 0 .* cluster c"):
        run_effects(run_epoch(replace(world.job, sinks={"kafka": moved}), 1), driver.ports)
    assert "B1" not in world.ranges


def test_rule_11_expired_markers_of_an_unknown_cluster_stop_the_driver() -> None:
    """A record of an earlier version does not say which cluster has the rows."""
    world = world_of(sinks=(KAFKA,), parts=1)
    known = world.job
    earlier_version(world, cluster="")
    to_the_end(world.start("A", last=1))
    world.job = known
    lose_markers(world)
    died_of(recover(world, epochs=1), MarkerMismatch)
    assert offsets(world, "kafka") == [0, 1, 2, 3]


def test_rule_04_an_epoch_of_an_earlier_version_is_applied_by_a_job_that_knows_its_cluster() -> (
    None
):
    world = world_of(sinks=(KAFKA,), parts=1)
    known = world.job
    earlier_version(world, cluster="")
    driver = world.start("A")
    until(driver, "open")
    driver.crash()
    world.job = known
    assert recover(world, epochs=2).error is None
    invariants.check_end(world)


def test_rule_11_markers_lost_in_a_parts_first_epoch_stop_the_driver() -> None:
    """Epoch 0 is applied, Spark has not committed it, and Kafka's markers are wiped."""
    world = world_of(sinks=(KAFKA,), parts=1)
    driver = world.start("A")
    until(driver, "log commit")
    driver.crash()
    world.events.add("wiped")
    world.sinks["kafka"].wipe_markers()
    died_of(recover(world), MarkerMismatch)


def test_rule_11_the_record_preserves_the_chain_across_a_restart() -> None:
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
            assert record.prev_of(sink, part) == (due[-1] if due else NO_MARKER)


def test_rule_11_no_epoch_is_decided_without_the_previous_record() -> None:
    world = world_of()
    to_the_end(world.start("A", last=1))
    world.records.clear()
    world.offsets[2] = 6
    with pytest.raises(EpochLogBroken, match="epoch 1 has no record"):
        run_effects(run_epoch(world.job, 2), world.start("B").ports)
    assert 2 not in world.decided
