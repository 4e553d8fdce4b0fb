"""Attempts at an epoch that were thrown away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from sluicegate.console.attempts import decided_after_starts, thrown_away
from sluicegate.console.charts import ribbon
from sluicegate.console.ladder import ladder
from sluicegate.storage.driver_start import DriverStart, write_start
from tests.unit.console.browser import finished, request
from tests.unit.console.builders import epoch, job, report


@pytest.mark.parametrize(
    ("started_ms", "lost"),
    [
        ([50], {}),  # the driver that planned it
        ([50, 150], {7: 1}),
        ([50, 150, 160], {7: 2}),
        ([50, 250], {}),  # it was decided
        ([], {}),
    ],
)
def test_each_start_between_plan_and_decision_threw_an_attempt_away(
    started_ms: list[int], lost: dict[int, int]
) -> None:
    assert thrown_away([epoch(7, at_ms=200)], {7: 100}, started_ms) == lost


def test_each_start_since_the_plan_of_an_undecided_epoch_threw_an_attempt_away() -> None:
    assert thrown_away([], {7: 100}, [50, 150, 160]) == {7: 2}


def test_nothing_is_said_about_an_epoch_whose_plan_has_no_time() -> None:
    assert thrown_away([epoch(7, at_ms=200)], {7: 0}, [150]) == {}


def test_attempts_that_failed_in_the_driver_that_decided_are_added() -> None:
    of = epoch(7, at_ms=200, report=replace(report(7), thrown_away=2))
    assert thrown_away([of], {}, []) == {7: 2}
    assert thrown_away([of], {7: 100}, [150]) == {7: 3}


def test_only_the_first_epoch_after_a_start_can_have_lost_an_attempt() -> None:
    epochs = [epoch(number, at_ms=100 * number) for number in range(1, 5)]
    assert decided_after_starts(epochs, [50, 60, 250, 900]) == [1, 3]


def test_the_bar_of_an_epoch_says_how_many_attempts_were_thrown_away() -> None:
    whole = epoch(1, report=report(1, ("stage", "", None, 30.0)))
    bars = ribbon([epoch(0), whole, epoch(2)], {0: 1, 1: 2})
    assert [bar.thrown_away for bar in bars] == [1, 2, 0]
    assert bars[0].label.endswith("no report, 1 attempt thrown away")
    assert bars[1].label.endswith("30 ms, 2 attempts thrown away")


def test_the_ladder_says_how_many_attempts_at_the_planned_epoch_were_thrown_away() -> None:
    facts = replace(job(epoch(0), planned=1, committed=0), thrown_away={1: 2})
    assert ladder(facts)[0].note.endswith("not decided; 2 attempts at it thrown away")


def test_pages_tell_an_epoch_that_was_staged_again(tmp_path: Path, console: ASGIApp) -> None:
    store = finished(tmp_path, "again", 2)
    write_start(store.url, DriverStart(5, {}))
    planned = b'v1\n{"batchTimestampMs": 4}\n{}'
    store.put("offsets/0", [planned])
    store.put("offsets/1", [planned.replace(b"4", b"6")])
    assert "1 attempt thrown away" in request(console, "/job/again").body
    assert (
        "1 earlier attempt ended before the epoch was decided"
        in request(console, "/job/again/epoch/0").text
    )
    assert "Thrown away" not in request(console, "/job/again/epoch/1").text
