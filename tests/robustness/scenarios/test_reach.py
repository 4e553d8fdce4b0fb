"""A run waits for a driver that hangs, and lets a job be idle for the requests of an idle one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import Mock

import pytest

from tests.robustness.failpoints.actors import Actor
from tests.robustness.failpoints.fault_plan import Strike
from tests.robustness.failpoints.s3_proxy import Request
from tests.robustness.scenarios.progress import Progress
from tests.robustness.scenarios.reach import Reach


def test_a_driver_that_never_reaches_a_failpoint_must_show_rows_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the time before do not count: one that hangs would be replaced by the strike."""
    over = time.monotonic()
    armed, end = Mock(), Mock()
    armed.reached.return_value = False
    end.deadline.return_value = over
    progress = Progress(Mock(), Mock(), {}, Mock(), end)
    reach = Reach(Mock(), armed, progress, Mock(), end, None)
    waits: list[float] = []
    monkeypatch.setattr(Progress, "await_rows", lambda _progress, start: waits.append(start))
    assert not reach.wait_stopped(Strike("before-stage", "", Actor.DRIVER, 0.0))
    assert len(waits) == 1
    assert waits[0] >= over


def test_no_input_comes_while_a_run_waits_for_a_request_that_only_an_idle_driver_sends() -> None:
    """Under steady traffic no epoch is marked as applied, and the fault would not happen."""
    sending = [True]

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
    reach = Reach(Mock(), Mock(), progress, traffic, end, proxy)
    for point, name in (("applied marker", "/epochs/7.applied"), ("decide", "/epochs/7")):
        traffic.check.side_effect = partial(send, "PUT", name)
        assert reach.wait(Strike(point, "", Actor.STORE_FAILS, 0.0))
    assert met == {"/epochs/7.applied": False, "/epochs/7": True}
    assert sending == [True]
