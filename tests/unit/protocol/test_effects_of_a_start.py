"""What a start without a query and a seal request, effect by effect. See `test_effects`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import (
    DecisionUnknown,
    EpochUnfinished,
    Fenced,
    RecordOfAnotherJob,
    Sealed,
    StoreUnavailable,
)
from sluicegate.protocol import coordinator, recovery, sealing
from sluicegate.protocol.effects import (
    CreateSeal,
    IsCommitted,
    IsMarkedApplied,
    LatestEpoch,
    MarkApplied,
    Pause,
    ReadDiscarded,
    ReadOffsets,
    ReadRecord,
    ReadSeal,
)
from sluicegate.protocol.record import DecidedEpoch, Seal
from tests.unit.protocol.script import JOB, KAFKA, Played, record

SEAL = Seal("s", "L", "j", 4, "a test", 0)


def test_a_driver_behind_a_seal_learns_of_it() -> None:
    played = Played(
        coordinator.run_epoch(JOB, 3), {ReadRecord: [None, Sealed("moved")], LatestEpoch: 4}
    )
    assert isinstance(played.error, Sealed)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({ReadSeal: SEAL}, False),
        ({ReadSeal: record()}, True),
        ({ReadSeal: record(), IsCommitted: True}, False),
        ({ReadSeal: record(overlapped=True), IsCommitted: True}, True),
        ({ReadSeal: record(), IsMarkedApplied: True}, False),
        ({ReadSeal: record(overlapped=True), IsCommitted: True, IsMarkedApplied: True}, False),
    ],
)
def test_which_epoch_an_apply_only_run_applies(
    answers: dict[type[object], Any],
    found: bool,  # noqa: FBT001 - a parameter
) -> None:
    played = Played(recovery.unapplied(JOB), {LatestEpoch: 3, ReadOffsets: "d3"} | answers)
    assert played.error is None
    assert (played.result is not None) is found
    assert not found or played.result.replayed


OVERLAPPED = record(overlapped=True)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({ReadRecord: OVERLAPPED, IsCommitted: True}, True),
        # Spark runs it again
        ({ReadRecord: OVERLAPPED, IsCommitted: False}, False),
        # Spark committed it after the apply
        ({ReadRecord: record(), IsCommitted: True}, False),
        ({ReadRecord: OVERLAPPED, IsCommitted: True, IsMarkedApplied: True}, False),
    ],
)
def test_which_epoch_a_start_applies_that_spark_does_not_run_again(
    answers: dict[type[object], Any],
    found: bool,  # noqa: FBT001 - a parameter
) -> None:
    played = Played(recovery.pending_apply(JOB), {LatestEpoch: 3, ReadOffsets: "d3"} | answers)
    assert played.result == (DecidedEpoch(OVERLAPPED, replayed=True) if found else None)


@pytest.mark.parametrize("steps", [recovery.pending_apply, recovery.unapplied])
def test_a_start_on_an_empty_log_reads_no_record(steps: Any) -> None:  # noqa: ANN401 - a generator
    played = Played(steps(JOB), {LatestEpoch: None})
    assert (played.result, played.names) == (None, ["LatestEpoch"])


def test_an_apply_only_run_verifies_the_record() -> None:
    job = replace(JOB, sinks={"kafka": KAFKA})
    answers = {LatestEpoch: 3, ReadSeal: record(), ReadOffsets: "d3", ReadDiscarded: frozenset()}
    played = Played(recovery.unapplied(job), answers)
    assert isinstance(played.error, RecordOfAnotherJob)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({LatestEpoch: 6}, 7),
        ({LatestEpoch: None}, 4),
        ({LatestEpoch: 6, ReadOffsets: None}, None),
        ({LatestEpoch: None, IsCommitted: True}, None),
    ],
    ids=["after a decision", "first of the lineage", "not attempted", "records are missing"],
)
def test_which_epoch_an_earlier_driver_has_attempted_and_not_decided(
    answers: dict[type[object], Any], found: int | None
) -> None:
    job = replace(JOB, first_epoch=4)
    played = Played(recovery.undecided_attempt(job), {ReadOffsets: "d"} | answers)
    assert played.error is None
    assert played.result == found


def test_an_applied_epoch_is_marked() -> None:
    played = Played(recovery.mark_applied(DecidedEpoch(record(), replayed=True)), {})
    assert played.effects == [MarkApplied(3)]


def test_the_effects_of_a_seal_in_order() -> None:
    played = Played(
        sealing.seal_after(SEAL),
        {LatestEpoch: [3, 4], ReadRecord: record(), IsCommitted: True, ReadSeal: SEAL},
    )
    assert played.error is None
    assert played.names == [
        *("LatestEpoch", "ReadRecord", "IsCommitted", "before-seal"),
        *("CreateSeal", "ReadSeal", "LatestEpoch", "after-seal"),
    ]


def test_a_seal_is_tried_thirty_times() -> None:
    played = Played(
        sealing.seal_after(SEAL),
        {
            LatestEpoch: 3,
            ReadRecord: record(),
            IsCommitted: True,
            CreateSeal: StoreUnavailable("x"),
        },
    )
    assert isinstance(played.error, DecisionUnknown)
    pauses = [pause.seconds for pause in played.only(Pause)]
    assert len(pauses) == len(played.only(CreateSeal)) == 30
    assert pauses[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert max(pauses) == 5.0


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        ({ReadSeal: record(epoch=4)}, Fenced),
        ({ReadSeal: replace(SEAL, id="other")}, Sealed),
        ({ReadSeal: SEAL, LatestEpoch: [3, 9]}, Fenced),
        # the other driver has pruned the record in the meantime
        ({ReadSeal: SEAL, LatestEpoch: [3, 9], ReadRecord: None}, Fenced),
    ],
)
def test_a_seal_that_does_not_stand_is_no_seal(
    stored: dict[type[object], Any], error: type[Exception]
) -> None:
    answers = {LatestEpoch: [3, 4], ReadRecord: record(), IsCommitted: True}
    played = Played(sealing.seal_after(SEAL), answers | stored)
    assert isinstance(played.error, error)
    assert "after-seal" not in played.names


@pytest.mark.parametrize("newest", [None, 2, 4])
def test_only_the_newest_decision_can_be_sealed(newest: int | None) -> None:
    played = Played(sealing.seal_after(SEAL), {LatestEpoch: newest, IsCommitted: True})
    assert isinstance(played.error, EpochUnfinished)
    assert f"is epoch {newest}, but the lineage should be sealed after epoch 3" in played.error.what
    assert ("ReadRecord" in played.names) is (newest is not None)
    assert not played.only(CreateSeal)


def test_a_sealer_that_finds_a_seal_says_so() -> None:
    played = Played(sealing.seal_after(SEAL), {LatestEpoch: 4, ReadRecord: [Sealed("moved")]})
    assert isinstance(played.error, Sealed)


def test_an_epoch_that_spark_runs_again_is_not_sealed_although_every_sink_has_it() -> None:
    """A savepoint of it would have no commit, from which Spark continues."""
    answers = {LatestEpoch: 3, IsMarkedApplied: True, ReadRecord: record(overlapped=True)}
    played = Played(sealing.seal_after(SEAL), answers | {IsCommitted: False})
    assert isinstance(played.error, EpochUnfinished)
    assert "epoch 3 is decided and may not be in every sink yet" in played.error.what


@pytest.mark.parametrize(
    ("overlapped", "marked", "sealed"),
    [(False, False, True), (True, False, False), (True, True, True)],
)
def test_sparks_commit_proves_that_an_epoch_is_applied_unless_it_is_overlapped(
    overlapped: bool,  # noqa: FBT001 - a parameter
    marked: bool,  # noqa: FBT001 - a parameter
    sealed: bool,  # noqa: FBT001 - a parameter
) -> None:
    answers = {LatestEpoch: [3, 4], IsCommitted: True, IsMarkedApplied: marked, ReadSeal: SEAL}
    played = Played(sealing.seal_after(SEAL), answers | {ReadRecord: record(overlapped=overlapped)})
    assert bool(played.only(CreateSeal)) is sealed
