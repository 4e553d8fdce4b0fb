"""When a query waits for its trigger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate.spark import catch_up
from sluicegate.spark.catch_up import CatchUp
from sluicegate.spark.ports import EpochTimings
from sluicegate.spark.query_execution import KafkaSource

SKIPPED: list[str] = []


class Clock:
    """The clock of one query."""

    @staticmethod
    def of(query: str) -> Any:  # noqa: ANN401 - Java
        return SimpleNamespace(skipNextWait=lambda: SKIPPED.append(query))


def skipped_after(monkeypatch: pytest.MonkeyPatch, ends: list[int], *, has_class: bool) -> int:
    """Return how many waits two epochs skip that leave records of one partition."""
    SKIPPED.clear()
    monkeypatch.setattr(catch_up, "has_class", lambda *_: has_class)
    java = SimpleNamespace(sluicegate=SimpleNamespace(spark=SimpleNamespace(CatchUpClock=Clock)))
    found: Any = CatchUp(SimpleNamespace(_jvm=SimpleNamespace(dev=java)))  # type: ignore[arg-type]
    timings = EpochTimings()
    timings.sources = tuple(
        KafkaSource(n, None, {"t": {"0": end}}, {"t": {"0": 9}}) for n, end in enumerate(ends)
    )
    for _ in range(2):
        found.planned(SimpleNamespace(query="query"), timings.lag)
    return len(SKIPPED)


@pytest.mark.parametrize("ends", [[8], [9, 8]])
def test_each_epoch_that_leaves_records_skips_a_wait(
    monkeypatch: pytest.MonkeyPatch, ends: list[int]
) -> None:
    assert skipped_after(monkeypatch, ends, has_class=True) == 2


@pytest.mark.parametrize("ends", [[], [9], [9, 9]])
def test_an_epoch_that_leaves_none_waits(monkeypatch: pytest.MonkeyPatch, ends: list[int]) -> None:
    assert skipped_after(monkeypatch, ends, has_class=True) == 0


def test_a_session_without_our_classes_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert skipped_after(monkeypatch, [8], has_class=False) == 0
