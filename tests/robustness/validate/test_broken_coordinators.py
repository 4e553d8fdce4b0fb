"""Coordinators that are broken on purpose: the simulation catches each with an invariant.

A checker that never finds anything proves nothing. Each test breaks one piece of the protocol, and
the search or one directed schedule must reach the state in which it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import Fenced, MarkerMismatch
from sluicegate.protocol import coordinator
from sluicegate.protocol.effects import CreateRecord, EpochSteps, LatestEpoch, LogSteps, ReadRecord
from sluicegate.protocol.job import Job
from sluicegate.protocol.markers import Marker, Verdict, compare_marker
from sluicegate.protocol.record import EpochRecord
from tests.robustness.model.protocol.directed_schedules import paused_before_its_seed
from tests.robustness.model.protocol.exhaustive_search import everywhere, recover, to_the_end, until
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import Call, WorldConfig
from tests.robustness.validate import invariants
from tests.robustness.validate.broken_committers import skipping_begun_epochs

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")
RunEpoch = Callable[[Job, int], EpochSteps[Any]]


def search_rivals(config: WorldConfig, broken: Callable[[World], RunEpoch] | None = None) -> None:
    """Search every interleaving of two drivers and one epoch, with a crash in every state."""

    def make() -> World:
        world = World(config)
        if broken is not None:
            world.config = replace(config, run_epoch=broken(world))
        world.start("A", last=0)
        world.start("B", last=0)
        return world

    def at_each(world: World) -> None:
        recover(world)
        invariants.check_end(world)

    everywhere(make, at_each)


def config_of_one_sink(**changes: Any) -> WorldConfig:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {"sinks": (MYSQL,), "parts": 1, "size": lambda _name, _epoch: 2}
    return WorldConfig(**(fields | changes))


def test_the_same_search_finds_nothing_in_the_real_coordinator() -> None:
    search_rivals(config_of_one_sink())


def ignore_marker(_stored: Marker | None, **_: object) -> Verdict:
    return Verdict.APPLY


def test_an_apply_that_ignores_the_marker_is_caught() -> None:
    with pytest.raises(invariants.InvariantBroken, match=r"once: mysql/0 shows input 0 twice"):
        search_rivals(config_of_one_sink(compare=ignore_marker))


def test_a_decision_after_the_apply_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = coordinator._decide

    def undecided(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        yield LatestEpoch()
        return record

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        decided = yield from coordinator.run_epoch(job, epoch)
        if not decided.replayed:
            yield from decide(job, decided.record)

    monkeypatch.setattr(coordinator, "_decide", undecided)
    with pytest.raises(invariants.InvariantBroken, match="presumed abort"):
        search_rivals(config_of_one_sink(run_epoch=run))


def test_treating_an_epoch_without_a_record_as_applied_is_caught() -> None:
    """A rerun without a record means that nothing is applied, even if the epoch ran before."""

    def broken(_world: World) -> RunEpoch:
        return skipping_begun_epochs(set())

    with pytest.raises(
        invariants.InvariantBroken, match="commit of an undecided epoch: Spark commits epoch 0"
    ):
        search_rivals(config_of_one_sink(), broken)


def test_continuing_without_the_previous_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain would start again, and the decided epoch could never be applied."""

    def ignoring(job: Job, epoch: int) -> LogSteps[Any]:
        return (yield ReadRecord(epoch - 1)) if epoch > job.first_epoch else None

    monkeypatch.setattr(coordinator, "_previous_record", ignoring)
    world = World(config_of_one_sink())
    to_the_end(world.start("A", last=1))
    del world.records[1]
    with pytest.raises(invariants.InvariantBroken, match="death: B died of MarkerMismatch"):
        to_the_end(world.start("B", last=2))


def test_applying_the_record_in_memory_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a record exists means that the epoch is decided, not that this attempt was.

    The rows of each attempt go to a different part, where no marker of the other stops them.
    """

    def trusting(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        yield CreateRecord(record)
        return record

    monkeypatch.setattr(coordinator, "_decide", trusting)
    config = config_of_one_sink(
        parts=2, route=lambda _offset, attempt, _parts: int(attempt[0] == "B")
    )
    with pytest.raises(invariants.InvariantBroken, match="agreement"):
        search_rivals(config)


def zombie_of_a_pruned_epoch() -> World:
    """Z pauses before it decides epoch 0; another driver decides it, continues and prunes it."""
    world = World(
        WorldConfig(
            sinks=(KAFKA,),
            size=lambda _n, _e: 1,
            route=lambda _o, attempt, _p: int(attempt[0] == "Z"),
        )
    )
    zombie = world.start("Z")
    until(zombie, "CreateRecord")
    to_the_end(world.start("A", last=4))
    assert 0 not in world.records
    to_the_end(zombie)
    return world


def test_deciding_without_checking_for_later_epochs_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chain alone does not help: the rows go to a part that nobody has written since."""

    def unchecked(_epoch: int, _when: str) -> Iterator[Any]:
        yield LatestEpoch()

    monkeypatch.setattr(coordinator, "no_later_decision", unchecked)
    with pytest.raises(invariants.InvariantBroken, match=r"agreement: kafka/1 .* A1 is decided"):
        zombie_of_a_pruned_epoch()


def test_the_real_coordinator_fences_the_zombie_of_a_pruned_epoch() -> None:
    assert isinstance(zombie_of_a_pruned_epoch().drivers[0].error, Fenced)


def only_newer(stored: Marker | None, *, this: Marker, **_: object) -> Verdict:
    return Verdict.APPLY if stored is None or stored.epoch < this.epoch else Verdict.SKIP


def checkpoint_from_a_backup(compare: Callable[..., Verdict]) -> World:
    """The checkpoint goes back two epochs, the sinks do not, and the new epochs have other sizes."""
    world = World(
        config_of_one_sink(compare=compare, size=lambda name, _epoch: 1 if name == "A" else 3)
    )
    driver = world.start("A")
    until(driver, "read logs")
    until(driver, "log offsets", times=3)
    restore = world.checkpoint()
    until(driver, "log offsets", times=3)
    driver.crash()
    restore()
    to_the_end(world.start("B", last=6))
    return world


def test_comparing_epoch_numbers_instead_of_the_chain_is_caught() -> None:
    """Input is skipped silently: epochs 2 and 3 count as applied, but had other input."""
    with pytest.raises(
        invariants.InvariantBroken, match=r"input: epoch \d starts at \d+, the previous one ends"
    ):
        checkpoint_from_a_backup(only_newer)


def test_the_real_coordinator_stops_at_a_checkpoint_from_a_backup() -> None:
    error = checkpoint_from_a_backup(compare_marker).drivers[-1].error
    assert isinstance(error, Fenced | MarkerMismatch)


def test_cleaning_the_staging_area_before_the_decision_is_caught() -> None:
    """Staged objects of an undecided epoch are not garbage: a running driver may decide them next."""

    def broken(world: World) -> RunEpoch:
        def clean(epoch: int) -> None:
            for name in [n for n in world.staged if n.startswith(f"{epoch}/")]:
                del world.staged[name]

        def run(job: Job, epoch: int) -> EpochSteps[Any]:
            record = yield ReadRecord(epoch)
            if record is None:
                yield Call("clean", lambda: clean(epoch))
            yield from coordinator.run_epoch(job, epoch)

        return run

    with pytest.raises(invariants.InvariantBroken, match=r"redo log: .* was removed"):
        search_rivals(config_of_one_sink(), broken)


def expired_and_paused(**broken: Any) -> World:  # noqa: ANN401 - any field
    """Markers expire twice; a driver that was paused in between seeds after the epoch is applied."""
    world = World(config_of_one_sink(sinks=(KAFKA,), **broken))
    without_durable_markers(world)
    to_the_end(paused_before_its_seed(world))
    recover(world)
    return world


def without_durable_markers(world: World) -> None:
    """Let the job decide as an earlier version did, and markers expire without a trace."""
    binding = replace(world.job.sinks["kafka"], durable_markers=False)
    world.job = replace(world.job, sinks={"kafka": binding})
    world.events.add("wiped")
    sink = world.sinks["kafka"]
    sink.expire_markers = sink.wipe_markers  # type: ignore[method-assign]


def test_the_real_coordinator_writes_nothing_twice_after_markers_have_expired() -> None:
    assert isinstance(expired_and_paused().drivers[-1].error, MarkerMismatch)


def one_seed_for_all(found: Marker | None, *, expected: Marker, **_: object) -> Marker:
    return Marker(expected.epoch, "seeded.") if found is None else found


def test_seeds_that_are_equal_are_caught() -> None:
    with pytest.raises(invariants.InvariantBroken, match=r"once: kafka/0 shows input 4 twice"):
        expired_and_paused(seed=one_seed_for_all)


def absent_is_fine(stored: Marker | None, *, prev: Marker, **markers: Any) -> Verdict:  # noqa: ANN401
    return compare_marker(stored or prev, prev=prev, **markers)


def test_taking_an_absent_marker_for_the_one_before_is_caught() -> None:
    world = World(config_of_one_sink(sinks=(KAFKA,), compare=absent_is_fine))
    without_durable_markers(world)
    driver = world.start("A")
    until(driver, "log commit")
    driver.crash()
    world.expire_markers("kafka")
    with pytest.raises(invariants.InvariantBroken, match=r"once: kafka/0 shows input 0 twice"):
        recover(world)


def expected_only(_found: Marker | None, *, expected: Marker, **_: object) -> Marker:
    return expected


def test_a_coordinator_that_seeds_nothing_stops_after_markers_have_expired() -> None:
    """The machine of random schedules finds it as well: "the job does not go on"."""
    world = World(config_of_one_sink(sinks=(KAFKA,), seed=expected_only))
    without_durable_markers(world)
    to_the_end(world.start("A", last=1))
    world.expire_markers("kafka")
    assert not world.newest_may_be_unapplied()
    assert isinstance(recover(world, epochs=1).error, MarkerMismatch)
