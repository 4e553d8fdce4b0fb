"""Driver processes: zombies, hanging epochs, a requested stop, and a killed supervisor."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.failpoints.fault_matrix import select_cases
from tests.robustness.scenarios.test_driver_killed import wait_until_gone
from tests.robustness.traffic.ip_count_harness import (
    DRIVER_TIMEOUT_S,
    RunningDriver,
    Scenario,
    new_scenario,
)

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]

EPOCH = 2

CASES = [("after-stage", ""), ("after-decide", ""), ("before-commit", "kafka"), ("before-done", "")]


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario with the default lines."""
    return new_scenario(services, tmp_path)


@pytest.mark.parametrize(("point", "sink"), select_cases(CASES, CASES[2:3]))
def test_rule_17_a_zombie_is_harmless_to_sinks(scenario: Scenario, point: str, sink: str) -> None:
    """A driver that resumes after another has taken over exits Fenced; the result is exact."""
    failpoint = scenario.failpoint(point, sink, EPOCH)
    zombie = scenario.with_settings(timeout_s=0.0).start(f"{failpoint}=stop-group")
    try:
        zombie.wait_stopped()
        scenario.finish()
        zombie.signal_group(signal.SIGCONT)
        result = zombie.wait()
    finally:
        zombie.kill()
    assert result.code == 65, result.log
    assert "Fenced: " in result.log
    scenario.check_exact()


def test_rule_18_an_epoch_beyond_its_timeout_is_restarted(scenario: Scenario) -> None:
    """The process exits with code 75, the supervisor restarts it, and the result is exact."""
    failpoint = f"after-stage@{EPOCH}=hang~{scenario.folder / 'hung'}"
    supervised = scenario.with_settings(timeout_s=20.0, restart_attempts=1, restart_delay_s=0.2)
    result = supervised.run(failpoint, supervised=True)
    assert result.code == 0, result.log
    assert (
        f"with exit code 75: EpochTimeout: epoch {EPOCH} took longer than its timeout" in result.log
    )
    assert "restart in 0.2 s (fixed-delay: restart 1 of 1)" in result.log
    scenario.check_exact()


def test_sigterm_stops_the_driver_after_its_epoch(scenario: Scenario) -> None:
    """The running epoch is applied, the exit code is 0, and the next start has nothing to replay."""
    driver = scenario.start(f"after-stage@{EPOCH}=stop-group")
    driver.wait_stopped()
    driver.process.send_signal(signal.SIGTERM)  # delivered as soon as it continues
    driver.signal_group(signal.SIGCONT)
    result = driver.wait()
    assert result.code == 0, result.log
    assert EPOCH in result.epochs("committed")
    newest = scenario.epoch_log().newest()
    assert newest is not None
    assert newest < 5, "the driver did not stop"
    assert (scenario.checkpoint / "commits" / str(newest)).exists()
    result = scenario.finish()
    assert result.epochs("replayed") == []
    scenario.check_exact()


def test_a_driver_whose_supervisor_is_killed_stops_after_its_epoch(scenario: Scenario) -> None:
    """As at SIGTERM: the running epoch is applied, and the next driver has nothing to replay."""
    supervisor = scenario.start(f"after-stage@{EPOCH}=stop-group", supervised=True)
    driver = wait_for_stopped_child(supervisor)
    supervisor.process.kill()
    supervisor.process.wait()
    os.killpg(driver, signal.SIGCONT)
    wait_until_gone(driver, DRIVER_TIMEOUT_S)
    log = supervisor.text()
    assert "ip_count ended" in log
    newest = scenario.epoch_log().newest()
    assert newest is not None
    assert EPOCH <= newest < 5, "the driver did not stop"
    assert (scenario.checkpoint / "commits" / str(newest)).exists()
    result = scenario.finish()
    assert result.epochs("replayed") == []
    scenario.check_exact()


def wait_for_stopped_child(supervisor: RunningDriver) -> int:
    """Return the driver of a supervisor as soon as SIGSTOP has stopped it."""
    pid = supervisor.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + DRIVER_TIMEOUT_S
    while True:
        for child in children.read_text().split():
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return int(child)
        assert time.monotonic() < deadline, f"it was never stopped:\n{supervisor.text()}"
        time.sleep(0.05)
