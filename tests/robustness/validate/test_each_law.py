"""Each law of the simulation has a broken protocol that only this law catches.

A law that no broken protocol violates may check nothing, and one that never fires alone is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.protocol import coordinator, sealing
from sluicegate.protocol.effects import (
    Apply,
    ApplySteps,
    CreateRecord,
    EpochSteps,
    IsMarkedApplied,
    LatestEpoch,
    LogSteps,
    ReadRecord,
)
from sluicegate.protocol.job import Job, fenced
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.record import DecidedEpoch, EpochRecord
from sluicegate.settings.epoch import AT_LEAST_ONCE, AT_MOST_ONCE
from tests.robustness.model.protocol import simulated_sinks
from tests.robustness.model.protocol.directed_schedules import KAFKA, MYSQL, world_of
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.exhaustive_search import recover, to_the_end, until
from tests.robustness.model.protocol.simulated_sealer import start_sealer
from tests.robustness.model.protocol.world import World
from tests.robustness.validate import invariants

Patch = pytest.MonkeyPatch
Scenario = Callable[[Patch], None]


def small(**changes: Any) -> World:  # noqa: ANN401 - any field
    """Return a world with MySQL alone, one part, and two rows per epoch."""
    return world_of(**({"sinks": (MYSQL,), "parts": 1} | changes))


def ends(world: World, epochs: int = 1) -> None:
    """Run the world to its end without faults, and check it."""
    driver = recover(world, epochs=epochs)
    invariants.check_recovery(world, driver)


def ignore_marker(_stored: Marker | None, **_: object) -> Verdict:
    return Verdict.APPLY


def trusting(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
    """Take what this driver staged for what is decided."""
    yield CreateRecord(record)
    return record


def agreement(patch: Patch) -> None:
    patch.setattr(coordinator, "_decide", trusting)
    world = world_of(sinks=(KAFKA,), parts=1, delivery=AT_LEAST_ONCE)
    late = world.start("A", last=0)
    until(late, "CreateRecord")
    to_the_end(world.start("B", last=0))
    to_the_end(late)
    ends(world)


def skip_discarded(patch: Patch) -> None:
    """Skip an epoch that is discarded for a sink, where its marker should move."""
    apply_sink = coordinator._apply_sink

    def skipping(*arguments: Any, discard: bool) -> ApplySteps[None]:  # noqa: ANN401 - passed on
        if not discard:
            yield from apply_sink(*arguments, discard=False)

    patch.setattr(coordinator, "_apply_sink", skipping)
    world = small()
    to_the_end(world.start("A", last=1))
    driver = world.start("B", last=2)
    until(driver, "open")
    driver.crash()
    world.discard(2, "mysql")
    world.restore_sink("mysql", 2)
    ends(world, epochs=0)


def rows_in_another_part(patch: Patch) -> None:
    rows_of = simulated_sinks.rows_of
    patch.setattr(
        simulated_sinks,
        "rows_of",
        lambda record, sink, part, read: rows_of(record, sink, 1 - part, read),
    )
    world = small(parts=2, size=lambda _name, _epoch: 6)
    to_the_end(world.start("A", last=0))
    ends(world, epochs=0)


def commits_what_ran_before(_patch: Patch) -> None:
    """Take an epoch that was staged before for applied."""
    real = coordinator.run_epoch
    ran: set[int] = set()

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        record = yield ReadRecord(epoch)
        if record is None and epoch in ran:
            return
        ran.add(epoch)
        yield from real(job, epoch)

    world = small(run_epoch=run)
    driver = world.start("A", last=0)
    until(driver, "CreateRecord")
    driver.crash()
    to_the_end(world.start("B", last=0))
    invariants.check_end(world)


def applies_one_epoch_late(patch: Patch) -> None:
    """Apply an epoch when the next one runs, the last one at once."""
    real, apply = coordinator.run_epoch, coordinator.apply
    waiting: list[tuple[Job, DecidedEpoch]] = []

    def later(job: Job, decided: DecidedEpoch) -> ApplySteps[None]:
        waiting.append((job, decided))
        if decided.record.epoch == 2:
            yield from run_waiting()

    def run_waiting() -> ApplySteps[None]:
        while waiting:
            yield from apply(*waiting.pop(0))

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        yield from run_waiting()
        yield from real(job, epoch)

    patch.setattr(coordinator, "apply", later)
    world = small(run_epoch=run)
    to_the_end(world.start("A", last=2))
    invariants.check_end(world)


def drops_rows(patch: Patch) -> None:
    """Report an epoch as written without its rows; at-least-once has no marker that shows it."""
    patch.setattr(simulated_sinks, "rows_of", lambda *_: [])
    world = small(delivery=AT_LEAST_ONCE)
    to_the_end(world.start("A", last=0))
    ends(world, epochs=0)


def takes_its_own_record_for_anothers(patch: Patch) -> None:
    decide = coordinator._decide

    def mistaken(job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        stored: EpochRecord = yield from decide(job, record)
        if stored.attempt == "A2":
            raise fenced(stored.epoch, "was decided by another attempt")
        return stored

    patch.setattr(coordinator, "_decide", mistaken)
    world = small()
    to_the_end(world.start("A", last=1))
    ends(world)


def writes_discarded_rows(patch: Patch) -> None:
    """Ignore what was discarded when missing epochs are applied to a sink from a backup."""
    patch.setattr(
        coordinator,
        "Apply",
        lambda record, sink, parts, _discard: Apply(record, sink, parts, False),  # noqa: FBT003 - as declared
    )
    world = small()
    driver = world.start("A", last=2)
    until(driver, "open", times=3)
    driver.crash()
    world.discard(2, "mysql")
    world.restore_sink("mysql", 2)
    ends(world)


def skips_input(patch: Patch) -> None:
    """Another driver overwrites the end of an epoch's input in Spark's log, and nobody compares it."""
    patch.setattr(Driver, "digest", lambda driver, epoch: str(epoch in driver.world.offsets))
    world = small(delivery=AT_MOST_ONCE)
    to_the_end(world.start("A", last=0))
    world.offsets[0] += 3
    ends(world)


def seeds_a_marker_of_nobody(_patch: Patch) -> None:
    def nobody(found: Marker | None, *, expected: Marker, **_: object) -> Marker:
        return found or Marker(expected.epoch, "nobody")

    world = world_of(sinks=(KAFKA,), parts=2, seed=nobody, size=lambda _name, _epoch: 6)
    to_the_end(world.start("A", last=0))
    ends(world)


def retries_at_most_once(patch: Patch) -> None:
    """Apply a replayed epoch again although it may have been written."""
    real = coordinator.apply
    patch.setattr(
        coordinator, "apply", lambda job, decided: real(job, replace(decided, replayed=False))
    )
    world = small(delivery=AT_MOST_ONCE)
    driver = world.start("A", last=0)
    until(driver, "commit")
    driver.step()
    driver.crash()
    ends(world)


def applies_before_it_decides(patch: Patch) -> None:
    decide = coordinator._decide

    def undecided(_job: Job, record: EpochRecord) -> LogSteps[EpochRecord]:
        yield LatestEpoch()
        return record

    def run(job: Job, epoch: int) -> EpochSteps[Any]:
        decided = yield from coordinator.run_epoch(job, epoch)
        yield from decide(job, decided.record)

    patch.setattr(coordinator, "_decide", undecided)
    world = small(delivery=AT_LEAST_ONCE, run_epoch=run)
    to_the_end(world.start("A", last=0))
    invariants.check_end(world)


def waits_for_a_mark_of_nobody(patch: Patch) -> None:
    real = coordinator.apply

    def waiting(job: Job, decided: DecidedEpoch) -> ApplySteps[None]:
        yield from real(job, decided)
        while not (yield IsMarkedApplied(decided.record.epoch)):
            pass

    patch.setattr(coordinator, "apply", waiting)
    world = small()
    ends(world)


def never_redoes(patch: Patch) -> None:
    def once(_job: Job, effect: Apply) -> ApplySteps[None]:
        yield effect

    patch.setattr(coordinator, "_apply_once", once)
    world = small()
    to_the_end(world.start("A", last=2))
    world.restore_sink("mysql", 1)
    ends(world)


def cleans_applied_epochs(patch: Patch) -> None:
    def clean(world: World, record: EpochRecord) -> None:
        for name in [n for n in world.staged if int(n.split("/")[0]) <= record.epoch]:
            del world.staged[name]

    patch.setattr(World, "prune_after", clean)
    world = small()
    to_the_end(world.start("A", last=1))
    ends(world)


def seals_where_decisions_were_pruned(patch: Patch) -> None:
    """A sealer sleeps before its request, and does not look for later decisions after it."""
    real = sealing.seal_after

    def unchecked(seal: Any) -> Iterator[Any]:  # noqa: ANN401 - a seal
        steps, reply, looked = real(seal), None, 0
        while True:
            try:
                effect = steps.send(reply)
            except StopIteration:
                return
            reply = yield effect
            if isinstance(effect, LatestEpoch):
                looked += 1
                reply = seal.epoch if looked == 2 else reply

    patch.setattr(sealing, "seal_after", unchecked)
    world = small(retention=2)
    to_the_end(world.start("A", last=0))
    sealer = start_sealer(world)
    until(sealer, "CreateSeal")
    to_the_end(world.start("B", last=5))
    to_the_end(sealer)
    ends(world)


def seals_an_unapplied_epoch(patch: Patch) -> None:
    def unchecked(_seal: object) -> Iterator[Any]:
        yield LatestEpoch()

    patch.setattr(sealing, "all_applied", unchecked)
    world = small()
    until(world.start("A"), "open")
    to_the_end(start_sealer(world))


def decides_over_a_seal(patch: Patch) -> None:
    put = World.put

    def put_over(world: World, stored: bytes) -> bool:
        seals, world.seals = world.seals, {}
        try:
            return put(world, stored)
        finally:
            world.seals = seals

    patch.setattr(World, "put", put_over)
    world = small()
    driver = world.start("A")
    until(driver, "CreateRecord", times=2)
    to_the_end(start_sealer(world))
    driver.step()


def moves_a_marker_after_the_seal(_patch: Patch) -> None:
    """A paused replay of a discarded epoch writes its marker once more."""
    world = small(compare=ignore_marker)
    first = world.start("A", last=0)
    until(first, "log commit")
    world.discard(0, "mysql")
    paused = world.start("B", last=0)
    until(paused, "open")
    to_the_end(first)
    assert to_the_end(start_sealer(world)).error is None
    until(paused, "commit")
    paused.step()


BROKEN: dict[str, Scenario] = {
    "agreement": agreement,
    "atomicity": skip_discarded,
    "chain": rows_in_another_part,
    "commit of an undecided epoch": commits_what_ran_before,
    "commit of an unapplied epoch": applies_one_epoch_late,
    "conservation": drops_rows,
    "death": takes_its_own_record_for_anothers,
    "discard": writes_discarded_rows,
    "input": skips_input,
    "marker": seeds_a_marker_of_nobody,
    "once": retries_at_most_once,
    "presumed abort": applies_before_it_decides,
    "progress": waits_for_a_mark_of_nobody,
    "redo": never_redoes,
    "redo log": cleans_applied_epochs,
    "seal that stands": seals_where_decisions_were_pruned,
    "seal of an unapplied epoch": seals_an_unapplied_epoch,
    "decision after the seal": decides_over_a_seal,
    "change after the seal": moves_a_marker_after_the_seal,
}


def test_every_law_is_broken_below() -> None:
    assert set(BROKEN) == invariants.LAWS


@pytest.mark.parametrize("law", BROKEN)
def test_a_protocol_that_breaks_the_law_is_caught(law: str, monkeypatch: Patch) -> None:
    with pytest.raises(invariants.InvariantBroken, match=f"^{law}: "):
        BROKEN[law](monkeypatch)


@pytest.mark.parametrize("law", [law for law in BROKEN if law != "progress"])
def test_no_other_law_catches_it(law: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(invariants, "LAWS", invariants.LAWS - {law})
    BROKEN[law](monkeypatch)
