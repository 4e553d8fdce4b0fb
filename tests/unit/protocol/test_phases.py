"""The phases of an epoch: one table, and nothing goes backwards."""

from __future__ import annotations

import itertools

import pytest

from sluicegate.protocol.phases import TRANSITIONS, Course, IllegalTransition, Phase


def test_every_phase_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Phase)


def test_an_epoch_begins_by_looking() -> None:
    assert Course().phase is Phase.LOOKING


@pytest.mark.parametrize(("now", "then"), list(itertools.product(Phase, Phase)))
def test_only_what_the_table_knows_is_passed(now: Phase, then: Phase) -> None:
    course = Course()
    course.phase = now
    if then in TRANSITIONS[now]:
        course.enter(then)
        assert course.phase is then
    else:
        with pytest.raises(IllegalTransition):
            course.enter(then)
        assert course.phase is now


def ways(phase: Phase) -> list[tuple[Phase, ...]]:
    ends = [(phase, *way) for following in TRANSITIONS[phase] for way in ways(following)]
    return ends or [(phase,)]


def test_every_way_ends_in_done_and_passes_the_decision() -> None:
    """The recursion ends, so the table has no circle."""
    for way in ways(Phase.LOOKING):
        assert way[-3:] == (Phase.DECIDED, Phase.APPLYING, Phase.DONE)


def test_what_was_decided_is_never_staged_again() -> None:
    for way in ways(Phase.LOOKING):
        if Phase.STAGING in way:
            assert way.index(Phase.STAGING) < way.index(Phase.DECIDED)
