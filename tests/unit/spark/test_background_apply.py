"""Applying in a driver: one background apply at a time, and whose writers are closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluicegate import failpoints
from sluicegate.errors import StageFailed, Stuck
from sluicegate.protocol.coordinator import apply as apply_epoch
from sluicegate.protocol.effects import ApplySteps
from sluicegate.protocol.job import Job
from sluicegate.protocol.record import DecidedEpoch
from sluicegate.settings.epoch import EpochSettings
from sluicegate.spark import apply, epoch_runner, pacing
from sluicegate.spark.apply import BackgroundApply
from sluicegate.spark.pacing import Pace
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import run, runner


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


def test_an_apply_in_the_background_is_retried_as_often_as_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the next epoch that is retried, which runs meanwhile."""
    failures = [Stuck("the sink is down"), Stuck("the sink is down")]

    def failing(job: Job, decided: DecidedEpoch) -> ApplySteps[None]:
        if failures:
            raise failures.pop()
        return apply_epoch(job, decided)

    monkeypatch.setattr(epoch_runner, "apply", failing)
    monkeypatch.setattr(pacing, "_RETRY_PAUSE_S", 0.0)
    pace = Pace(EpochSettings(tolerated_failures=2))
    store = LocalObjectStore(tmp_path)
    store.create("offsets/0", b"v1\n{}\n{}")
    running = runner(
        store, overlap=True, retry=lambda epoch, work: pace.run(epoch, work, lambda: True)
    )
    running.run(cast("Any", None), 0)
    assert running.background.wait() == 0
    assert not failures
    running.background.close()


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
    assert isinstance(background.failure(), Stuck), "the query stops, whoever learns of it first"


def test_a_query_that_ends_closes_only_its_own_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers of the process's other queries would fence each other and open again."""
    closed: list[str] = []
    lineages = ("ours", "other")
    writers = {(n, "s", 0): SimpleNamespace(close=partial(closed.append, n)) for n in lineages}
    monkeypatch.setattr(apply, "_writers", writers)
    apply.close_writers("ours")
    assert closed == ["ours"]
    assert list(writers) == [("other", "s", 0)]
