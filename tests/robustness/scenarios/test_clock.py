"""The clock of a driver is wrong when it starts, or is set while it runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.toolchain.host import HostError
from tests.robustness.failpoints.clock import MINUTE_S, MOST_AHEAD_S, Clock, build
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    access_lines,
    feed,
    new_scenario,
)
from tests.robustness.traffic.late_lines import possibly_late
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

DAY_S = 86_400
WAIT_S = 120.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("clock"))
    except HostError as error:
        pytest.skip(f"only root can install it: {error}")


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> Clock:
    return Clock(library, tmp_path / "offset")


def test_a_driver_a_day_behind_continues_where_one_ahead_was_killed(
    services: Services, tmp_path: Path, clock: Clock
) -> None:
    """It applies the epoch that the first one had decided."""
    scenario = new_scenario(services, tmp_path)
    clock.set(MOST_AHEAD_S)
    killed = scenario.run("after-decide@2=kill-group", env=clock.variables)
    assert killed.epochs("committed") == [0, 1], killed.log
    clock.set(-DAY_S)
    result = scenario.run(env=clock.variables)
    assert result.code == 0, result.log
    assert result.epochs("replayed") == [2]
    scenario.check_exact()
    scenario.check_rows()


def test_a_clock_that_is_set_while_the_job_runs_holds_nothing_up(
    services: Services, tmp_path: Path, clock: Clock
) -> None:
    """Ahead, the job goes on. Back by an hour, its driver ends: Spark would wait for an hour."""
    lines = access_lines()
    first, second, third = lines[:400], lines[400:800], lines[800:]
    scenario = new_scenario(services, tmp_path, lines=first, interval="1 second")
    clock.set(0)
    driver = scenario.start(supervised=True, env=clock.variables)
    try:
        for more, offset_s in ((second, MOST_AHEAD_S), (third, -60 * MINUTE_S)):
            wait_until(scenario.all_read, seconds=WAIT_S)
            clock.set(offset_s)
            feed(services.kafka.bootstrap, scenario.settings.source, more, in_step=True)
        wait_until(scenario.all_read, seconds=WAIT_S)
    finally:
        driver.signal_group(signal.SIGTERM)
        log = driver.wait().log
    assert log.count("sluicegate.run: ClockSetBack: the clock was set back by 6600 s") == 1, log
    scenario.check_exact(late=possibly_late(lines, epoch_lines=EPOCH_LINES))
