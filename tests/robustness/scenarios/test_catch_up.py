"""A job catches up with everything that waits in its source in one epoch, on a small heap.

`make catch-up` runs it with 10 GiB on a heap of 1 GiB; the test suite with a little of both.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import zlib
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from infra.local_services import Services
from sluicegate.deployment.environment import DriverVariable
from tests.bench import readback
from tests.robustness.traffic.ip_count_harness import RunningDriver, new_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

log = logging.getLogger(__name__)

GIB_VARIABLE = "SLUICEGATE_CATCH_UP_GIB"
"""Size of the input in GiB, for `make catch-up`."""

SMALL_GIB = 0.15
"""Size of the input in the test suite; its limits are lowered in proportion."""

RECORD_BYTES, RANDOM_BYTES = 4000, 400
"""A record compresses to a tenth, as JSON and logs do: the worst case, because a chunk that compresses
well is small enough to travel inside a task's result."""

SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "2000"}
"""A chunk is closed at its size in memory, so small batches make small chunks."""

DRIVER_BYTES = 400 << 20
"""Limit of the memory of the driver's Python process, whatever the size of the epoch."""

TIMEOUT_S = 3600.0


def fill(bootstrap: str, topic: str, records: int) -> readback.Content:
    """Send records to a topic; return its content."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 20}
    )
    padding, checksum = b"." * (RECORD_BYTES - RANDOM_BYTES), 0
    for _ in range(records):
        value = os.urandom(RANDOM_BYTES) + padding
        checksum += zlib.crc32(value)
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return readback.Content(records, checksum)


class Peaks:
    """The largest resident memory of a driver's processes, as the kernel recorded it."""

    def __init__(self, driver: RunningDriver) -> None:
        self._process = psutil.Process(driver.process.pid)
        self.bytes: dict[str, int] = {}

    def sample(self) -> None:
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
                name = process.name() if process.pid != self._process.pid else "driver"
            except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                continue  # the worker has exited
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            if found:
                self.bytes[name] = max(self.bytes.get(name, 0), int(found[1]) << 10)


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_a_catch_up_in_one_epoch_does_not_grow_what_the_driver_holds(
    services: Services, tmp_path: Path
) -> None:
    """The chunks of all tasks would fit inline one by one, and together exceed the driver's limit."""
    gib = os.environ.get(GIB_VARIABLE) or None
    size = int(float(gib or SMALL_GIB) * 2**30)
    settings_of_size: dict[str, Any] = {"max_records": size, "max_part_bytes": 2 * size}
    conf = SMALL_BATCHES
    if gib is None:
        settings_of_size["inline_bytes"] = 4 << 20
        conf = {**SMALL_BATCHES, "spark.driver.maxResultSize": "6m"}
    scenario = new_scenario(
        services,
        tmp_path,
        lines=[],
        timeout_s=TIMEOUT_S,
        apply_timeout_s=600.0,
        **settings_of_size,
    )
    settings = scenario.settings
    sent = fill(settings.kafka, settings.source, size // RECORD_BYTES)
    heap = os.environ.get(DriverVariable.DRIVER_MEMORY) or ("1g" if gib else "512m")
    variables: dict[str, str] = {
        DriverVariable.DRIVER_MEMORY: heap,
        DriverVariable.SPARK_CONF: json.dumps(conf),
    }
    driver = scenario.start_job("copied", env=variables)
    peaks, begin = Peaks(driver), time.monotonic()
    while driver.process.poll() is None:
        peaks.sample()
        time.sleep(0.2)
    result, took_s = driver.wait(), time.monotonic() - begin
    assert result.code == 0, result.log
    assert result.epochs("committed") == [0]
    mib = {name: peak >> 20 for name, peak in peaks.bytes.items()}
    log.info("%d MiB on a heap of %s in %.0f s; peaks in MiB: %s", size >> 20, heap, took_s, mib)
    log.info("%s", next(line for line in result.log.splitlines() if "epoch 0 committed" in line))
    assert peaks.bytes["driver"] < DRIVER_BYTES, peaks.bytes
    assert readback.values_in(settings.kafka, settings.topic) == sent
