"""Pauses between epochs, and failures in a row that are tolerated."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from sluicegate import AVAILABLE_NOW, EpochSettings
from sluicegate.protocol.errors import SchemaMismatch, SluicegateError, StageFailed
from sluicegate.spark.pace import Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the time of `pace`, which moves only by its own sleeps."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(f"{Pace.__module__}.time.monotonic", lambda: now[0])
    monkeypatch.setattr(f"{Pace.__module__}.time.sleep", sleep)
    return now


def rest(pace: Pace) -> None:
    """Wait as the query does."""
    for _ in itertools.takewhile(lambda _: not pace.rested(), itertools.count()):
        pass


def test_the_first_epoch_begins_at_once(clock: list[float]) -> None:
    rest(Pace(EpochSettings(min_pause_ms=700)))
    assert clock == [100.0]


def test_an_epoch_begins_no_sooner_than_the_pause_after_the_last(clock: list[float]) -> None:
    paced = Pace(EpochSettings(min_pause_ms=700))
    paced.ended()
    rest(paced)
    assert clock[0] == pytest.approx(100.7)


def test_a_pause_that_is_over_is_not_waited_for(clock: list[float]) -> None:
    paced = Pace(EpochSettings(min_pause_ms=700))
    paced.ended()
    clock[0] = 105.0
    rest(paced)
    assert clock == [105.0]


def test_what_is_there_is_read_without_pauses(clock: list[float]) -> None:
    paced = Pace(EpochSettings(AVAILABLE_NOW, min_pause_ms=700))
    paced.ended()
    rest(paced)
    assert clock == [100.0]


def failing(times: int, error: SluicegateError) -> tuple[list[int], Callable[[], None]]:
    """Return work that fails so often, and the numbers of its tries."""
    tries: list[int] = []

    def work() -> None:
        tries.append(len(tries))
        if len(tries) <= times:
            raise error

    return tries, work


@pytest.mark.usefixtures("clock")
def test_an_epoch_is_tried_again_as_often_as_is_tolerated() -> None:
    tries, work = failing(2, StageFailed("away"))
    Pace(EpochSettings(tolerated_failures=2)).run(7, work)
    assert len(tries) == 3


@pytest.mark.usefixtures("clock")
def test_failures_are_counted_anew_for_each_epoch() -> None:
    paced = Pace(EpochSettings(tolerated_failures=1))
    for epoch in range(3):
        paced.run(epoch, failing(1, StageFailed("away"))[1])


@pytest.mark.usefixtures("clock")
def test_an_error_that_the_driver_cannot_mend_is_not_tried_again() -> None:
    tries, work = failing(1, SchemaMismatch("no such column"))
    with pytest.raises(SchemaMismatch):
        Pace(EpochSettings(tolerated_failures=9)).run(7, work)
    assert len(tries) == 1
