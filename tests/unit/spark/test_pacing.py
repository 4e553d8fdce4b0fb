"""Pauses between epochs, tolerated consecutive failures, and a clock that is set back."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from sluicegate import AVAILABLE_NOW, EpochSettings
from sluicegate.errors import ExecutorStopping, SchemaMismatch, SluicegateError, StageFailed
from sluicegate.spark.pacing import Pace, TriggerClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the clock of `Pace`, which advances only through its own sleeps."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(f"{Pace.__module__}.time.monotonic", lambda: now[0])
    monkeypatch.setattr(f"{Pace.__module__}.time.sleep", sleep)
    return now


def wait_until_start(pace: Pace) -> None:
    """Wait like the query."""
    for _ in itertools.takewhile(lambda _: not pace.may_start(), itertools.count()):
        pass


def test_the_first_epoch_starts_at_once(clock: list[float]) -> None:
    wait_until_start(Pace(EpochSettings(min_pause_ms=700)))
    assert clock == [100.0]


def test_an_epoch_starts_after_the_pause(clock: list[float]) -> None:
    paced = Pace(EpochSettings(min_pause_ms=700))
    paced.epoch_ended()
    wait_until_start(paced)
    assert clock[0] == pytest.approx(100.7)


def test_a_pause_that_is_over_does_not_delay_the_epoch(clock: list[float]) -> None:
    paced = Pace(EpochSettings(min_pause_ms=700))
    paced.epoch_ended()
    clock[0] = 105.0
    wait_until_start(paced)
    assert clock == [105.0]


def test_available_now_has_no_pauses(clock: list[float]) -> None:
    paced = Pace(EpochSettings(AVAILABLE_NOW, min_pause_ms=700))
    paced.epoch_ended()
    wait_until_start(paced)
    assert clock == [100.0]


def failing(times: int, error: SluicegateError) -> tuple[list[int], Callable[[], None]]:
    """Return work that fails this many times, and the list of its attempts."""
    attempts: list[int] = []

    def work() -> None:
        attempts.append(len(attempts))
        if len(attempts) <= times:
            raise error

    return attempts, work


@pytest.mark.usefixtures("clock")
def test_an_epoch_is_retried_as_often_as_tolerated() -> None:
    attempts, work = failing(2, StageFailed("down"))
    Pace(EpochSettings(tolerated_failures=2)).run(7, work, lambda: True)
    assert len(attempts) == 3


@pytest.mark.usefixtures("clock")
def test_failures_are_counted_per_epoch() -> None:
    paced = Pace(EpochSettings(tolerated_failures=1))
    for epoch in range(3):
        paced.run(epoch, failing(1, StageFailed("down"))[1], lambda: True)


@pytest.mark.usefixtures("clock")
def test_an_error_that_a_retry_cannot_resolve_is_not_retried() -> None:
    attempts, work = failing(1, SchemaMismatch("no such column"))
    with pytest.raises(SchemaMismatch):
        Pace(EpochSettings(tolerated_failures=9)).run(7, work, lambda: True)
    assert len(attempts) == 1


def test_failures_of_an_executor_that_is_stopping_do_not_count_for_a_minute(
    clock: list[float],
) -> None:
    attempts, work = failing(59, ExecutorStopping("stopping"))
    Pace(EpochSettings()).run(7, work, lambda: True)
    assert len(attempts) == 60
    clock[0] = 0.0
    _, work = failing(99, ExecutorStopping("stopping"))
    with pytest.raises(ExecutorStopping):
        Pace(EpochSettings()).run(8, work, lambda: True)
    assert clock[0] == pytest.approx(60.0, abs=1.1)


@pytest.mark.parametrize("stopped_s", [0.0, 0.3])
def test_a_failed_epoch_is_not_retried_once_the_query_stops(
    clock: list[float], stopped_s: float
) -> None:
    """Also not if the stop comes during the pause before the retry."""
    attempts, work = failing(9, StageFailed("down"))
    with pytest.raises(StageFailed):
        Pace(EpochSettings(tolerated_failures=9)).run(7, work, lambda: clock[0] < 100.0 + stopped_s)
    assert len(attempts) == 1
    assert clock[0] == pytest.approx(100.0 + stopped_s, abs=0.06)


@pytest.mark.parametrize(
    ("jump_s", "interval", "ends"),
    [
        (-3600.0, "1 second", True),
        (-5.0, "1 second", False),
        (3600.0, "1 second", False),
        (-3600.0, "0 seconds", False),
        (-3600.0, AVAILABLE_NOW, False),
    ],
)
def test_only_a_clock_that_is_set_back_by_more_than_a_start_takes_ends_a_timed_query(
    monkeypatch: pytest.MonkeyPatch, jump_s: float, interval: str, *, ends: bool
) -> None:
    """Once: the next query starts with the clock as it is."""
    clocks = {"time": 1000.0, "monotonic": 10.0}
    monkeypatch.setattr(f"{Pace.__module__}.time.time", lambda: clocks["time"])
    monkeypatch.setattr(f"{Pace.__module__}.time.monotonic", lambda: clocks["monotonic"])
    trigger_clock = TriggerClock(EpochSettings(interval=interval))
    clocks["time"], clocks["monotonic"] = 1030.0, 40.0
    assert trigger_clock.failure() is None
    clocks["time"] += jump_s
    failure = trigger_clock.failure()
    assert (failure is not None) == ends
    if failure is not None:
        assert "set back by 3600 s" in failure.what
    assert trigger_clock.failure() is None
