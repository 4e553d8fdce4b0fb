"""Applying in a driver: one background apply at a time, and whose writers are closed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from sluicegate import failpoints
from sluicegate.errors import SinkUnavailable, StageFailed, Stuck
from sluicegate.protocol.job import Job
from sluicegate.settings.epoch import AT_MOST_ONCE, EXACTLY_ONCE, EpochSettings
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.memory import MemoryPartWriter, committed
from sluicegate.spark import apply, pacing
from sluicegate.spark.apply import BackgroundApply, close_writers
from sluicegate.spark.pacing import Pace
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import ROWS, run, runner


@pytest.fixture
def background() -> Iterator[BackgroundApply]:
    """Return one, and end its thread after the test."""
    created = BackgroundApply()
    yield created
    created.close()


def stuck() -> int:
    raise Stuck("the sink is down")


def test_nothing_was_applied_at_first(background: BackgroundApply) -> None:
    assert background.wait() is None


def test_start_returns_while_the_work_runs(background: BackgroundApply) -> None:
    released = threading.Event()

    def work() -> int:
        assert released.wait(10)
        return 3

    background.start(work)
    released.set()
    assert background.wait() == 3


def test_wait_returns_the_last_epoch_again(background: BackgroundApply) -> None:
    background.start(lambda: 3)
    background.wait()
    assert background.wait() == 3


def test_an_error_that_is_none_of_ours_ends_the_query_as_one_of_spark_does(
    background: BackgroundApply,
) -> None:
    background.start(lambda: 1 // 0)
    with pytest.raises(StageFailed, match="ZeroDivisionError"):
        background.wait()


@pytest.mark.parametrize(
    ("delivery", "failures"), [(EXACTLY_ONCE, Job.apply_tries), (AT_MOST_ONCE, 1)]
)
def test_a_tolerated_failure_in_the_background_repeats_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str, failures: int
) -> None:
    """The sink commits, and the driver does not learn of it: all its tries fail."""
    pace, left, write = (
        Pace(EpochSettings(tolerated_failures=1)),
        [failures],
        MemoryPartWriter.apply,
    )

    def without_reply(
        writer: MemoryPartWriter, decision: PartDecision, rows: Iterable[pa.RecordBatch]
    ) -> Receipt:
        receipt = write(writer, decision, rows)
        if left[0]:
            left[0] -= 1
            raise SinkUnavailable("the reply was lost")
        return receipt

    monkeypatch.setattr(MemoryPartWriter, "apply", without_reply)
    monkeypatch.setattr(pacing, "_RETRY_PAUSE_S", 0.0)
    store = LocalObjectStore(tmp_path)
    running = runner(
        store,
        overlap=True,
        delivery=delivery,
        retry=lambda epoch, attempt: pace.run(epoch, attempt, lambda: True),
    )
    for epoch in range(2):
        store.create(f"offsets/{epoch}", b"v1\n{}\n{}")
        running.run(cast("Any", None), epoch)
    assert running.background.wait() == 1
    assert left == [0]
    assert len(committed(tmp_path.name)) == 2 * ROWS.num_rows
    running.background.close()
    close_writers(tmp_path.name)


def test_an_error_of_a_sink_in_a_recovery_says_what_it_means_for_the_data(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    run(store, overlap=True)
    failpoints.arm("before-apply=raise")
    try:
        with pytest.raises(StageFailed, match="FailpointHit"):
            runner(store, overlap=True).apply_only()
    finally:
        failpoints.arm("")


def test_start_waits_for_the_previous_work(background: BackgroundApply) -> None:
    order: list[int] = []

    def work(epoch: int) -> int:
        order.append(epoch)
        return epoch

    for epoch in (1, 2, 3):
        background.start(partial(work, epoch))
    background.wait()
    assert order == [1, 2, 3]


def test_an_error_is_raised_by_one_wait(background: BackgroundApply) -> None:
    background.start(stuck)
    with pytest.raises(Stuck):
        background.wait()
    assert background.wait() is None


def test_a_failure_is_reported_before_and_after_somebody_waits_for_it(
    background: BackgroundApply,
) -> None:
    done = threading.Event()

    def work() -> int:
        done.set()
        return stuck()

    background.start(work)
    assert done.wait(10)
    for _ in range(1000):
        if background.failure() is not None:
            break
        threading.Event().wait(0.01)
    assert isinstance(background.failure(), Stuck)
    with pytest.raises(Stuck):
        background.wait()
    assert isinstance(background.failure(), Stuck), "the query stops, although somebody has waited"


def test_a_query_that_ends_closes_only_its_own_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers of the process's other queries would fence each other and open again."""
    closed: list[str] = []
    lineages = ("ours", "other")
    writers = {(n, "s", 0): SimpleNamespace(close=partial(closed.append, n)) for n in lineages}
    monkeypatch.setattr(apply, "_writers", writers)
    apply.close_writers("ours")
    assert closed == ["ours"]
    assert list(writers) == [("other", "s", 0)]
