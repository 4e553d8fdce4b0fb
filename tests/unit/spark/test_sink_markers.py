"""Markers exist before a decision needs them: when they are read, refreshed and seeded (rule 11)."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from sluicegate.errors import Fenced, MarkerMismatch, SinkRegressed, SinkUnavailable
from sluicegate.protocol.markers import NO_MARKER, Marker, is_seed_of
from sluicegate.protocol.record import Chunk, EpochRecord
from sluicegate.sinks.contract import PartDecision, PartWriter
from sluicegate.sinks.memory import BoundMemory, MemoryPartWriter, MemorySink
from sluicegate.spark import apply
from sluicegate.spark.apply import SinkMarkers

PART_0, PART_1 = Marker(3, "x"), Marker(4, "y")


@dataclass
class ExpiringSink:
    """A sink in memory whose markers expire, and that counts how often a part is opened."""

    refresh_every_s: float | None = 3600
    opened: list[int] = field(default_factory=list)
    down: bool = False
    memory: BoundMemory = field(
        default_factory=lambda: MemorySink(uuid.uuid4().hex, parts=2).bind(
            pa.schema([]), lineage="l", apply_timeout_s=1
        )
    )

    def open(self, part: int) -> PartWriter:
        if self.down:
            raise SinkUnavailable("down")
        self.opened.append(part)
        return self.memory.open(part)

    def holds(self, part: int, marker: Marker) -> None:
        """Move the marker of a part as an apply does."""
        writer = self.memory.open(part)
        writer.apply(PartDecision("l", marker, writer.marker() or NO_MARKER), ())

    def markers(self) -> list[Marker | None]:
        return [self.memory.open(part).marker() for part in (0, 1)]


def record(*parts: int, **changes: object) -> EpochRecord:
    """Return an epoch that writes these parts of a sink, idle since epochs 3 and 4."""
    chunks = tuple(Chunk("s", part, (0, 0), 1, 1, "") for part in parts)
    made = EpochRecord(
        lineage="l",
        job="j",
        epoch=9,
        attempt="a",
        delivery="exactly-once",
        offsets_digest="d",
        sinks={"s": ExpiringSink().memory.binding},
        prev={"s": {0: PART_0, 1: PART_1}},
        chunks=chunks,
    )
    return replace(made, **changes)  # type: ignore[arg-type] # any field


@pytest.fixture(autouse=True)
def _no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "_writers", {})


@pytest.fixture
def sink() -> ExpiringSink:
    """Return a sink with the markers that `record` expects."""
    sink = ExpiringSink()
    sink.holds(0, PART_0)
    sink.holds(1, PART_1)
    return sink


def markers_of(sink: ExpiringSink) -> SinkMarkers:
    return SinkMarkers({"s": sink})  # type: ignore[dict-item] # only what it uses


def seed(
    markers: SinkMarkers,
    epoch: EpochRecord,
    *,
    may_expire: bool = True,
    may_regress: bool = False,
    durable: bool = False,
) -> dict[int, Marker]:
    return markers.seed(epoch, "s", may_expire=may_expire, may_regress=may_regress, durable=durable)


def test_a_marker_that_is_there_is_named_and_not_moved(sink: ExpiringSink) -> None:
    assert seed(markers_of(sink), record(0, 1)) == {0: PART_0, 1: PART_1}
    assert sink.markers() == [PART_0, PART_1]


def test_only_the_parts_of_the_epoch_are_opened(sink: ExpiringSink) -> None:
    seed(markers_of(sink), record(1))
    assert sink.opened == [1]


def test_a_marker_that_expired_is_seeded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    sink = ExpiringSink()
    seeds = seed(markers_of(sink), record(0))
    assert is_seed_of(seeds[0], PART_0)
    assert sink.markers() == [seeds[0], None]
    assert "every sink has epoch 8" in caplog.text


def test_a_marker_that_expired_and_is_durable_is_named_and_not_seeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = ExpiringSink()

    class Recovering:
        def marker(self, *, durable: bool = False) -> Marker | None:
            return PART_0 if durable else None

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(sink, "open", lambda _part: Recovering())
    assert seed(markers_of(sink), record(0), durable=True) == {0: PART_0}


def test_a_marker_that_cannot_have_expired_is_not_seeded() -> None:
    sink = ExpiringSink()
    with pytest.raises(MarkerMismatch, match=r"sink s, part 0, store .* absent"):
        seed(markers_of(sink), record(0), may_expire=False)
    assert sink.markers() == [None, None]


@pytest.mark.parametrize("refresh_every_s", [3600, None])
def test_a_part_is_seeded_before_its_first_epoch(refresh_every_s: float | None) -> None:
    sink = ExpiringSink(refresh_every_s)
    seeds = seed(markers_of(sink), record(0, prev={}), may_expire=False)
    assert is_seed_of(seeds[0], NO_MARKER)
    assert sink.markers() == [seeds[0], None]


def test_the_seed_of_another_attempt_is_kept() -> None:
    """That attempt may be decided next, and its record names the seed."""
    sink = ExpiringSink()
    first = seed(markers_of(sink), record(0))
    assert seed(markers_of(sink), record(0, attempt="b")) == first
    assert sink.markers()[0] == first[0]


def test_a_retry_in_the_same_process_names_the_seed_of_the_attempt_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise its record expects the marker that the seed has replaced, and is never applied."""
    sink = ExpiringSink()
    markers = markers_of(sink)
    first = seed(markers, record(0))
    assert seed(markers, record(0, attempt="b")) == first
    sink.holds(0, Marker(9, "b"))
    later = record(0, epoch=10, prev={"s": {0: Marker(9, "b")}})
    monkeypatch.setattr(sink, "down", True)
    assert seed(markers, later) == {}, "the epoch has moved the marker, which is known then"


def test_a_marker_that_could_not_be_read_is_read_by_the_next_attempt(
    sink: ExpiringSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers = markers_of(sink)

    def no_answer(_self: object, *, durable: bool = False) -> Marker | None:
        raise SinkUnavailable(f"no answer, durable: {durable}")

    with monkeypatch.context() as silent:
        silent.setattr(MemoryPartWriter, "marker", no_answer)
        with pytest.raises(SinkUnavailable):
            seed(markers, record(0))
    assert seed(markers, record(0)) == {0: PART_0}


def test_another_marker_is_an_error_each_time_it_is_read(sink: ExpiringSink) -> None:
    sink.holds(0, Marker(10, "z"))
    markers = markers_of(sink)
    for _ in range(2):
        with pytest.raises(Fenced):
            seed(markers, record(0))
    assert sink.markers()[0] == Marker(10, "z")


def test_an_older_marker_is_left_to_an_apply_that_can_bring_the_sink_forward() -> None:
    sink = ExpiringSink()
    sink.holds(0, Marker(2, "w"))
    with pytest.raises(SinkRegressed):
        seed(markers_of(sink), record(0))
    assert seed(markers_of(sink), record(0), may_regress=True) == {0: PART_0}


def test_a_marker_that_moves_while_it_is_seeded_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = ExpiringSink()

    class Raced:
        def marker(self) -> None:
            """The marker as it was before another writer seeded it."""

        def apply(self, *_: object) -> None:
            raise MarkerMismatch("the marker is a seed")

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(sink, "open", lambda _part: Raced())
    with pytest.raises(SinkUnavailable, match="moved the marker while it was seeded"):
        seed(markers_of(sink), record(0))


def test_rule_13_a_marker_that_cannot_be_due_is_not_read_again(sink: ExpiringSink) -> None:
    markers = markers_of(sink)
    seed(markers, record(0))
    assert seed(markers, record(0)) == {}
    assert sink.opened == [0]


def test_rule_13_a_job_that_idled_for_long_reads_its_markers_again(
    sink: ExpiringSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured by the wall clock: the monotonic one stops while the machine sleeps."""
    markers, now = markers_of(sink), time.time()
    seed(markers, record(0))
    monkeypatch.setattr(time, "time", lambda: now + 3700)
    assert seed(markers, record(0)) == {0: PART_0}
    assert sink.opened == [0, 0]


def test_a_marker_that_never_expires_is_read_once_in_a_process(sink: ExpiringSink) -> None:
    """The process before may have had another database behind the same name."""
    sink.refresh_every_s = None
    markers = markers_of(sink)
    assert seed(markers, record(0)) == {0: PART_0}
    assert seed(markers, record(0)) == {}
    assert sink.opened == [0]


def test_rule_13_a_decided_epoch_refreshes_its_markers_while_another_sink_is_stuck(
    sink: ExpiringSink,
) -> None:
    markers_of(sink).refresh(record(0, 1))
    assert sink.opened == [0, 1]


def test_rule_13_a_failed_refresh_is_logged_and_left_to_the_apply(
    sink: ExpiringSink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.down = True
    markers_of(sink).refresh(record(0))
    assert "not refreshed" in caplog.text


def test_without_markers_nothing_is_refreshed(sink: ExpiringSink) -> None:
    markers_of(sink).refresh(record(0, delivery="at-least-once"))
    assert sink.opened == []
