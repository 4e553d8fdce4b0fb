"""The clock of a driver is wrong when it starts, or is set while it runs."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.toolchain.host import HostError, need, run
from tests.robustness import failpoints
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    access_lines,
    feed,
    new_scenario,
)
from tests.robustness.traffic.late_lines import possibly_late
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

SOURCE = Path(failpoints.__file__).with_name("wrong_clock.c")
MINUTE_S, DAY_S = 60, 86_400
WAIT_S = 120.0


@dataclass(frozen=True)
class Clock:
    """The clock of the processes that run with `variables`."""

    library: Path
    file: Path

    def set(self, offset_s: int) -> None:
        written = self.file.with_suffix(".new")
        written.write_text(str(offset_s))
        written.replace(self.file)

    @property
    def variables(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "SLUICEGATE_TESTS_CLOCK": str(self.file)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        need({"cc": "gcc"})
    except HostError as error:
        pytest.skip(f"only root can install it: {error}")
    built = tmp_path_factory.mktemp("clock") / "wrong_clock.so"
    run(["cc", "-O2", "-shared", "-fPIC", "-o", built, SOURCE, "-ldl"], what="cc failed")
    return built


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> Clock:
    return Clock(library, tmp_path / "offset")


def test_a_driver_a_day_behind_continues_where_one_ahead_was_killed(
    services: Services, tmp_path: Path, clock: Clock
) -> None:
    """It applies the epoch that the first one had decided."""
    scenario = new_scenario(services, tmp_path)
    clock.set(50 * MINUTE_S)
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
        for more, offset_s in ((second, 50 * MINUTE_S), (third, -60 * MINUTE_S)):
            wait_until(scenario.all_read, seconds=WAIT_S)
            clock.set(offset_s)
            feed(services.kafka.bootstrap, scenario.settings.source, more, in_step=True)
        wait_until(scenario.all_read, seconds=WAIT_S)
    finally:
        driver.signal_group(signal.SIGTERM)
        log = driver.wait().log
    assert log.count("sluicegate.run: ClockSetBack: the clock was set back by 6600 s") == 1, log
    scenario.check_exact(late=possibly_late(lines, epoch_lines=EPOCH_LINES))
