"""The simulation can fail: coordinators that are broken on purpose are caught, each by its law.

A checker that never found anything proves nothing. Each test breaks one piece of the protocol,
and the search, or one schedule, must find the world in which it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluicegate.protocol import coordinator
from sluicegate.protocol.coordinator import Job
from sluicegate.protocol.effects import CreateRecord, NewestEpoch, ReadRecord, Steps
from sluicegate.protocol.errors import Fenced, MarkerMismatch
from sluicegate.protocol.markers import Marker, Verdict, judge
from sluicegate.protocol.record import EpochRecord

from . import laws
from .search import everywhere, recover, to_the_end, until
from .setting import Call, Setting
from .world import World

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")
Broken = Callable[[Job, int], Steps[Any]]


def rival_worlds(setting: Setting, breaking: Callable[[World], Broken] | None = None) -> None:
    """Search every interleaving of two drivers and one epoch, with a crash in every state."""

    def make() -> World:
        world = World(setting)
        if breaking is not None:
            world.setting = replace(setting, run_epoch=breaking(world))
        world.start("A", last=0)
        world.start("B", last=0)
        return world

    def at_each(world: World) -> None:
        recover(world)
        laws.check_end(world)

    everywhere(make, at_each)


def one_sink(**changes: Any) -> Setting:  # noqa: ANN401 - any setting
    settings: dict[str, Any] = {"sinks": (MYSQL,), "parts": 1, "size": lambda _name, _epoch: 2}
    return Setting(**(settings | changes))


def test_the_same_search_finds_nothing_in_the_real_one() -> None:
    rival_worlds(one_sink())


def no_marker(_found: Marker | None, **_: object) -> Verdict:
    return Verdict.APPLY


def test_an_apply_without_a_marker_is_caught() -> None:
    with pytest.raises(laws.LawBroken, match=r"once: mysql/0 shows input 0 twice"):
        rival_worlds(one_sink(judge=no_marker))


def test_a_decision_after_the_apply_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = coordinator._decide

    def not_yet(_job: Job, record: EpochRecord) -> Steps[EpochRecord]:
        yield NewestEpoch()
        return record

    def run(job: Job, epoch: int) -> Steps[Any]:
        settled = yield from coordinator.settle(job, epoch)
        yield from coordinator.apply(job, settled)
        if not settled.replayed:
            yield from decide(job, settled.record)

    monkeypatch.setattr(coordinator, "_decide", not_yet)
    with pytest.raises(laws.LawBroken, match="presumed abort"):
        rival_worlds(one_sink(run_epoch=run))


def test_taking_an_epoch_without_a_record_for_applied_is_caught() -> None:
    """A rerun without a record means that nothing is in; 'it was run before' does not count."""

    def breaking(_world: World) -> Broken:
        ran: set[int] = set()

        def run(job: Job, epoch: int) -> Steps[Any]:
            record = yield ReadRecord(epoch)
            if record is None and epoch in ran:
                return
            ran.add(epoch)
            yield from coordinator.run_epoch(job, epoch)

        return run

    with pytest.raises(laws.LawBroken, match=r"commit: Spark commits epoch 0, which is undecided"):
        rival_worlds(one_sink(), breaking)


def test_going_on_without_the_record_before_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain would begin anew, and the decided epoch could never be applied."""

    def ignoring(job: Job, epoch: int) -> Steps[Any]:
        return (yield ReadRecord(epoch - 1)) if epoch > job.first_epoch else None

    monkeypatch.setattr(coordinator, "_record_before", ignoring)
    world = World(one_sink())
    to_the_end(world.start("A", last=1))
    del world.records[1]
    with pytest.raises(laws.LawBroken, match="death: B died of MarkerMismatch"):
        to_the_end(world.start("B", last=2))


def test_applying_from_memory_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """'It is there, so it is decided' holds; 'so mine is decided' does not.

    Each attempt has its rows in a part of its own, where no marker of the other stops it.
    """

    def trusting(_job: Job, record: EpochRecord) -> Steps[EpochRecord]:
        yield CreateRecord(record)
        return record

    monkeypatch.setattr(coordinator, "_decide", trusting)
    setting = one_sink(parts=2, route=lambda _offset, attempt, _parts: int(attempt[0] == "B"))
    with pytest.raises(laws.LawBroken, match="agreement"):
        rival_worlds(setting)


def zombie_of_a_pruned_epoch() -> World:
    """Z is paused before it decides epoch 0; others decide it, go on and prune its record."""
    world = World(
        Setting(sinks=(KAFKA,), size=lambda _n, _e: 1, route=lambda _o, who, _p: int(who[0] == "Z"))
    )
    zombie = world.start("Z")
    until(zombie, "CreateRecord")
    to_the_end(world.start("A", last=4))
    assert 0 not in world.records
    to_the_end(zombie)
    return world


def test_deciding_without_a_look_at_later_epochs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain alone does not save it: its rows go to a part that nobody wrote to since."""

    def blind(_epoch: int, _when: str) -> Iterator[Any]:
        yield NewestEpoch()

    monkeypatch.setattr(coordinator, "_no_later_decision", blind)
    with pytest.raises(laws.LawBroken, match=r"agreement: kafka/1 .* A1 is decided"):
        zombie_of_a_pruned_epoch()


def test_the_real_one_fences_the_zombie_of_a_pruned_epoch() -> None:
    assert isinstance(zombie_of_a_pruned_epoch().drivers[0].error, Fenced)


def only_newer(found: Marker | None, *, this: Marker, **_: object) -> Verdict:
    return Verdict.APPLY if found is None or found.epoch < this.epoch else Verdict.SKIP


def checkpoint_from_a_backup(judged: Callable[..., Verdict]) -> World:
    """The checkpoint goes back two epochs, the sinks do not, and epochs are cut otherwise now."""
    world = World(one_sink(judge=judged, size=lambda name, _epoch: 1 if name == "A" else 3))
    driver = world.start("A")
    until(driver, "look")
    until(driver, "log offsets", times=3)
    put_back = world.checkpoint()
    until(driver, "log offsets", times=3)
    driver.crash()
    put_back()
    to_the_end(world.start("B", last=6))
    return world


def test_less_than_this_epoch_instead_of_the_chain_is_caught() -> None:
    """Input is left out silently: epochs 2 and 3 count as in, with other input than they had."""
    with pytest.raises(laws.LawBroken, match=r"input: epoch \d begins at \d+, the one before ends"):
        checkpoint_from_a_backup(only_newer)


def test_the_real_one_stops_at_a_checkpoint_from_a_backup() -> None:
    error = checkpoint_from_a_backup(judge).drivers[-1].error
    assert isinstance(error, Fenced | MarkerMismatch)


def test_cleaning_the_staging_area_before_the_decision_is_caught() -> None:
    """'Nothing is decided, so these are leftovers': a living driver decides them a moment later."""

    def breaking(world: World) -> Broken:
        def clean(epoch: int) -> None:
            for name in [n for n in world.staged if n.startswith(f"{epoch}/")]:
                del world.staged[name]

        def run(job: Job, epoch: int) -> Steps[Any]:
            record = yield ReadRecord(epoch)
            if record is None:
                yield Call("clean", lambda: clean(epoch))
            yield from coordinator.run_epoch(job, epoch)

        return run

    with pytest.raises(laws.LawBroken, match=r"redo log: .* was removed"):
        rival_worlds(one_sink(), breaking)
