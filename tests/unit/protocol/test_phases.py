"""The transitions between the phases of an epoch."""

from __future__ import annotations

import itertools

import pytest

from sluicegate.protocol.phases import TRANSITIONS, EpochPhase, IllegalTransition, Phase


def test_every_phase_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Phase)


def test_an_epoch_starts_by_looking() -> None:
    assert EpochPhase().phase is Phase.LOOKING


@pytest.mark.parametrize(("now", "then"), list(itertools.product(Phase, Phase)))
def test_only_transitions_in_the_table_are_allowed(now: Phase, then: Phase) -> None:
    phase = EpochPhase()
    phase.phase = now
    if then in TRANSITIONS[now]:
        phase.advance(then)
        assert phase.phase is then
    else:
        with pytest.raises(IllegalTransition):
            phase.advance(then)
        assert phase.phase is now


def paths(phase: Phase) -> list[tuple[Phase, ...]]:
    found = [(phase, *path) for following in TRANSITIONS[phase] for path in paths(following)]
    return found or [(phase,)]


def test_every_path_ends_with_decided_applying_done() -> None:
    """The recursion ends, so the table has no cycle."""
    for path in paths(Phase.LOOKING):
        assert path[-3:] == (Phase.DECIDED, Phase.APPLYING, Phase.DONE)


def test_a_decided_epoch_is_never_staged_again() -> None:
    for path in paths(Phase.LOOKING):
        if Phase.STAGING in path:
            assert path.index(Phase.STAGING) < path.index(Phase.DECIDED)
