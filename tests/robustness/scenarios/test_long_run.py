"""A long run arms the failpoint of a second fault when its first driver cannot stop there."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock, call

import pytest

from tests.robustness.failpoints.actors import Actor
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, PlannedFault, Strike
from tests.robustness.scenarios.long_run import LongRun


@pytest.mark.parametrize("actor", [Actor.DRIVER, Actor.SUPERVISED])
def test_a_driver_that_is_killed_does_not_stop_at_the_failpoint_of_its_successor(
    monkeypatch: pytest.MonkeyPatch, actor: Actor
) -> None:
    """The report would say that the successor failed there, although it failed elsewhere."""
    run = LongRun.__new__(LongRun)  # without servers
    parts = Mock()
    parts.strikes.strike.return_value = "still running"
    cast("Any", run).__dict__.update(
        _armed=parts.armed,
        _strikes=parts.strikes,
        _successors=parts.successors,
        _reach=Mock(stopped=[]),
    )
    monkeypatch.setattr("tests.robustness.scenarios.long_run.SETTLE_S", 0)
    first = Strike(ANY_MOMENT, "", actor, 1.0)
    second = Strike("after-decide", "", Actor.KAFKA_PAUSED, 1.0)
    run._strike(PlannedFault(1, 0.0, first, second, None))
    assert parts.mock_calls[:2] == [call.strikes.strike(first, []), call.armed.arm(second)]
