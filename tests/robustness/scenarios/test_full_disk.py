"""The disk of a checkpoint becomes full: once it has space the job goes on and is exact.

`make robustness ARGS=--store-machine` fills the disk of an object store.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.integration.power_cuts import make_disk
from tests.robustness.failpoints.disk import full_disk
from tests.robustness.traffic.ip_count_harness import (
    DRIVER_TIMEOUT_S,
    EPOCH_LINES,
    LINES,
    access_lines,
    count_unparsed,
    feed,
    new_scenario,
)
from tests.robustness.traffic.late_lines import possibly_late
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

_FULL_S = 15.0


def test_a_job_whose_checkpoint_was_on_a_full_disk_goes_on_and_is_exact(
    services: Services, tmp_path: Path
) -> None:
    lines = access_lines(2 * LINES)
    with ExitStack() as stack:
        disk = make_disk(tmp_path / "disk.img", tmp_path / "disk", stack)
        scenario = new_scenario(
            services,
            tmp_path,
            lines=lines[:LINES],
            checkpoint=str(disk / "checkpoint"),
            interval="200 milliseconds",
            restart_attempts=100,
            restart_delay_s=1.0,
        )
        driver = scenario.start(supervised=True)
        stack.callback(driver.kill)
        driver.wait_for("epoch 1 committed")
        with full_disk(disk / "filler"):
            feed(scenario.settings.kafka, scenario.settings.source, lines[LINES:])
            driver.wait_for("No space left on device")
            time.sleep(_FULL_S)
        wait_until(scenario.all_read, seconds=DRIVER_TIMEOUT_S)
        late = possibly_late(lines, epoch_lines=EPOCH_LINES)
        scenario.check_exact(len(lines), unparsed=count_unparsed(lines), late=late)
        driver.process.terminate()
        stopped = driver.wait()
        assert stopped.code == 0, stopped.log
