"""The machine of a run's drivers: its clock, and what a driver without memory gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.robustness.failpoints.clock import MOST_AHEAD_S, Clock
from tests.robustness.failpoints.machine import without_memory
from tests.robustness.traffic.ip_count_harness import RunningDriver
from tests.robustness.traffic.long_lived_job import Driver

_NEEDS_MEMORY = """
import sys
for line in sys.stdin:
    try:
        print(len(bytearray(64 << 20)), flush=True)
    except MemoryError:
        print("none", flush=True)
"""


def test_a_clock_that_is_set_ahead_ten_times_is_not_further_than_kafka_accepts(
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path, tmp_path / "offset")
    clock.set(0)
    offsets = [0]
    for _ in range(10):
        clock.set_ahead()
        offsets.append(clock.offset_s)
    assert sorted(set(offsets)) == offsets
    assert offsets[-1] < MOST_AHEAD_S


def test_a_driver_without_memory_gets_no_more_and_has_it_again_afterwards(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _NEEDS_MEMORY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    driver = Driver(RunningDriver(process, tmp_path))

    def ask() -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    with process:
        got = [ask()]
        with without_memory(driver):
            got.append(ask())
        got.append(ask())
        driver.kill()
    assert got == [b"67108864", b"none", b"67108864"]
