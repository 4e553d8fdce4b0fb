"""Drivers that apply an epoch while they stage the next are killed and stopped; the result is exact."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.failpoints.fault_matrix import select_cases
from tests.robustness.traffic.ip_count_harness import (
    RunningDriver,
    Scenario,
    new_scenario,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2

CASES = [("apply-written", "kafka"), ("after-commit", "kafka"), ("before-done", "")]


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario whose epochs overlap."""
    return new_scenario(services, tmp_path, overlap=True)


def wait_committed(
    scenario: Scenario, driver: RunningDriver, epoch: int, timeout_s: float = 60.0
) -> None:
    """Wait until Spark has committed an epoch."""
    deadline = time.monotonic() + timeout_s
    while not (scenario.checkpoint / "commits" / str(epoch)).exists():
        assert time.monotonic() < deadline, driver.text()
        time.sleep(0.05)


def test_an_epoch_that_spark_committed_and_no_sink_has_is_applied(scenario: Scenario) -> None:
    """After a kill between Spark's commit and the apply, the next start applies the epoch."""
    driver = scenario.start(f"before-apply:{scenario.sinks['kafka']}@{EPOCH}=hang")
    wait_committed(scenario, driver, EPOCH)
    driver.kill()
    driver.wait()
    assert scenario.epoch_log().newest() == EPOCH
    result = scenario.finish()
    assert result.epochs("replayed") == [EPOCH]
    scenario.check_exact()


@pytest.mark.parametrize(("point", "sink"), select_cases(CASES, CASES[1:2]))
def test_a_driver_killed_during_a_background_apply_loses_and_repeats_nothing(
    scenario: Scenario, point: str, sink: str
) -> None:
    """It is killed with kill -9 during the apply, while it stages the next epoch."""
    killed = scenario.run(f"{scenario.failpoint(point, sink, EPOCH)}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    assert EPOCH in scenario.finish().epochs("replayed")
    scenario.check_exact()


def test_a_driver_that_stops_cleanly_leaves_no_unapplied_epoch(scenario: Scenario) -> None:
    """Its last epoch is marked applied, so the next start does not query the sinks for it."""
    result = scenario.finish()
    newest = scenario.epoch_log().newest()
    assert newest is not None
    assert newest in result.epochs("committed")
    assert scenario.epoch_log().is_marked_applied(newest)
    assert scenario.finish().epochs("replayed") == []
    scenario.check_exact(late=0)  # one epoch has read all
