"""Markers of idle parts are refreshed before a sink lets them expire (rule 13)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sluicegate.errors import SinkUnavailable
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import EpochRecord
from sluicegate.spark import apply
from sluicegate.spark.apply import MarkerRefresher


@dataclass
class Writer:
    """A writer that only counts how often it is closed."""

    closed: int = 0

    def close(self) -> None:
        self.closed += 1


@dataclass
class ExpiringSink:
    """The part of a bound sink that the refresher uses."""

    refresh_every_s: float | None
    opened: list[int] = field(default_factory=list)
    down: bool = False

    def open(self, part: int) -> Writer:
        if self.down:
            raise SinkUnavailable("down")
        self.opened.append(part)
        return Writer()


RECORD = EpochRecord(
    lineage="l",
    job="j",
    epoch=9,
    attempt="a",
    delivery="exactly-once",
    offsets_digest="d",
    sinks={},
    prev={"s": {0: Marker(3, "x"), 1: Marker(4, "y")}},
)
"""An epoch without rows, of a sink whose two parts have been idle since epochs 3 and 4."""


@pytest.fixture(autouse=True)
def _no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "_writers", {})


def refresher(sink: ExpiringSink) -> MarkerRefresher:
    return MarkerRefresher({"s": sink})  # type: ignore[dict-item] # only what it uses


def test_rule_13_every_idle_part_is_refreshed_at_the_start() -> None:
    sink = ExpiringSink(3600)
    refresher(sink).refresh(RECORD)
    assert sink.opened == [0, 1]


def test_rule_13_markers_are_not_refreshed_before_they_are_due() -> None:
    sink = ExpiringSink(3600)
    refreshing = refresher(sink)
    refreshing.refresh(RECORD)
    refreshing.refresh(RECORD)
    assert sink.opened == [0, 1]


def test_rule_13_markers_are_refreshed_again_when_they_are_due() -> None:
    sink = ExpiringSink(0)
    refreshing = refresher(sink)
    refreshing.refresh(RECORD)
    refreshing.refresh(RECORD)
    assert sink.opened == [0, 1, 0, 1]


def test_rule_13_a_failed_refresh_is_logged_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = ExpiringSink(3600, down=True)
    refreshing = refresher(sink)
    refreshing.refresh(RECORD)
    assert "not refreshed" in caplog.text
    sink.down = False
    refreshing.refresh(RECORD)
    assert sink.opened == [0, 1]


def test_markers_that_never_expire_are_not_refreshed() -> None:
    sink = ExpiringSink(None)
    refresher(sink).refresh(RECORD)
    assert sink.opened == []
