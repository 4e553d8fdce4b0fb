"""What the protocol requests, effect by effect: order, arguments, number of attempts and pauses.

The simulation judges what becomes of an epoch. Nobody can see there how long a driver pauses, what it
writes into its record for people, or that it passes a failpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluicegate.errors import (
    AccessDenied,
    DecisionUnknown,
    EpochLogBroken,
    Fenced,
    MarkerMismatch,
    RecordOfAnotherJob,
    RowsLost,
    SinkRegressed,
    SinkRejected,
    SinkUnavailable,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol import coordinator, effects
from sluicegate.protocol.effects import (
    Apply,
    AwaitApplies,
    BeginAttempt,
    CreateRecord,
    HitFailpoint,
    IsMarkedApplied,
    LatestEpoch,
    Now,
    Pause,
    ReadDiscarded,
    ReadOffsets,
    ReadRecord,
    RestoreWatermark,
    SeedMarkers,
    Stage,
)
from sluicegate.protocol.job import Job
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.ports import Staged
from sluicegate.protocol.record import DecidedEpoch, EpochRecord, EventTime
from sluicegate.settings.epoch import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from tests.unit.protocol.script import JOB, KAFKA, MYSQL, Played, record

SEEDED = {0: Marker(-1, "seeded.1")}
EVENT_TIMES = (EventTime(9, 1, 5.0, 3),)
APPLYING = ["before-apply", "Apply", "after-apply"]


def first_epoch(job: Job = JOB, **changes: Any) -> Played:  # noqa: ANN401 - fields of the record
    """Run epoch 3, the first of its lineage, in which each sink gets rows."""
    wanted = record(event_times=EVENT_TIMES, **changes)
    stored: list[EpochRecord] = []
    return Played(
        coordinator.run_epoch(replace(job, first_epoch=3), 3),
        {
            ReadRecord: lambda _effect: stored[0] if stored else None,
            ReadOffsets: "d3",
            BeginAttempt: ("a", "00-trace"),
            Stage: Staged(wanted.chunks, EVENT_TIMES, {"rows_in": 7}),
            SeedMarkers: SEEDED,
            Now: 42,
            CreateRecord: lambda effect: stored.append(effect.record),
        },
    )


def test_the_effects_of_an_epoch_in_order() -> None:
    assert first_epoch().names == [
        *("ReadRecord", "LatestEpoch", "ReadOffsets", "BeginAttempt"),
        *("before-stage", "Stage", "CheckState", "after-stage", "AwaitApplies"),
        *("SeedMarkers", "SeedMarkers", "Now", "before-decide", "CreateRecord", "ReadRecord"),
        *("LatestEpoch", "after-decide", *APPLYING, *APPLYING, "PruneLog", "before-done"),
    ]


def test_a_record_says_all_that_is_known_of_its_epoch() -> None:
    (created,) = first_epoch().only(CreateRecord)
    assert created.record == record(
        prev={"kafka": SEEDED, "mysql": SEEDED},
        event_times=EVENT_TIMES,
        decided_at_ms=42,
        traceparent="00-trace",
        counts={"rows_in": 7},
    )


def test_an_overlapped_epoch_says_so_and_is_applied_later() -> None:
    played = first_epoch(replace(JOB, overlap=True))
    (created,) = played.only(CreateRecord)
    assert created.record.overlapped
    assert played.names[-2:] == ["after-decide", "StartApply"]


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_without_markers_none_are_seeded(delivery: str) -> None:
    assert not first_epoch(replace(JOB, delivery=delivery)).only(SeedMarkers)


def test_a_sink_without_rows_is_neither_seeded_nor_applied() -> None:
    played = first_epoch(chunks=record().chunks[:1])
    assert [effect.sink for effect in played.only(SeedMarkers)] == ["kafka"]
    assert [effect.sink for effect in played.only(Apply)] == ["kafka"]
    assert {effect.sink for effect in played.only(HitFailpoint)} == {"", "kafka"}


# --- the epoch before ------------------------------------------------------------------------------


def after(previous: EpochRecord, job: Job = JOB, **answers: Any) -> Played:  # noqa: ANN401 - passed on
    """Run epoch 4 after a decided epoch 3, until its record is created."""
    given = {
        ReadRecord: [None, previous, None],
        ReadOffsets: "d3",
        BeginAttempt: ("b", ""),
        Stage: Staged(record().chunks, ()),
        SeedMarkers: SEEDED,
        CreateRecord: StoreUnavailable("down"),
        AwaitApplies: 3,
        **{getattr(effects, name): answer for name, answer in answers.items()},
    }
    return Played(coordinator.run_epoch(replace(job, decide_tries=1), 4), given)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("cluster", ["", "c"])
def test_a_seed_knows_whether_the_marker_before_may_expire(cluster: str, durable: bool) -> None:  # noqa: FBT001 - a parameter
    kafka = replace(KAFKA, cluster=cluster, durable_markers=durable)
    played = after(record(sinks={"kafka": kafka, "mysql": MYSQL}))
    first, second = played.only(SeedMarkers)
    assert (first.may_expire, first.durable) == (cluster == "c", durable)
    assert (second.may_expire, second.durable) == (False, False)


def test_a_sink_that_the_epoch_before_did_not_have_has_no_marker_that_expires() -> None:
    first, _ = after(record(sinks={"mysql": MYSQL}, chunks=())).only(SeedMarkers)
    assert (first.may_expire, first.durable) == (False, False)


def test_a_record_continues_the_chain_of_the_one_before() -> None:
    (created,) = after(record(), SeedMarkers={}).only(CreateRecord)
    assert created.record.prev == {"kafka": {0: Marker(3, "a")}, "mysql": {1: Marker(3, "a")}}


@pytest.mark.parametrize(("applied", "checks"), [(3, False), (2, True), (None, True)])
def test_the_epoch_before_is_checked_unless_this_driver_applied_it(
    applied: int | None,
    checks: bool,  # noqa: FBT001 - a parameter
) -> None:
    played = after(record(overlapped=True), AwaitApplies=applied, IsMarkedApplied=True)
    assert ("IsMarkedApplied" in played.names) is checks


def test_an_overlapped_epoch_of_another_driver_is_applied_as_a_replay() -> None:
    played = after(
        record(overlapped=True), AwaitApplies=None, IsMarkedApplied=False, ReadDiscarded=frozenset()
    )
    applied = played.names.index("PruneLog")
    assert "RefreshMarkers" in played.names[:applied]
    assert played.names.index("SeedMarkers") > applied


@pytest.mark.parametrize(
    ("change", "redoable", "may_regress"),
    [({}, {"mysql"}, True), ({}, (), False), ({"target": "table u"}, {"mysql"}, False)],
)
def test_only_the_same_sink_may_lag_behind_and_only_if_it_can_be_brought_forward(
    change: dict[str, Any],
    redoable: set[str],
    may_regress: bool,  # noqa: FBT001 - a parameter
) -> None:
    sinks = {"kafka": KAFKA, "mysql": replace(MYSQL, **change)}
    _, second = after(record(sinks=sinks), replace(JOB, redoable=frozenset(redoable))).only(
        SeedMarkers
    )
    assert second.may_regress is may_regress


@pytest.mark.parametrize(("newest", "kind"), [(3, MarkerMismatch), (4, Fenced)])
def test_nothing_is_decided_over_a_marker_that_is_not_the_one_before(
    newest: int, kind: type[Exception]
) -> None:
    """It may be that of another attempt, which has decided the epoch since it was staged."""
    newest_seen = iter([3, newest])
    played = after(
        record(),
        SeedMarkers=MarkerMismatch("foreign"),
        LatestEpoch=lambda _effect: next(newest_seen),
    )
    assert isinstance(played.error, kind)
    assert not played.only(CreateRecord)


# --- attempts and pauses ---------------------------------------------------------------------------


def test_a_seed_is_tried_again_and_nothing_is_decided_without_it() -> None:
    played = after(record(), SeedMarkers=[SinkUnavailable("down")] * 3)
    assert isinstance(played.error, SinkUnavailable)
    assert played.only(Pause) == [JOB.pause(1), JOB.pause(2)]
    assert len(played.only(SeedMarkers)) == 3
    assert not played.only(CreateRecord)


def test_a_seed_that_succeeds_at_last_is_used() -> None:
    played = after(record(), SeedMarkers=[SinkUnavailable("down"), SEEDED, {}])
    assert played.only(Pause)[:1] == [JOB.pause(1)]
    (created,) = played.only(CreateRecord)
    assert created.record.prev["kafka"] == SEEDED


def test_a_sink_that_refuses_a_seed_is_said_to_be_so_of_an_undecided_epoch() -> None:
    """The writer's own error is of an apply: it says that the epoch stays decided."""
    refused = SinkRejected("topic out: denied", data="the epoch stays decided", do="grant it")
    played = after(record(), SeedMarkers=refused)
    assert isinstance(played.error, SinkRejected)
    assert (played.error.what, played.error.do) == (refused.what, refused.do)
    assert "undecided" in played.error.data
    assert not played.only(CreateRecord)


@pytest.mark.parametrize("answers", [{CreateRecord: StoreUnavailable("down")}, {ReadRecord: None}])
def test_a_decision_is_tried_as_often_as_the_job_says(answers: dict[type[object], Any]) -> None:
    played = Played(coordinator._decide(JOB, record()), answers)
    assert isinstance(played.error, DecisionUnknown)
    assert len(played.only(CreateRecord)) == 3
    assert played.only(Pause) == [JOB.pause(1), JOB.pause(2), JOB.pause(3)]


def test_pauses_grow_up_to_five_seconds() -> None:
    assert [JOB.pause(failed).seconds for failed in (1, 2, 3, 5, 6, 99)] == [
        *(0.2, 0.4, 0.8, 3.2, 5.0, 5.0),
    ]


def test_an_apply_is_tried_as_often_as_the_job_says() -> None:
    played = Played(
        coordinator.apply(JOB, DecidedEpoch(record(), replayed=False)),
        {Apply: SinkUnavailable("down")},
    )
    assert isinstance(played.error, Stuck)
    assert played.names == ["before-apply", "Apply", "Pause", "Apply", "Pause", "Apply"]
    assert played.only(Pause) == [JOB.pause(1), JOB.pause(2)]


@pytest.mark.parametrize("error", [SinkRejected("too long"), AccessDenied("withdrawn")])
def test_an_epoch_that_a_sink_refuses_is_stuck_at_once(error: Exception) -> None:
    played = Played(
        coordinator.apply(JOB, DecidedEpoch(record(), replayed=False)), {Apply: [error]}
    )
    assert isinstance(played.error, Stuck)
    assert played.names == ["before-apply", "Apply"]


def test_a_store_that_fails_in_an_apply_is_not_the_fault_of_the_sink() -> None:
    """A restart helps, and no sink is to be repaired."""
    down = StoreUnavailable("down")
    played = Played(coordinator.apply(JOB, DecidedEpoch(record(), replayed=False)), {Apply: [down]})
    assert played.error is down
    assert played.names == ["before-apply", "Apply"]


def test_rows_that_are_gone_are_an_error_unless_another_driver_went_on() -> None:
    steps = coordinator.apply(JOB, DecidedEpoch(record(), replayed=False))
    played = Played(steps, {Apply: EpochLogBroken("gone"), effects.LatestEpoch: 3})
    assert isinstance(played.error, EpochLogBroken)
    assert played.names == ["before-apply", "Apply", "LatestEpoch"]


def test_a_driver_whose_redo_finds_no_rows_is_fenced_if_another_one_went_on() -> None:
    """It was paused while others pruned the rows, and meanwhile the sink was restored."""
    job = replace(JOB, redoable=frozenset({"mysql"}))
    played = Played(
        coordinator.apply(job, DecidedEpoch(record(), replayed=False)),
        {
            Apply: [None, SinkRegressed("older"), EpochLogBroken("gone")],
            effects.LatestEpoch: 5,
        },
    )
    assert isinstance(played.error, Fenced)
    assert played.names == [
        *("before-apply", "Apply", "after-apply"),
        *("before-apply", "Apply", "Apply", "LatestEpoch", "ReadRecord"),
    ]


# --- replays and deliveries ------------------------------------------------------------------------


def test_the_effects_of_a_replay_in_order() -> None:
    played = Played(
        coordinator.run_epoch(JOB, 3),
        {
            ReadRecord: record(event_times=EVENT_TIMES),
            ReadOffsets: "d3",
            ReadDiscarded: frozenset({"mysql"}),
        },
    )
    assert played.names == [
        *("ReadRecord", "LatestEpoch", "ReadOffsets", "RestoreWatermark", "AwaitApplies"),
        *("IsMarkedApplied", "ReadDiscarded", "RefreshMarkers"),
        *(*APPLYING, *APPLYING, "PruneLog", "before-done"),
    ]
    assert played.only(RestoreWatermark) == [RestoreWatermark(EVENT_TIMES)]
    assert [effect.discard for effect in played.only(Apply)] == [False, True]


def test_a_replay_of_an_epoch_that_is_marked_as_applied_ends_there() -> None:
    played = Played(
        coordinator.apply(JOB, DecidedEpoch(record(), replayed=True)), {IsMarkedApplied: True}
    )
    assert played.names == ["IsMarkedApplied"]


def test_at_most_once_a_replay_writes_nothing() -> None:
    decided = DecidedEpoch(record(delivery=AT_MOST_ONCE), replayed=True)
    played = Played(coordinator.apply(JOB, decided), {ReadDiscarded: frozenset()})
    assert played.error is None
    assert not played.only(Apply)
    assert played.names[-2:] == ["PruneLog", "before-done"]


@pytest.mark.parametrize(
    "error",
    [
        SinkUnavailable("down"),
        SinkRejected("too long"),
        AccessDenied("withdrawn"),
        StoreUnavailable("no claim"),
    ],
)
def test_at_most_once_a_sink_in_doubt_is_not_written_again(error: Exception) -> None:
    decided = DecidedEpoch(record(delivery=AT_MOST_ONCE), replayed=False)
    played = Played(coordinator.apply(JOB, decided), {Apply: [error, None]})
    assert isinstance(played.error, RowsLost)
    assert played.error.__cause__ is error
    assert "sink kafka may have lost 1 rows" in played.error.data
    assert "mysql" not in str(played.error)
    assert [effect.sink for effect in played.only(Apply)] == ["kafka", "mysql"]
    assert played.names == ["before-apply", "Apply", *APPLYING]


def test_at_most_once_one_error_names_all_sinks_that_may_have_lost_rows() -> None:
    decided = DecidedEpoch(record(delivery=AT_MOST_ONCE), replayed=False)
    played = Played(coordinator.apply(JOB, decided), {Apply: SinkUnavailable("down")})
    assert isinstance(played.error, RowsLost)
    assert [effect.sink for effect in played.only(Apply)] == ["kafka", "mysql"]
    for sink in ("kafka", "mysql"):
        assert f"epoch 3 did not reach sink {sink} and is not retried: down" in played.error.what
        assert f"sink {sink} may have lost 1 rows" in played.error.data


@pytest.mark.parametrize("delivery", [EXACTLY_ONCE, AT_MOST_ONCE])
def test_an_apply_that_this_process_repeats_is_a_replay(delivery: str) -> None:
    """At-most-once writes nothing in it, and a driver that was paused meanwhile finds later decisions."""
    job, decided = replace(JOB, delivery=delivery), record(delivery=delivery)
    played = Played(
        coordinator.retry_apply(job, decided),
        {LatestEpoch: 3, ReadOffsets: "d3", ReadDiscarded: frozenset()},
    )
    assert played.error is None
    assert played.result == DecidedEpoch(decided, replayed=True)
    written = [effect.sink for effect in played.only(Apply)]
    assert written == (["kafka", "mysql"] if delivery == EXACTLY_ONCE else [])
    later = Played(coordinator.retry_apply(job, decided), {LatestEpoch: 4})
    assert isinstance(later.error, Fenced)
    assert not later.only(Apply)


def test_a_replay_with_another_delivery_is_rejected() -> None:
    played = Played(coordinator.run_epoch(JOB, 3), {ReadRecord: record(delivery=AT_MOST_ONCE)})
    assert isinstance(played.error, RecordOfAnotherJob)


def test_an_epoch_needs_only_the_sinks_for_which_it_has_rows() -> None:
    job = replace(JOB, sinks={"kafka": KAFKA})
    played = Played(
        coordinator.run_epoch(job, 3),
        {
            ReadRecord: record(chunks=record().chunks[:1]),
            ReadOffsets: "d3",
            ReadDiscarded: frozenset(),
        },
    )
    assert played.error is None
    assert [effect.sink for effect in played.only(Apply)] == ["kafka"]


# --- a sink that regressed -------------------------------------------------------------------------


def test_only_a_sink_that_may_be_brought_forward_is() -> None:
    decided = DecidedEpoch(record(), replayed=False)
    played = Played(coordinator.apply(JOB, decided), {Apply: SinkRegressed("old")})
    assert isinstance(played.error, SinkRegressed)
    assert played.names == ["before-apply", "Apply"]


def test_a_sink_is_brought_forward_part_by_part_in_the_order_of_the_epochs() -> None:
    chain = {epoch: Marker(epoch, "a") for epoch in (1, 2)}
    parts = record(
        chunks=(*record().chunks[1:], replace(record().chunks[1], part=0)),
        prev={"mysql": {0: chain[2], 1: chain[2]}},
    )
    before = {2: replace(parts, epoch=2, prev={"mysql": {0: chain[1], 1: chain[1]}})}
    lacking = {0: {3, 2}, 1: {3}}
    applied: list[tuple[int, tuple[int, ...], bool]] = []

    def apply(effect: Apply) -> Exception | None:
        epoch = effect.record.epoch
        if len(effect.parts) > 1 or epoch in lacking[effect.parts[0]]:
            if len(effect.parts) == 1:
                lacking[effect.parts[0]].discard(epoch)
            return SinkRegressed("old")
        applied.append((epoch, effect.parts, effect.discard))
        return None

    before[1] = replace(parts, epoch=1, prev={})
    played = Played(
        coordinator.apply(
            replace(JOB, redoable=frozenset({"mysql"})), DecidedEpoch(parts, replayed=False)
        ),
        {
            Apply: apply,
            ReadRecord: lambda effect: before[effect.epoch],
            ReadDiscarded: lambda effect: frozenset({"mysql"} if effect.epoch == 2 else ()),
        },
    )
    assert played.error is None
    assert applied == [
        *((1, (0,), False), (2, (0,), True), (3, (0,), False)),
        *((2, (1,), True), (3, (1,), False)),
    ]
