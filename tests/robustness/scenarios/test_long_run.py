"""A long run waits for a driver that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast
from unittest.mock import Mock, call

import pytest

from tests.robustness.failpoints.actors import Actor
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, PlannedFault, Strike
from tests.robustness.failpoints.s3_proxy import Request
from tests.robustness.scenarios.long_run import LongRun
from tests.robustness.scenarios.progress import Progress


def test_a_driver_that_never_reaches_a_failpoint_must_show_rows_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the time before do not count: one that hangs would be replaced by the strike."""
    run = LongRun.__new__(LongRun)  # without servers
    over = time.monotonic()
    armed, end = Mock(), Mock()
    armed.reached.return_value = False
    end.deadline.return_value = over
    progress = Progress(Mock(), Mock(), {}, Mock(), end)
    cast("Any", run).__dict__.update(_armed=armed, _end=end, _progress=progress)
    waits: list[float] = []
    monkeypatch.setattr(Progress, "await_rows", lambda _progress, start: waits.append(start))
    assert not run._await_stopped(Strike("before-stage", "", Actor.DRIVER, 0.0))
    assert len(waits) == 1
    assert waits[0] >= over


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
        _at_failpoint=[],
    )
    monkeypatch.setattr(run, "_await_stopped", Mock())
    monkeypatch.setattr("tests.robustness.scenarios.long_run._SETTLE_S", 0)
    first = Strike(ANY_MOMENT, "", actor, 1.0)
    second = Strike("after-decide", "", Actor.KAFKA_PAUSED, 1.0)
    run._strike(PlannedFault(1, 0.0, first, second, None))
    assert parts.mock_calls[:2] == [call.strikes.strike(first, []), call.armed.arm(second)]


def test_no_input_comes_while_a_run_waits_for_a_request_that_only_an_idle_driver_sends() -> None:
    """Under steady traffic no epoch is marked as applied, and the fault would not happen."""
    run, sending = LongRun.__new__(LongRun), [True]  # without servers

    @contextmanager
    def paused() -> Iterator[None]:
        sending[:] = [False]
        yield
        sending[:] = [True]

    proxy, traffic = Mock(faults=[]), Mock(paused=paused)
    met: dict[str, bool] = {}

    def send(kind: str, name: str) -> None:
        met[name] = sending[0]
        for fault in proxy.faults:
            fault.meets(Request(kind, name))

    end = Mock()
    end.deadline.return_value = time.monotonic() + 10
    progress = Progress(traffic, Mock(), {}, Mock(), end)
    parts = {"_proxy": proxy, "_traffic": traffic, "_end": end, "_progress": progress}
    cast("Any", run).__dict__.update(parts)
    for point, name in (("applied marker", "/epochs/7.applied"), ("decide", "/epochs/7")):
        traffic.check.side_effect = partial(send, "PUT", name)
        assert run._await_request(Strike(point, "", Actor.STORE_FAILS, 0.0))
    assert met == {"/epochs/7.applied": False, "/epochs/7": True}
    assert sending == [True]
