"""Sealing with running drivers, zombies and crashes: nothing after the seal, nothing unapplied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sluicegate.errors import DecisionUnknown, EpochLogBroken, EpochUnfinished, Fenced, Sealed
from sluicegate.protocol import sealing
from sluicegate.protocol.effects import LatestEpoch
from sluicegate.protocol.record import Seal, decode_seal, encode_seal, is_seal
from tests.robustness.model.protocol.exhaustive_search import everywhere, recover, to_the_end, until
from tests.robustness.model.protocol.simulated_sealer import start_sealer
from tests.robustness.model.protocol.world import World
from tests.robustness.model.protocol.world_config import WorldConfig
from tests.robustness.validate import invariants
from tests.robustness.validate.broken_protocols import decides_over_a_seal

KAFKA, MYSQL = ("kafka", "fencing"), ("mysql", "locking")


def small(**changes: Any) -> World:  # noqa: ANN401 - any field
    """Return a world with one part per sink and two rows per epoch."""
    fields: dict[str, Any] = {"sinks": (KAFKA, MYSQL), "parts": 1, "size": lambda _n, _e: 2}
    return World(WorldConfig(**(fields | changes)))


def completes(world: World) -> None:
    """Check that, sealed or not, one more driver applies every decided epoch to every sink."""
    driver = recover(world, epochs=1)
    if driver.error is not None and not isinstance(driver.error, Sealed):
        raise driver.error
    if "sealed" in world.events and driver.error is None:
        raise invariants.InvariantBroken("seal: a driver continued after it")
    invariants.check_end(world)


# --- every interleaving ----------------------------------------------------------------------------


@pytest.mark.parametrize(("overlap", "faults"), [(False, 1), (True, 0)])
def test_a_sealer_and_a_driver_with_a_crash_in_every_state(overlap: bool, faults: int) -> None:  # noqa: FBT001 - a parameter
    def make() -> World:
        world = small(sinks=(MYSQL,), overlap=overlap)
        to_the_end(world.start("A", last=0))
        world.start("B", last=1 + overlap)
        start_sealer(world)
        return world

    found = everywhere(make, completes, faults=faults)
    assert found.states > 200


def test_a_sealer_a_driver_and_a_paused_one() -> None:
    """The paused one decided an epoch that the other has applied since."""

    def make() -> World:
        world = small()
        until(world.start("P"), "commit")
        to_the_end(world.start("B", last=1))
        world.start("C", last=1)
        start_sealer(world)
        return world

    found = everywhere(make, completes)
    assert found.states > 50


def test_two_sealers_seal_once() -> None:
    def make() -> World:
        world = small(sinks=(MYSQL,))
        to_the_end(world.start("A", last=0))
        start_sealer(world, "S")
        start_sealer(world, "T")
        return world

    everywhere(make, completes, faults=1)
    world = make()
    first, second = world.drivers[1:]
    until(second, "CreateSeal")
    to_the_end(first)
    to_the_end(second)
    assert first.error is None
    assert isinstance(second.error, Sealed)


# --- directed schedules ------------------------------------------------------------------------------


def test_a_lineage_with_an_unapplied_epoch_is_not_sealed() -> None:
    world = small()
    until(world.start("A"), "open")
    world.drivers[0].crash()
    sealer = to_the_end(start_sealer(world))
    assert isinstance(sealer.error, EpochUnfinished)
    assert sealer.error.retryable
    assert not world.seals


def test_sparks_commit_of_an_overlapped_epoch_does_not_prove_that_it_is_applied() -> None:
    world = small(overlap=True)
    driver = world.start("A")
    until(driver, "log commit", times=2)
    driver.step()
    driver.crash()
    assert 1 in world.commits
    assert isinstance(to_the_end(start_sealer(world)).error, EpochUnfinished)


def test_a_lineage_without_a_decision_is_not_sealed() -> None:
    assert isinstance(to_the_end(start_sealer(small())).error, EpochUnfinished)


def test_a_driver_that_decides_first_fences_the_sealer() -> None:
    world = small()
    driver = world.start("A")
    until(driver, "CreateRecord", times=2)
    sealer = start_sealer(world)
    until(sealer, "CreateSeal")
    driver.step()
    assert isinstance(to_the_end(sealer).error, Fenced)
    assert not world.seals


def test_a_driver_that_finds_the_seal_when_it_decides_stops() -> None:
    world = small()
    driver = world.start("A")
    until(driver, "CreateRecord", times=2)
    assert to_the_end(start_sealer(world)).error is None
    assert isinstance(to_the_end(driver).error, Sealed)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_start_after_the_seal_stops(overlap: bool) -> None:  # noqa: FBT001 - a parameter
    world = small(overlap=overlap)
    to_the_end(world.start("A", last=1))
    assert to_the_end(start_sealer(world)).error is None
    assert isinstance(to_the_end(world.start("B")).error, Sealed)


def test_a_seal_whose_reply_is_lost_is_recognized_as_ours() -> None:
    world = small()
    to_the_end(world.start("A", last=1))
    sealer = start_sealer(world)
    until(sealer, "CreateSeal")
    sealer.step("lost")
    assert to_the_end(sealer).error is None


def test_a_store_that_never_confirms_leaves_the_seal_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = small()
    to_the_end(world.start("A", last=1))
    monkeypatch.setattr(World, "put_seal", lambda _world, _seal: False)
    sealer = start_sealer(world)
    sealer.faulted = True
    assert isinstance(to_the_end(sealer).error, DecisionUnknown)


# --- broken protocols are caught ---------------------------------------------------------------------


def unchecked(_seal: Seal) -> Iterator[Any]:
    yield LatestEpoch()


def test_sealing_an_unapplied_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "all_applied", unchecked)
    world = small()
    until(world.start("A"), "open")
    with pytest.raises(
        invariants.InvariantBroken,
        match=r"seal of an unapplied epoch: at 1, and kafka does not have 0",
    ):
        to_the_end(start_sealer(world))


def test_a_store_that_overwrites_a_seal_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decides_over_a_seal(monkeypatch)
    world = small()
    driver = world.start("A")
    until(driver, "CreateRecord", times=2)
    to_the_end(start_sealer(world))
    with pytest.raises(
        invariants.InvariantBroken,
        match="decision after the seal: an epoch is decided, sealed at 1",
    ):
        driver.step()


# --- stored form -------------------------------------------------------------------------------------

SEAL = Seal("id", "l", "j", 7, "savepoint x", 1_767_787_200_123)


def test_a_decoded_seal_equals_the_encoded_one() -> None:
    assert is_seal(encode_seal(SEAL))
    assert decode_seal(encode_seal(SEAL)) == SEAL


@pytest.mark.parametrize("at", [20, 60, -1])
def test_a_changed_seal_is_rejected(at: int) -> None:
    stored = bytearray(encode_seal(SEAL))
    stored[at] ^= 1
    with pytest.raises(EpochLogBroken):
        decode_seal(bytes(stored))


def test_the_error_of_a_seal_names_the_last_epoch() -> None:
    error = SEAL.error()
    assert "after epoch 6" in error.what
    assert error.exit_code == 65
    assert not error.retryable
