"""What the tests on a cluster read from a page, on pages of the real console."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.types import ASGIApp

from tests.e2e.ladder import Decided, Ladder
from tests.unit.console.browser import finished, in_doubt, request

APPLIED, MISSING = ["applied"], ["not applied yet"]


def test_the_ladder_of_a_job_at_rest_agrees_with_its_sink(tmp_path: Path, console: ASGIApp) -> None:
    finished(tmp_path, "rest", 3)
    ladder = Ladder.of(request(console, "/job/rest").body)
    assert (ladder.rungs["decided"].epoch, ladder.rungs["committed by Spark"].epoch) == (2, 2)
    assert ladder.contradictions(Decided(2, {"memory.rest": APPLIED}), in_doubt=False) == []


@pytest.mark.parametrize(
    ("decided", "in_doubt", "found"),
    [
        (Decided(3, {"memory.rest": APPLIED}), False, "epoch 2 is decided"),
        (Decided(2, {"memory.rest": MISSING}), False, "but its markers"),
        (Decided(2, {"memory.rest": APPLIED}), True, "memory.rest is not in doubt"),
        (Decided(2, {"kafka.other": APPLIED}), False, "there is no sink kafka.other"),
    ],
)
def test_a_ladder_that_says_something_else_is_noticed(
    tmp_path: Path, console: ASGIApp, decided: Decided, found: str, *, in_doubt: bool
) -> None:
    finished(tmp_path, "rest", 3)
    ladder = Ladder.of(request(console, "/job/rest").body)
    assert found in "; ".join(ladder.contradictions(decided, in_doubt=in_doubt))


def test_the_ladder_of_a_dead_driver_has_its_epoch_in_doubt(
    tmp_path: Path, console: ASGIApp
) -> None:
    in_doubt(tmp_path, "dead")
    ladder = Ladder.of(request(console, "/job/dead").body)
    decided = Decided(0, {"memory.dead": MISSING})
    assert ladder.contradictions(decided, in_doubt=True) == []
    assert "memory.dead is in doubt" in ladder.contradictions(decided, in_doubt=False)


def test_a_page_without_a_ladder_agrees_with_nothing() -> None:
    assert Ladder.of("<main></main>").contradictions(Decided(0, {}), in_doubt=False)
