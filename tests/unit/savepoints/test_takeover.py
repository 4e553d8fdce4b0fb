"""A moved job takes over its parent's sinks, a branch must not use them. On sinks in memory."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate import failpoints
from sluicegate.errors import (
    EpochLogBroken,
    Fenced,
    MarkerMismatch,
    SinkRegressed,
    SinksStillOwned,
    SinkUnavailable,
)
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.protocol.record import Chunk
from sluicegate.savepoints.manifest import Ancestry, write_ancestry
from sluicegate.savepoints.takeover import (
    successor,
    take_over,
    take_over_or_isolate,
    verify_takeover,
)
from sluicegate.sinks.contract import BoundSink, PartDecision
from sluicegate.sinks.memory import (
    BoundMemory,
    MemoryPartWriter,
    MemorySink,
    committed,
    forget,
)
from sluicegate.spark import apply
from sluicegate.spark.apply import SinkMarkers
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.savepoints.builders import record

ROWS = pa.schema([("id", pa.int64())])
CHILD = Lineage("child", "j", first_epoch=5, parent="parent", moved=True)
AT = Marker(4, "a4")


@pytest.fixture
def sink() -> MemorySink:
    """Return a new sink with two parts."""
    return MemorySink(uuid.uuid4().hex, parts=2)


def bound(sink: MemorySink, lineage: str = "parent") -> BoundMemory:
    return sink.bind(ROWS, lineage=lineage, apply_timeout_s=1)


def ancestry(sink: MemorySink, part: Marker = AT) -> Ancestry:
    """Return the ancestry of a parent that wrote rows to part 0 and none to part 1."""
    return Ancestry("parent", 4, {sink.id: bound(sink).binding}, {sink.id: {0: part}})


def applied(sink: MemorySink, at: Marker = AT, prev: Marker = NO_MARKER) -> None:
    """Apply an epoch of the parent to part 0."""
    batch = pa.RecordBatch.from_pylist([{"id": at.epoch}], schema=ROWS)
    bound(sink).open(0).apply(PartDecision("parent", at, prev), [batch])


def marker(sink: MemorySink, part: int) -> Marker | None:
    return bound(sink).open(part).marker()


def take_over_sink(
    sink: MemorySink, child: Lineage = CHILD, parent: Ancestry | None = None
) -> None:
    take_over(parent or ancestry(sink), child, {sink.id: bound(sink)})


def test_every_part_is_taken_over_and_no_row_is_written(sink: MemorySink) -> None:
    applied(sink)
    take_over_sink(sink)
    assert [successor(marker(sink, part)) for part in (0, 1)] == ["child", "child"]
    assert committed(sink.name) == [{"id": 4}]


def test_the_marker_of_a_takeover_is_of_the_epoch_after_the_savepoint(sink: MemorySink) -> None:
    """A driver of the parent that decides this epoch late finds another marker in its place."""
    applied(sink)
    take_over_sink(sink)
    assert marker(sink, 0) == Marker(AT.epoch + 1, "moved.child")


def test_a_part_that_the_parent_never_wrote_lacks_no_marker(
    sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    applied(sink)
    with caplog.at_level(logging.WARNING):
        take_over_sink(sink)
    assert caplog.text == ""


def test_a_takeover_can_be_repeated(sink: MemorySink) -> None:
    applied(sink)
    take_over_sink(sink)
    take_over_sink(sink)
    assert successor(marker(sink, 0)) == "child"


@pytest.mark.parametrize(
    ("point", "taken"), [("before-takeover", ["", ""]), ("after-takeover", ["child", ""])]
)
def test_a_takeover_that_was_interrupted_is_completed_by_the_next_start(
    sink: MemorySink, point: str, taken: list[str]
) -> None:
    """Between two parts the sink has the markers of both lineages."""
    applied(sink)
    failpoints.arm(f"{point}:{sink.id}@{AT.epoch + 1}=raise")
    try:
        with pytest.raises(failpoints.FailpointHit):
            take_over_sink(sink)
    finally:
        failpoints.arm("")
    assert [successor(marker(sink, part)) for part in (0, 1)] == taken
    take_over_sink(sink)
    assert [successor(marker(sink, part)) for part in (0, 1)] == ["child", "child"]
    assert committed(sink.name) == [{"id": 4}]


def test_a_second_successor_is_rejected(sink: MemorySink) -> None:
    applied(sink)
    take_over_sink(sink)
    with pytest.raises(Fenced, match="taken over by lineage child"):
        take_over_sink(sink, replace(CHILD, id="second"))


def test_an_open_writer_of_the_parent_cannot_commit(sink: MemorySink) -> None:
    """A zombie was paused in the middle of an apply, with rows written but not committed."""
    applied(sink)
    zombie = bound(sink).open(0)

    def meanwhile(point: str) -> None:
        if point == "apply-written":
            take_over_sink(sink)

    late = PartDecision("parent", Marker(5, "undecided"), AT, reach=meanwhile)
    batch = pa.RecordBatch.from_pylist([{"id": 5}], schema=ROWS)
    with pytest.raises(SinkUnavailable, match="fenced"):
        zombie.apply(late, [batch])
    with pytest.raises(Fenced):
        bound(sink).open(0).apply(PartDecision("parent", Marker(4, "late"), AT), [batch])
    assert committed(sink.name) == [{"id": 4}]


def fail_over(sink: MemorySink) -> None:
    """Let a replica take over that lacks the parent's last epoch and all that came later."""
    forget(sink.name)
    applied(sink, Marker(3, "a3"))


@pytest.mark.parametrize("after_the_seed", [False, True])
def test_a_failover_before_the_first_decision_of_the_successor_is_detected(
    sink: MemorySink,
    monkeypatch: pytest.MonkeyPatch,
    after_the_seed: bool,  # noqa: FBT001
) -> None:
    """The parent's last epoch is lost: nothing is decided, or the seed is missing at the apply."""
    monkeypatch.setattr(apply, "_writers", {})
    applied(sink)
    take_over_sink(sink)
    own = bound(sink, "child")
    markers = SinkMarkers({sink.id: own}, check_taken_over=lambda _sink: take_over_sink(sink))
    first = replace(record(5, "child"), sinks={sink.id: own.binding}, prev={})
    first = replace(first, chunks=(Chunk(sink.id, 0, (0, 0), 1, 1, ""),))
    if not after_the_seed:
        fail_over(sink)
        with pytest.raises(SinkRegressed):
            markers.seed(first, sink.id, may_expire=False, may_regress=False, durable=False)
        return
    seeds = markers.seed(first, sink.id, may_expire=False, may_regress=False, durable=False)
    fail_over(sink)
    decision = PartDecision("child", first.marker, seeds[0])
    with pytest.raises(MarkerMismatch):
        own.open(0).apply(decision, [])


def test_a_sink_that_was_reset_is_detected(sink: MemorySink) -> None:
    applied(sink, Marker(3, "a3"))
    with pytest.raises(SinkRegressed):
        take_over_sink(sink)


def test_an_expired_marker_is_logged_and_a_second_successor_is_still_rejected(
    sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        take_over_sink(sink)
    assert "has no marker of the parent" in caplog.text
    with pytest.raises(Fenced, match="taken over by lineage child"):
        take_over_sink(sink, replace(CHILD, id="second"))


def test_a_marker_that_the_parent_seeded_before_it_died_is_taken_over(sink: MemorySink) -> None:
    """It seeded both parts before an epoch that it never decided."""
    for part, epoch in ((0, AT.epoch), (1, NO_MARKER.epoch)):
        seeded = PartDecision("parent", Marker(epoch, "seeded.x"), NO_MARKER)
        bound(sink).open(part).apply(seeded, ())
    take_over_sink(sink)
    assert [successor(marker(sink, part)) for part in (0, 1)] == ["child", "child"]


def test_a_sink_that_the_job_no_longer_has_is_left_alone(sink: MemorySink) -> None:
    applied(sink)
    take_over(ancestry(sink), CHILD, {})
    assert marker(sink, 0) == AT


def test_a_sink_that_writes_elsewhere_now_is_left_alone(sink: MemorySink) -> None:
    applied(sink)
    other = MemorySink(uuid.uuid4().hex, parts=2, id=sink.id)
    take_over(ancestry(sink), CHILD, {sink.id: bound(other)})
    assert [marker(one, 0) for one in (sink, other)] == [AT, None]


def test_a_sink_that_is_gone_does_not_stop_the_takeover_of_the_next(sink: MemorySink) -> None:
    applied(sink)
    gone = MemorySink(uuid.uuid4().hex)
    sinks = {gone.id: bound(gone).binding, sink.id: bound(sink).binding}
    take_over(replace(ancestry(sink), sinks=sinks), CHILD, {sink.id: bound(sink)})
    assert successor(marker(sink, 0)) == "child"


def with_durable_markers(sink: MemorySink, *, durable: bool) -> Ancestry:
    binding = replace(bound(sink).binding, durable_markers=durable)
    return replace(ancestry(sink), sinks={sink.id: binding})


def test_a_durable_marker_is_not_read_if_the_sink_has_another(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the place of one that has expired, and costs a request."""
    applied(sink)
    stored = MemoryPartWriter.marker

    def only_this_one(self: MemoryPartWriter, *, durable: bool = False) -> Marker | None:
        assert not durable or stored(self) is None
        return stored(self)

    monkeypatch.setattr(MemoryPartWriter, "marker", only_this_one)
    take_over_sink(sink, parent=with_durable_markers(sink, durable=True))


@pytest.mark.parametrize(("durable", "successor_found"), [(True, True), (False, False)])
def test_an_expired_marker_is_looked_up_where_the_sink_stores_it_for_good(
    sink: MemorySink,
    monkeypatch: pytest.MonkeyPatch,
    durable: bool,  # noqa: FBT001
    successor_found: bool,  # noqa: FBT001
) -> None:
    """Another successor took the part over; only the durable marker still says so."""
    applied(sink)
    take_over_sink(sink, replace(CHILD, id="first"))
    stored = MemoryPartWriter.marker
    read: list[bool] = []

    def expired(self: MemoryPartWriter, *, durable: bool = False) -> Marker | None:
        read.append(durable)
        return stored(self) if durable else None

    monkeypatch.setattr(MemoryPartWriter, "marker", expired)
    parent = with_durable_markers(sink, durable=durable)
    if successor_found:
        with pytest.raises(Fenced, match="taken over by lineage first"):
            take_over_sink(sink, parent=parent)
    else:
        take_over_sink(sink, parent=parent)
    assert (True in read) is durable


def test_every_writer_of_a_takeover_is_closed_even_if_it_fails(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[MemoryPartWriter] = []

    def close(self: MemoryPartWriter) -> None:
        closed.append(self)

    monkeypatch.setattr(MemoryPartWriter, "close", close)
    applied(sink)
    take_over_sink(sink)
    assert len(closed) == 2
    with pytest.raises(Fenced):
        take_over_sink(sink, replace(CHILD, id="second"))
    assert len(closed) == 3


def test_without_markers_there_is_nothing_to_take_over(sink: MemorySink) -> None:
    take_over_sink(sink, parent=replace(ancestry(sink), delivery="at-least-once"))
    assert [marker(sink, part) for part in (0, 1)] == [None, None]


# --- at a start ------------------------------------------------------------------------------------


def start(folder: Path, lineage: Lineage, sink: MemorySink) -> list[str]:
    """Start a job; return the other lineages that the sinks were bound for."""
    lineages: list[str] = []

    def bind(other: str) -> dict[str, BoundSink]:
        lineages.append(other)
        return {sink.id: bound(sink, other)}

    take_over_or_isolate(
        LocalObjectStore(folder), lineage, {sink.id: bound(sink, lineage.id)}, bind
    )
    return lineages


def test_a_job_without_a_parent_takes_over_nothing(tmp_path: Path, sink: MemorySink) -> None:
    assert start(tmp_path, Lineage("l", "j"), sink) == []


def test_a_moved_job_takes_over_only_before_its_first_decision(
    tmp_path: Path, sink: MemorySink
) -> None:
    applied(sink)
    write_ancestry(LocalObjectStore(tmp_path), ancestry(sink))
    assert start(tmp_path, CHILD, sink) == ["parent"]
    StoredEpochLog(LocalObjectStore(tmp_path)).create(record(5, "child"))
    assert start(tmp_path, CHILD, sink) == []


def test_a_branch_onto_the_same_sink_is_rejected_and_changes_nothing(
    tmp_path: Path, sink: MemorySink
) -> None:
    applied(sink)
    write_ancestry(LocalObjectStore(tmp_path), ancestry(sink))
    branch = replace(CHILD, moved=False)
    with pytest.raises(SinksStillOwned, match="writes to store"):
        start(tmp_path, branch, sink)
    assert start(tmp_path, replace(branch, same_sinks=True), sink) == []
    assert marker(sink, 0) == AT


def test_a_branch_onto_another_sink_starts(tmp_path: Path, sink: MemorySink) -> None:
    write_ancestry(LocalObjectStore(tmp_path), ancestry(sink))
    other = MemorySink(uuid.uuid4().hex)
    assert start(tmp_path, replace(CHILD, moved=False), other) == []


def test_a_restored_checkpoint_without_its_ancestry_does_not_start(
    tmp_path: Path, sink: MemorySink
) -> None:
    with pytest.raises(EpochLogBroken):
        start(tmp_path, CHILD, sink)


# --- before the first decision ---------------------------------------------------------------------


def verify(folder: Path, lineage: Lineage, sink: MemorySink, *others: MemorySink) -> None:
    """Verify the takeover of the first sink."""
    sinks = (sink, *others)
    verify_takeover(
        LocalObjectStore(folder),
        lineage,
        lambda other: {one.id: bound(one, other) for one in sinks},
        sink.id,
    )


def test_the_takeover_of_one_sink_is_verified_without_the_others(
    tmp_path: Path, sink: MemorySink
) -> None:
    other = MemorySink(uuid.uuid4().hex)
    sinks = {one.id: bound(one).binding for one in (sink, other)}
    write_ancestry(LocalObjectStore(tmp_path), replace(ancestry(sink), sinks=sinks))
    applied(sink)
    verify(tmp_path, CHILD, sink, other)
    assert [successor(marker(one, 0)) for one in (sink, other)] == ["child", ""]


def test_a_takeover_whose_sink_lost_the_last_epoch_is_not_verified(
    tmp_path: Path, sink: MemorySink
) -> None:
    write_ancestry(LocalObjectStore(tmp_path), ancestry(sink))
    applied(sink)
    verify(tmp_path, CHILD, sink)
    fail_over(sink)
    with pytest.raises(SinkRegressed):
        verify(tmp_path, CHILD, sink)


def test_nothing_is_verified_for_a_branch_or_a_sink_that_the_parent_did_not_have(
    tmp_path: Path, sink: MemorySink
) -> None:
    write_ancestry(LocalObjectStore(tmp_path), ancestry(sink))
    applied(sink)
    verify(tmp_path, replace(CHILD, moved=False), sink)
    verify(tmp_path, CHILD, MemorySink(uuid.uuid4().hex), sink)
    assert marker(sink, 0) == AT
