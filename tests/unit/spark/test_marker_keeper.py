"""Markers of idle parts are refreshed before a store lets them expire (rule 13)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sluicegate.protocol.errors import SinkUnavailable
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import EpochRecord
from sluicegate.spark import applying
from sluicegate.spark.applying import MarkerKeeper


@dataclass
class Writer:
    """A writer that only counts its closing."""

    closed: int = 0

    def close(self) -> None:
        self.closed += 1


@dataclass
class Expiring:
    """A bound sink as far as a keeper sees it."""

    refresh_every_s: float | None
    opened: list[int] = field(default_factory=list)
    away: bool = False

    def open(self, part: int) -> Writer:
        if self.away:
            raise SinkUnavailable("away")
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
    monkeypatch.setattr(applying, "_writers", {})


def keeper(sink: Expiring) -> MarkerKeeper:
    return MarkerKeeper({"s": sink})  # type: ignore[dict-item] # as far as a keeper sees it


def test_rule_13_every_idle_part_is_refreshed_at_the_start() -> None:
    sink = Expiring(3600)
    keeper(sink).keep(RECORD)
    assert sink.opened == [0, 1]


def test_rule_13_markers_are_not_refreshed_before_they_are_due() -> None:
    sink = Expiring(3600)
    kept = keeper(sink)
    kept.keep(RECORD)
    kept.keep(RECORD)
    assert sink.opened == [0, 1]


def test_rule_13_markers_are_refreshed_again_when_they_are_due() -> None:
    sink = Expiring(0)
    kept = keeper(sink)
    kept.keep(RECORD)
    kept.keep(RECORD)
    assert sink.opened == [0, 1, 0, 1]


def test_rule_13_a_refresh_that_fails_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = Expiring(3600, away=True)
    kept = keeper(sink)
    kept.keep(RECORD)
    assert "not refreshed" in caplog.text
    sink.away = False
    kept.keep(RECORD)
    assert sink.opened == [0, 1]


def test_markers_that_last_for_ever_are_left_alone() -> None:
    sink = Expiring(None)
    keeper(sink).keep(RECORD)
    assert sink.opened == []
