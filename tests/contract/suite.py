"""The contract suite of sinks: `SinkContract`, and `LogContract` for sinks that are logs.

To test a custom sink, derive a class from one of them and define the fixture `kit`. Faults of a server
are tested in tests/integration and tests/robustness.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple, Protocol

import pyarrow as pa
import pytest

from sluicegate.errors import Fenced, MarkerMismatch, SinkRegressed, SinkUnavailable
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.sinks.contract import BoundSink, PartDecision, PartWriter

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("data", pa.binary())])
BEFORE_COMMIT = ("apply-begun", "apply-written", "apply-flushed", "before-commit")
POINTS = (*BEFORE_COMMIT, "after-commit")


class Row(NamedTuple):
    """One row of the suite's schema."""

    id: int
    name: str | None = None
    data: bytes | None = None


class SinkKit(Protocol):
    """Access to one sink, with a new, empty target for each test."""

    lineage: str
    secret: str
    """A password in the sink's settings that no repr may show; empty if it has none."""

    def bind(self, parts: int = 1) -> BoundSink:
        """Return the bound sink, always of the same sink and target."""

    def stage(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows as Spark stages them with the bound sink's expressions."""

    def read(self, *, stable: bool = True) -> list[Row]:
        """Return what a reader of committed rows sees.

        Args:
            stable: first wait until all committed rows are visible.
        """

    def borderline(self) -> list[Row]:
        """Return rows of which the sink accepts some and refuses some."""


class Crash(Exception):
    """Raised by a failpoint."""


class Case:
    """A kit whose writers are closed after the test."""

    def __init__(self, kit: SinkKit) -> None:
        self.kit = kit
        self._open: list[PartWriter] = []

    def writer(self, part: int = 0, parts: int = 1) -> PartWriter:
        """Open a writer as another process does: from a pickled sink."""
        bound: BoundSink = pickle.loads(pickle.dumps(self.kit.bind(parts)))  # noqa: S301
        self._open.append(bound.open(part))
        return self._open[-1]

    def rows(self, ids: range) -> list[pa.RecordBatch]:
        return [self.kit.stage([Row(id_, f"name {id_}") for id_ in ids])]

    def decided(
        self, epoch: int, reach: Callable[[str], None] = lambda _point: None
    ) -> PartDecision:
        """Return the decision of an epoch in a chain without gaps."""
        return PartDecision(self.kit.lineage, marker(epoch), marker(epoch - 1), reach=reach)

    def ids(self, *, stable: bool = True) -> list[int]:
        """Return the visible ids, sorted, with repeats."""
        return sorted(row.id for row in self.kit.read(stable=stable))

    def close(self) -> None:
        for writer in self._open:
            writer.close()


def marker(epoch: int) -> Marker:
    return Marker(epoch, f"attempt-{epoch}") if epoch >= 0 else NO_MARKER


def at(point: str, do: Callable[[], None]) -> Callable[[str], None]:
    """Return a failpoint hook that acts at one point."""

    def reach(reached: str) -> None:
        if reached == point:
            do()

    return reach


def crash() -> None:
    raise Crash


@contextmanager
def crashing() -> Iterator[None]:
    """Expect the crash, or SinkUnavailable if the sink translates it."""
    with pytest.raises((Crash, SinkUnavailable)):
        yield


def apply_until_done(case: Case, decision: PartDecision, batches: list[pa.RecordBatch]) -> None:
    """Apply as the coordinator does: with a new writer while the outcome is in doubt."""
    for _ in range(20):
        try:
            case.writer().apply(decision, batches)
        except SinkUnavailable:
            continue
        return
    pytest.fail("still in doubt after 20 attempts")


class SinkContract:
    """Claims about any sink."""

    @pytest.fixture
    def case(self, kit: SinkKit) -> Iterator[Case]:
        case = Case(kit)
        yield case
        case.close()

    # --- exactly once -----------------------------------------------------------------------

    def test_rows_applied_once_are_visible_once(self, case: Case) -> None:
        receipt = case.writer().apply(case.decided(0), case.rows(range(10)))
        assert (receipt.verdict, receipt.rows) == (Verdict.APPLY, 10)
        assert case.ids() == list(range(10))

    def test_the_receipt_times_every_step_in_order(self, case: Case) -> None:
        steps = case.writer().apply(case.decided(0), case.rows(range(10))).steps
        assert [step.name for step in steps] == ["begin", "write", "flush", "commit"]
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(steps))

    def test_a_second_apply_by_the_same_writer_skips(self, case: Case) -> None:
        writer = case.writer()
        writer.apply(case.decided(0), case.rows(range(10)))
        assert writer.apply(case.decided(0), case.rows(range(10))).verdict is Verdict.SKIP
        assert case.ids() == list(range(10))

    def test_a_second_apply_by_a_new_writer_skips(self, case: Case) -> None:
        case.writer().apply(case.decided(0), case.rows(range(10)))
        receipt = case.writer().apply(case.decided(0), case.rows(range(10)))
        assert (receipt.verdict, receipt.rows) == (Verdict.SKIP, 0)
        assert case.ids() == list(range(10))

    def test_one_writer_applies_consecutive_epochs(self, case: Case) -> None:
        writer = case.writer()
        for epoch in range(5):
            writer.apply(case.decided(epoch), case.rows(range(epoch * 3, epoch * 3 + 3)))
        assert case.ids() == list(range(15))
        assert writer.marker() == marker(4)

    def test_an_epoch_may_have_many_batches(self, case: Case) -> None:
        batches = [case.rows(range(n, n + 1))[0] for n in range(50)]
        case.writer().apply(case.decided(0), iter(batches))
        assert case.ids() == list(range(50))

    # --- all or nothing ---------------------------------------------------------------------

    @pytest.mark.parametrize("point", BEFORE_COMMIT)
    def test_nothing_is_visible_before_the_commit(self, case: Case, point: str) -> None:
        seen: list[int] = []
        hook = at(point, lambda: seen.extend(case.ids(stable=False)))
        case.writer().apply(case.decided(0, hook), case.rows(range(10)))
        assert not seen

    @pytest.mark.parametrize("point", BEFORE_COMMIT)
    def test_a_crash_before_the_commit_leaves_nothing(self, case: Case, point: str) -> None:
        with crashing():
            case.writer().apply(case.decided(0, at(point, crash)), case.rows(range(10)))
        assert case.writer().marker() in {None, NO_MARKER}
        assert not case.ids()

    def test_a_crash_after_the_commit_leaves_everything(self, case: Case) -> None:
        with crashing():
            case.writer().apply(case.decided(0, at("after-commit", crash)), case.rows(range(10)))
        assert case.writer().marker() == marker(0)
        assert case.ids() == list(range(10))

    @pytest.mark.parametrize("point", POINTS)
    def test_a_new_writer_leaves_one_copy_after_a_crash(self, case: Case, point: str) -> None:
        with crashing():
            case.writer().apply(case.decided(0, at(point, crash)), case.rows(range(10)))
        case.writer().apply(case.decided(0), case.rows(range(10)))
        assert case.ids() == list(range(10))

    def test_an_error_from_the_rows_leaves_nothing(self, case: Case) -> None:
        def failing() -> Iterator[pa.RecordBatch]:
            yield from case.rows(range(10))
            raise Crash

        with crashing():
            case.writer().apply(case.decided(0), failing())
        assert not case.ids()
        case.writer().apply(case.decided(0), case.rows(range(10)))
        assert case.ids() == list(range(10))

    def test_closing_a_writer_between_epochs_loses_nothing(self, case: Case) -> None:
        first = case.writer()
        first.apply(case.decided(0), case.rows(range(3)))
        first.close()
        case.writer().apply(case.decided(1), case.rows(range(3, 6)))
        assert case.ids() == list(range(6))

    # --- the chain of markers ---------------------------------------------------------------

    def test_a_new_lineage_has_no_marker(self, case: Case) -> None:
        assert case.writer().marker() in {None, NO_MARKER}

    @pytest.mark.parametrize("point", BEFORE_COMMIT)
    def test_marker_returns_only_committed_markers(self, case: Case, point: str) -> None:
        writer = case.writer()
        writer.apply(case.decided(0), case.rows(range(3)))
        seen: list[Marker | None] = []
        hook = at(point, lambda: seen.append(writer.marker()))
        writer.apply(case.decided(1, hook), case.rows(range(3, 6)))
        assert (seen, writer.marker()) == ([marker(0)], marker(1))

    def test_a_marker_newer_than_the_record_fences(self, case: Case) -> None:
        writer = case.writer()
        for epoch in range(3):
            writer.apply(case.decided(epoch), case.rows(range(epoch, epoch + 1)))
        with pytest.raises(Fenced):
            case.writer().apply(case.decided(1), case.rows(range(1, 2)))
        assert case.ids() == [0, 1, 2]

    def test_a_marker_older_than_expected_means_a_regressed_sink(self, case: Case) -> None:
        case.writer().apply(case.decided(0), case.rows(range(1)))
        with pytest.raises(SinkRegressed):
            case.writer().apply(case.decided(5), case.rows(range(5, 6)))
        assert case.ids() == [0]

    def test_a_missing_marker_is_a_mismatch(self, case: Case) -> None:
        with pytest.raises(MarkerMismatch):
            case.writer().apply(case.decided(5), case.rows(range(5, 6)))
        assert not case.ids()

    def test_a_marker_of_another_attempt_is_a_mismatch(self, case: Case) -> None:
        case.writer().apply(case.decided(0), case.rows(range(1)))
        foreign = PartDecision(case.kit.lineage, Marker(1, "mine"), Marker(0, "not that one"))
        with pytest.raises(MarkerMismatch):
            case.writer().apply(foreign, case.rows(range(5, 6)))
        assert case.ids() == [0]

    def test_a_writer_continues_after_another_writer(self, case: Case) -> None:
        """A part moves to another long-lived executor and back."""
        first = case.writer()
        first.apply(case.decided(0), case.rows(range(1)))
        case.writer().apply(case.decided(1), case.rows(range(1, 2)))
        try:
            first.apply(case.decided(2), case.rows(range(2, 3)))
        except SinkUnavailable:
            case.writer().apply(case.decided(2), case.rows(range(2, 3)))
        assert case.ids() == [0, 1, 2]

    def test_an_apply_without_rows_moves_the_marker(self, case: Case) -> None:
        """`epochs discard` does this (rule 14); parts without chunks are never applied."""
        writer = case.writer()
        assert writer.apply(case.decided(0), []).verdict is Verdict.APPLY
        writer.apply(case.decided(1), [case.kit.stage([])])
        assert writer.marker() == marker(1)
        assert not case.ids()

    # --- many writers -----------------------------------------------------------------------

    def test_concurrent_writers_of_one_part_leave_one_copy(self, case: Case) -> None:
        batches, decision = case.rows(range(200)), case.decided(0)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                apply_until_done(case, decision, batches)
            except BaseException as error:  # noqa: BLE001 - a thread's error must reach the test
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert case.ids() == list(range(200))

    def test_parts_are_independent(self, case: Case) -> None:
        left, right = case.writer(0, parts=2), case.writer(1, parts=2)
        left.apply(case.decided(0), case.rows(range(3)))
        assert (left.marker(), right.marker() in {None, NO_MARKER}) == (marker(0), True)
        right.apply(case.decided(0), case.rows(range(3, 6)))
        left.apply(case.decided(1), case.rows(range(6, 9)))
        assert case.ids() == list(range(9))

    # --- rows -------------------------------------------------------------------------------

    def test_values_are_preserved(self, case: Case) -> None:
        rows = [
            Row(1, "plain", b"bytes"),
            Row(2, "žluťoučký 🐎 日本", b"\x00\xff\xfe\n\t"),
            Row(3, "", b""),
            Row(4, "'quoted\" \\ `back`", None),
            Row(5, None, b"\x00"),
            Row(6, None, None),
        ]
        case.writer().apply(case.decided(0), [case.kit.stage(rows)])
        assert sorted(case.kit.read()) == rows

    def test_slices_of_batches_are_written_correctly(self, case: Case) -> None:
        batch = case.kit.stage([Row(n, f"n{n}" if n % 3 else None) for n in range(100)])
        case.writer().apply(case.decided(0), [batch.slice(10, 20), batch.slice(50)])
        assert case.ids() == [*range(10, 30), *range(50, 100)]

    def test_rows_that_refusals_accepts_can_be_written(self, case: Case) -> None:
        staged = case.kit.stage(case.kit.borderline())
        reasons = case.kit.bind().refusals(staged)
        assert reasons is not None
        assert 0 < reasons.null_count < len(reasons)
        case.writer().apply(case.decided(0), [staged.filter(reasons.is_null())])
        assert len(case.ids()) == reasons.null_count

    def test_rows_that_fit_have_no_refusals(self, case: Case) -> None:
        bound = case.kit.bind()
        assert bound.refusals(case.kit.stage([Row(1, "a", b"b")])) is None
        assert bound.refusals(case.kit.stage([])) is None

    # --- pickling and repr ------------------------------------------------------------------

    def test_a_bound_sink_can_be_pickled(self, case: Case) -> None:
        bound = case.kit.bind()
        copy = pickle.loads(pickle.dumps(bound))  # noqa: S301
        assert (copy.id, copy.binding) == (bound.id, bound.binding)
        assert list(copy.expressions) == list(bound.expressions)

    def test_the_binding_is_the_same_at_every_start(self, case: Case) -> None:
        assert case.kit.bind().binding == case.kit.bind().binding

    def test_one_part_has_no_part_expression(self, case: Case) -> None:
        assert case.kit.bind().part_expression is None
        assert case.kit.bind(parts=2).part_expression is not None

    def test_no_repr_shows_the_password(self, case: Case) -> None:
        assert not case.kit.secret or case.kit.secret not in repr(case.kit.bind())


class LogContract(SinkContract):
    """Claims about sinks that keep all records in order, and whose writers fence earlier ones when opened."""

    def test_rows_of_a_part_stay_in_order(self, case: Case) -> None:
        writer = case.writer()
        for epoch in range(3):
            batches = [case.rows(range(n, n + 500))[0] for n in (epoch * 1000, epoch * 1000 + 500)]
            writer.apply(case.decided(epoch), batches)
        assert [row.id for row in case.kit.read()] == list(range(3000))

    @pytest.mark.parametrize("point", BEFORE_COMMIT)
    def test_a_later_writer_fences_the_earlier_one(self, case: Case, point: str) -> None:
        seen: list[PartWriter] = []
        hook = at(point, lambda: seen.append(case.writer()))
        with pytest.raises(SinkUnavailable):
            case.writer().apply(case.decided(0, hook), case.rows(range(10)))
        assert not case.ids()

    def test_a_writer_fenced_by_a_successful_one_does_not_apply_again(self, case: Case) -> None:
        def other() -> None:
            case.writer().apply(case.decided(0), case.rows(range(10)))

        decision = case.decided(0, at("before-commit", other))
        try:
            assert case.writer().apply(decision, case.rows(range(10))).verdict is Verdict.SKIP
        except SinkUnavailable:
            assert case.writer().apply(case.decided(0), []).verdict is Verdict.SKIP
        assert case.ids() == list(range(10))

    def test_without_markers_every_apply_writes(self, case: Case) -> None:
        decision = PartDecision(case.kit.lineage, marker(0), marker(-1), markers=False)
        writer = case.writer()
        for _ in range(2):
            assert writer.apply(decision, case.rows(range(3))).verdict is Verdict.APPLY
        assert case.ids() == [0, 0, 1, 1, 2, 2]
        assert writer.marker() is None
