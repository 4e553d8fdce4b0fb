"""A sink at a tenth of the input rate slows reading; the backlog stays in Kafka, not in memory."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from infra.local_services import Services
from sluicegate.sinks.mysql.connection import Address, connect
from tests.robustness.traffic.ip_count_harness import SHORT_LIVED_JVM, Running, Scene, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

log = logging.getLogger(__name__)

RECORD_BYTES, RATE, SLOW_RATE = 50_000, 200, 20
"""Bytes per record; records per second that arrive, and that the slow sink accepts."""

EPOCH_RECORDS = 100
SLOW_EPOCHS = 5
"""Number of epochs for which the sink stays slow: half a minute."""

WHOLE_HEAP = {"JDK_JAVA_OPTIONS": f"{SHORT_LIVED_JVM} -Xms1g -XX:+AlwaysPreTouch"}
"""Makes the JVM take its whole heap at once: a heap on its way to its limit is no growth."""

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
        began = time.monotonic()
        while not self._over.wait(0.05):
            while self.sent < (time.monotonic() - began) * RATE:
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


def execute(played: Scene, sql: str) -> int:
    """Run a statement; return the first number of its result."""
    connection = connect(Address.parse(played.settings.mysql), timeout_s=30.0)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.format(table=played.settings.table))
            found = cursor.fetchone()
    finally:
        connection.close()
    return int(found[0]) if found else 0


def lags(driver: Running) -> list[int]:
    """Return the lag of each epoch that the driver has committed."""
    return [int(found.replace(",", "")) for found in LAG.findall(driver.text())]


def resident_bytes(driver: Running) -> int:
    """Return the memory of the driver, its JVM and its workers."""
    parent = psutil.Process(driver.process.pid)
    total = 0
    for process in [parent, *parent.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # the worker has exited
    return total


def wait_epochs(driver: Running, count: int, timeout_s: float = 150.0) -> None:
    """Wait until the driver has committed a number of epochs."""
    deadline = time.monotonic() + timeout_s
    while len(lags(driver)) < count:
        assert driver.process.poll() is None, driver.text()
        assert time.monotonic() < deadline, driver.text()
        time.sleep(0.1)


@contextmanager
def running(played: Scene) -> Iterator[Running]:
    """Run the job on the slow table; kill it at the end."""
    execute(played, "DROP TABLE {table}")
    execute(played, "CREATE TABLE {table} (id CHAR(64) PRIMARY KEY)")
    pause = 1 / SLOW_RATE
    execute(
        played,
        f"CREATE TRIGGER slow_{{table}} BEFORE INSERT ON {{table}} FOR EACH ROW DO SLEEP({pause})",
    )
    driver = played.start_job("digests", env=WHOLE_HEAP)
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
    with scene(services, tmp_path, lines=[], **settings) as played, running(played) as driver:
        source = Input(services.kafka.bootstrap, played.settings.source)
        source.start()
        wait_epochs(driver, 2)  # everything is loaded and warm
        before, waiting = resident_bytes(driver), source.sent
        wait_epochs(driver, 2 + SLOW_EPOCHS)
        after, backlog = resident_bytes(driver), (source.sent - waiting) * RECORD_BYTES
        sent, slow = source.end(), lags(driver)
        execute(played, "DROP TRIGGER slow_{table}")
        deadline = time.monotonic() + 180
        while execute(played, "SELECT COUNT(*) FROM {table}") < sent:
            assert time.monotonic() < deadline, driver.text()
            time.sleep(0.2)
        wait_epochs(driver, -(-sent // EPOCH_RECORDS))
        driver.process.send_signal(signal.SIGTERM)
        ended = driver.wait()
        assert execute(played, "SELECT COUNT(*) FROM {table}") == sent
    log.info("backlog %d bytes, memory %d -> %d bytes", backlog, before, after)
    assert after - before < backlog / 3
    assert slow[-1] > slow[0]
    assert slow[-1] > sent / 2
    assert lags(driver)[-1] < EPOCH_RECORDS
    assert ended.code == 0, ended.log
