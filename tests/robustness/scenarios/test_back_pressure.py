"""A sink at a tenth of the input rate slows reading; the backlog stays in Kafka, not in memory."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from infra.local_services import Services
from sluicegate.deployment.environment import DriverVariable
from sluicegate.sinks.mysql.connection import Address, connect
from tests.robustness.traffic.ip_count_harness import (
    RunningDriver,
    Scenario,
    new_scenario,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow]

log = logging.getLogger(__name__)

RECORD_BYTES, RATE, SLOW_RATE = 50_000, 200, 20
"""Bytes per record; records per second that arrive, and that the slow sink accepts."""

EPOCH_RECORDS = 100
SLOW_EPOCHS = 5
"""Number of epochs for which the sink stays slow: half a minute."""

PREALLOCATED_HEAP: Mapping[str, str] = {
    DriverVariable.SPARK_CONF: json.dumps(
        {"spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch"}
    )
}
"""Makes the JVM allocate its whole heap at the start, so that a growing heap is not taken for a leak."""

LAG = re.compile(r"epoch \d+ committed: .*; lag ([\d,]+)")


class Input(threading.Thread):
    """Sends records at a steady rate until `end` is called."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
        self._topic = topic
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        start = time.monotonic()
        while not self._over.wait(0.05):
            while self.sent < (time.monotonic() - start) * RATE:
                # incompressible, and each record has its own digest
                self._producer.produce(self._topic, os.urandom(RECORD_BYTES))
                self._producer.poll(0)
                self.sent += 1
        if self._producer.flush(60):
            raise TimeoutError("the topic did not accept the records")

    def end(self) -> int:
        """Stop sending; return the number of records in the topic."""
        self._over.set()
        self.join()
        return self.sent


def execute(scenario: Scenario, sql: str) -> int:
    """Run a statement; return the first number of its result."""
    connection = connect(Address.parse(scenario.settings.mysql), timeout_s=30.0)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.format(table=scenario.settings.table))
            row = cursor.fetchone()
    finally:
        connection.close()
    return int(row[0]) if row else 0


def lags(driver: RunningDriver) -> list[int]:
    """Return the lag of each epoch that the driver has committed."""
    return [int(lag.replace(",", "")) for lag in LAG.findall(driver.text())]


def resident_bytes(driver: RunningDriver) -> int:
    """Return the memory of the driver, its JVM and its workers."""
    parent = psutil.Process(driver.process.pid)
    total = 0
    for process in [parent, *parent.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # the worker has exited
    return total


def wait_epochs(driver: RunningDriver, count: int, timeout_s: float = 150.0) -> None:
    """Wait until the driver has committed a number of epochs."""
    deadline = time.monotonic() + timeout_s
    while len(lags(driver)) < count:
        assert driver.process.poll() is None, driver.text()
        assert time.monotonic() < deadline, driver.text()
        time.sleep(0.1)


@contextmanager
def running_driver(scenario: Scenario) -> Iterator[RunningDriver]:
    """Run the job on the slow table; kill it at the end."""
    execute(scenario, "DROP TABLE {table}")
    execute(scenario, "CREATE TABLE {table} (id CHAR(64) PRIMARY KEY)")
    pause = 1 / SLOW_RATE
    execute(
        scenario,
        f"CREATE TRIGGER slow_{{table}} BEFORE INSERT ON {{table}} FOR EACH ROW DO SLEEP({pause})",
    )
    driver = scenario.start_job("digests", env=PREALLOCATED_HEAP)
    try:
        yield driver
    finally:
        driver.kill()


@pytest.mark.timeout(600)
def test_a_slow_sink_slows_reading_and_memory_stays_flat(
    services: Services, tmp_path: Path
) -> None:
    """With hundreds of MB waiting, memory grows by a fraction; the lag is logged and later worked off."""
    settings: dict[str, Any] = {"interval": "100 milliseconds", "min_pause_ms": 0}
    settings["max_records"] = EPOCH_RECORDS
    scenario = new_scenario(services, tmp_path, lines=[], **settings)
    with running_driver(scenario) as driver:
        source = Input(services.kafka.bootstrap, scenario.settings.source)
        source.start()
        wait_epochs(driver, 2)  # everything is loaded and warm
        memory_before, sent_before = resident_bytes(driver), source.sent
        wait_epochs(driver, 2 + SLOW_EPOCHS)
        memory_after = resident_bytes(driver)
        backlog_bytes = (source.sent - sent_before) * RECORD_BYTES
        sent, slow_lags = source.end(), lags(driver)
        execute(scenario, "DROP TRIGGER slow_{table}")
        deadline = time.monotonic() + 180
        while execute(scenario, "SELECT COUNT(*) FROM {table}") < sent:
            assert time.monotonic() < deadline, driver.text()
            time.sleep(0.2)
        wait_epochs(driver, -(-sent // EPOCH_RECORDS))
        driver.process.send_signal(signal.SIGTERM)
        result = driver.wait()
        assert execute(scenario, "SELECT COUNT(*) FROM {table}") == sent
    log.info("backlog %d bytes, memory %d -> %d bytes", backlog_bytes, memory_before, memory_after)
    assert memory_after - memory_before < backlog_bytes / 3
    assert slow_lags[-1] > slow_lags[0]
    assert slow_lags[-1] > sent / 2
    assert lags(driver)[-1] < EPOCH_RECORDS
    assert result.code == 0, result.log
