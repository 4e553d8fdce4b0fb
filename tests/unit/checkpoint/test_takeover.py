"""A moved job takes its parent's sinks over; a branch keeps away. On sinks in memory."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.checkpoint.manifest import Ancestry, write_ancestry
from sluicegate.checkpoint.takeover import settle_with_parent, successor, take_over
from sluicegate.protocol.errors import (
    EpochLogBroken,
    Fenced,
    SinksOfParent,
    SinkUnavailable,
    SinkWentBack,
)
from sluicegate.protocol.markers import GENESIS, Marker
from sluicegate.sinks.contract import BoundSink, PartDecision
from sluicegate.sinks.memory import BoundMemory, MemorySink, committed
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage
from sluicegate.storage.objects import LocalObjects

from .made import record

ROWS = pa.schema([("id", pa.int64())])
CHILD = Lineage("child", "j", first_epoch=5, parent="parent", moved=True)
AT = Marker(4, "a4")


@pytest.fixture
def sink() -> MemorySink:
    """Give a sink of two parts that nobody else has."""
    return MemorySink(uuid.uuid4().hex, parts=2)


def bound(sink: MemorySink, lineage: str = "parent") -> BoundMemory:
    return sink.bind(ROWS, lineage=lineage, apply_timeout_s=1)


def ancestry(sink: MemorySink, part: Marker = AT) -> Ancestry:
    """Return what the parent had written: rows in part 0, none in part 1."""
    return Ancestry("parent", 4, {sink.id: bound(sink).binding}, {sink.id: {0: part}})


def applied(sink: MemorySink, at: Marker = AT, prev: Marker = GENESIS) -> None:
    """Let the parent apply an epoch to part 0."""
    batch = pa.RecordBatch.from_pylist([{"id": at.epoch}], schema=ROWS)
    bound(sink).open(0).apply(PartDecision("parent", at, prev), [batch])


def marker(sink: MemorySink, part: int) -> Marker | None:
    return bound(sink).open(part).marker()


def over(sink: MemorySink, child: Lineage = CHILD, told: Ancestry | None = None) -> None:
    take_over(told or ancestry(sink), child, {sink.id: bound(sink)})


def test_every_part_of_the_parent_goes_to_the_child_and_shows_no_row(sink: MemorySink) -> None:
    applied(sink)
    over(sink)
    assert [successor(marker(sink, part)) for part in (0, 1)] == ["child", "child"]
    assert committed(sink.name) == [{"id": 4}]


def test_taking_over_again_changes_nothing(sink: MemorySink) -> None:
    applied(sink)
    over(sink)
    over(sink)
    assert successor(marker(sink, 0)) == "child"


def test_another_successor_is_refused(sink: MemorySink) -> None:
    applied(sink)
    over(sink)
    with pytest.raises(Fenced, match="taken over by lineage child"):
        over(sink, replace(CHILD, id="second"))


def test_an_open_writer_of_the_parent_can_commit_no_more(sink: MemorySink) -> None:
    """A zombie that was paused in the middle of an apply, with rows written and not committed."""
    applied(sink)
    zombie = bound(sink).open(0)

    def meanwhile(point: str) -> None:
        if point == "apply-written":
            over(sink)

    late = PartDecision("parent", Marker(5, "undecided"), AT, reach=meanwhile)
    batch = pa.RecordBatch.from_pylist([{"id": 5}], schema=ROWS)
    with pytest.raises(SinkUnavailable, match="fenced"):
        zombie.apply(late, [batch])
    with pytest.raises(Fenced):
        bound(sink).open(0).apply(PartDecision("parent", Marker(4, "late"), AT), [batch])
    assert committed(sink.name) == [{"id": 4}]


def test_a_sink_that_has_gone_back_since_is_noticed(sink: MemorySink) -> None:
    applied(sink, Marker(3, "a3"))
    with pytest.raises(SinkWentBack):
        over(sink)


def test_a_marker_that_has_expired_is_said_and_not_made_up(
    sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        over(sink)
    assert "holds no marker of the parent" in caplog.text
    assert marker(sink, 0) is None


def test_a_sink_that_is_not_written_any_more_is_left_alone(sink: MemorySink) -> None:
    applied(sink)
    take_over(ancestry(sink), CHILD, {})
    assert marker(sink, 0) == AT


def test_without_markers_there_is_nothing_to_take_over(sink: MemorySink) -> None:
    over(sink, told=replace(ancestry(sink), delivery="at-least-once"))
    assert marker(sink, 0) is None


# --- at a start ------------------------------------------------------------------------------------


def start(folder: Path, lineage: Lineage, sink: MemorySink) -> list[str]:
    """Settle with the parent; return the lineages that the sinks were bound for."""
    asked: list[str] = []

    def bind(other: str) -> dict[str, BoundSink]:
        asked.append(other)
        return {sink.id: bound(sink, other)}

    settle_with_parent(LocalObjects(folder), lineage, {sink.id: bound(sink, lineage.id)}, bind)
    return asked


def test_a_fresh_job_asks_nobody(tmp_path: Path, sink: MemorySink) -> None:
    assert start(tmp_path, Lineage("l", "j"), sink) == []


def test_a_moved_job_takes_over_at_its_first_start_and_not_once_it_has_decided(
    tmp_path: Path, sink: MemorySink
) -> None:
    applied(sink)
    write_ancestry(LocalObjects(tmp_path), ancestry(sink))
    assert start(tmp_path, CHILD, sink) == ["parent"]
    StoredEpochLog(LocalObjects(tmp_path)).create(record(5, "child"))
    assert start(tmp_path, CHILD, sink) == []


def test_a_branch_onto_the_same_sink_is_refused_and_touches_nothing(
    tmp_path: Path, sink: MemorySink
) -> None:
    applied(sink)
    write_ancestry(LocalObjects(tmp_path), ancestry(sink))
    branch = replace(CHILD, moved=False)
    with pytest.raises(SinksOfParent, match="writes to store"):
        start(tmp_path, branch, sink)
    assert start(tmp_path, replace(branch, same_sinks=True), sink) == []
    assert marker(sink, 0) == AT


def test_a_branch_onto_another_sink_starts(tmp_path: Path, sink: MemorySink) -> None:
    write_ancestry(LocalObjects(tmp_path), ancestry(sink))
    other = MemorySink(uuid.uuid4().hex)
    assert start(tmp_path, replace(CHILD, moved=False), other) == []


def test_a_restored_checkpoint_that_has_lost_its_parents_story_does_not_start(
    tmp_path: Path, sink: MemorySink
) -> None:
    with pytest.raises(EpochLogBroken):
        start(tmp_path, CHILD, sink)
