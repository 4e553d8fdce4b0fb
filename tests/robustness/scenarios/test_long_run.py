"""A long run replaces only drivers that a supervisor would replace, and waits for one that hangs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.robustness.failpoints.fault_plan import Actor, Strike
from tests.robustness.scenarios.judgment import Stuck
from tests.robustness.scenarios.long_run import LongRun


def run_of(code: int | None, line: str = "the end", age_s: float = 5.0) -> tuple[LongRun, Mock]:
    """Return a run without servers, whose driver has exited with a code, and its job."""
    run = LongRun.__new__(LongRun)
    driver = SimpleNamespace(
        code=code, kill=Mock(), last_line=lambda: line, says=line.__contains__, age_s=age_s
    )
    job, scenario = Mock(driver=driver), Mock()
    scenario.settings.timeout_s = 120.0
    cast("Any", run).__dict__.update(_job=job, _scenario=scenario, _fenced=False, _change=None)
    return run, job


@pytest.mark.parametrize("code", [0, 64, 66])
def test_a_driver_that_no_supervisor_restarts_is_stuck(code: int) -> None:
    """Whether the run itself had struck a server before, or not."""
    run, job = run_of(code)
    with pytest.raises(Stuck, match=f"exit code {code}"):
        run._replace_ended()
    job.restart.assert_not_called()


@pytest.mark.parametrize("code", [1, 75, -9])
def test_a_driver_that_a_supervisor_restarts_is_replaced(code: int) -> None:
    run, job = run_of(code)
    for _ in range(2):
        run._replace_ended()
    assert job.restart.call_count == 2


def test_a_fenced_driver_is_replaced_once() -> None:
    run, job = run_of(65)
    run._replace_ended()
    with pytest.raises(Stuck):
        run._replace_ended()
    job.restart.assert_called_once()


@pytest.mark.parametrize(("line", "age_s"), [("Sealed: …", 5.0), ("Fenced: …", 500.0)])
def test_a_driver_that_no_earlier_one_can_have_fenced_is_stuck(line: str, age_s: float) -> None:
    run, _ = run_of(65, line, age_s)
    with pytest.raises(Stuck):
        run._replace_ended()


def test_a_driver_that_never_reaches_a_failpoint_must_show_rows_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the time before do not count: one that hangs would be replaced by the strike."""
    run, _ = run_of(None)
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
