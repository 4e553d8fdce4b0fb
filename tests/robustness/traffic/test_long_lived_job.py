"""Failpoints are armed while a job runs."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sluicegate import failpoints
from tests.robustness.failpoints.actors import Actor
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, Strike, all_failpoints
from tests.robustness.traffic.ip_count_harness import RunningDriver
from tests.robustness.traffic.long_lived_job import ArmedFailpoints, Driver, SupervisedDriver

SINKS = {"topic": "kafka.out", "table": "mysql.out", "dead-letters": "kafka.letters"}
FAILPOINTS = [one for one in all_failpoints() if one[0] != ANY_MOMENT]


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[ArmedFailpoints]:
    """Yield failpoints that raise an error instead of stopping this process."""
    prepared = ArmedFailpoints(tmp_path / "armed", SINKS)
    failpoints.arm(prepared.setting.replace("stop-group", "raise"))
    yield prepared
    failpoints.arm("")


@pytest.mark.parametrize(("point", "sink"), FAILPOINTS)
def test_a_failpoint_fires_once_after_it_was_armed(
    armed: ArmedFailpoints, point: str, sink: str
) -> None:
    strike = Strike(point, sink, Actor.DRIVER, 1.0)
    failpoints.reach(point, epoch=3, sink=SINKS.get(sink, ""))
    armed.arm(strike)
    assert not armed.reached(strike)
    with pytest.raises(failpoints.FailpointHit):
        failpoints.reach(point, epoch=4, sink=SINKS.get(sink, ""))
    assert armed.reached(strike)
    failpoints.reach(point, epoch=5, sink=SINKS.get(sink, ""))


def test_a_failpoint_that_was_disarmed_does_not_fire(armed: ArmedFailpoints) -> None:
    strike = Strike("after-decide", "", Actor.DRIVER, 1.0)
    armed.arm(strike)
    armed.disarm(strike)
    failpoints.reach("after-decide", epoch=3)


def test_a_failpoint_of_a_sink_does_not_fire_for_another(armed: ArmedFailpoints) -> None:
    armed.arm(Strike("after-commit", "topic", Actor.DRIVER, 1.0))
    failpoints.reach("after-commit", epoch=3, sink=SINKS["table"])


def test_a_driver_at_a_failpoint_is_waited_for_until_it_has_stopped_itself() -> None:
    """A SIGCONT between the file and the stop came too early, and such a driver never went on."""
    command = ["/bin/sh", "-c", "sleep 0.5; kill -STOP $$"]
    process = subprocess.Popen(command, start_new_session=True)
    driver = Driver(cast("RunningDriver", SimpleNamespace(process=process)))
    try:
        driver.await_stopped(10.0)
        assert [member.stopped for member in driver.members()] == [True]
    finally:
        driver.kill()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[SupervisedDriver]:
    """Yield a supervisor with two drivers, an older one and a newer one."""
    command = "setsid sleep 60 & sleep 0.2; setsid sleep 60 & wait; exec sleep 60"
    process = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)
    driver = SupervisedDriver(RunningDriver(process, tmp_path / "log"))
    deadline = time.monotonic() + 10
    while len(driver.members()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    yield driver
    driver.kill()
    assert not driver.members()


def test_the_drivers_of_a_killed_supervisor_are_still_known(supervised: SupervisedDriver) -> None:
    supervised.abandon()
    assert supervised.code == -signal.SIGKILL
    assert len(supervised.members()) == 2


def test_a_supervisor_that_waits_before_a_restart_has_no_driver_to_kill(
    supervised: SupervisedDriver,
) -> None:
    while supervised.members():
        supervised.kill_driver()
        time.sleep(0.05)
    supervised.kill_driver()
    assert supervised.code is None


def test_the_driver_that_runs_is_killed_and_not_the_standby(supervised: SupervisedDriver) -> None:
    older, newer = supervised.sessions
    supervised.kill_driver()
    assert [member.pid for member in supervised.members() if member.pid != older] == [newer]
    assert supervised.code is None
