"""A long run waits for a driver that hangs."""

from __future__ import annotations

import time
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.robustness.failpoints.fault_plan import Actor, Strike
from tests.robustness.scenarios.long_run import LongRun


def test_a_driver_that_never_reaches_a_failpoint_must_show_rows_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the time before do not count: one that hangs would be replaced by the strike."""
    run = LongRun.__new__(LongRun)  # without servers
    over = time.monotonic()
    armed, end = Mock(), Mock()
    armed.reached.return_value = False
    end.deadline.return_value = over
    cast("Any", run).__dict__.update(_armed=armed, _end=end)
    waits: list[float] = []
    monkeypatch.setattr(run, "_await_rows", waits.append)
    assert not run._await_stopped(Strike("before-stage", "", Actor.DRIVER, 0.0))
    assert len(waits) == 1
    assert waits[0] >= over
