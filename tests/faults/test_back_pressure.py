"""A sink at a tenth of the input's rate slows reading; what waits stays in Kafka, not in memory."""

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

from infra.embedded import Services
from sluicegate.sinks.mysql.session import Address, connect
from tests.faults.harness import Running, Scene, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

log = logging.getLogger(__name__)

RECORD_BYTES, RATE, SLOW_RATE = 50_000, 200, 20
"""Bytes of a record; records a second that come in, and that the slow sink takes."""

EPOCH_RECORDS = 100
SLOW_EPOCHS = 5
"""How many epochs the sink stays slow for: half a minute."""

LAG = re.compile(r"epoch \d+ committed: .*; lag ([\d,]+)")


class Input(threading.Thread):
    """Sends records at a steady rate until it is told to end."""

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
                # no compression could make it small, and each has a digest of its own
                self._producer.produce(self._topic, os.urandom(RECORD_BYTES))
                self._producer.poll(0)
                self.sent += 1
        if self._producer.flush(60):
            raise TimeoutError("the topic did not take the records")

    def end(self) -> int:
        """Stop sending; return how many records are in the topic."""
        self._over.set()
        self.join()
        return self.sent


def execute(played: Scene, sql: str) -> int:
    """Run a statement; return the first number of its answer."""
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
            continue  # a worker that ended meanwhile holds nothing
    return total


def wait_epochs(driver: Running, count: int, timeout_s: float = 150.0) -> None:
    """Wait until the driver has committed so many epochs."""
    deadline = time.monotonic() + timeout_s
    while len(lags(driver)) < count:
        assert driver.process.poll() is None, driver.text()
        assert time.monotonic() < deadline, driver.text()
        time.sleep(0.1)


@contextmanager
def running(played: Scene) -> Iterator[Running]:
    """Run the job on the slow table; nothing is left behind."""
    execute(played, "DROP TABLE {table}")
    execute(played, "CREATE TABLE {table} (id CHAR(64) PRIMARY KEY)")
    pause = 1 / SLOW_RATE
    execute(
        played,
        f"CREATE TRIGGER slow_{{table}} BEFORE INSERT ON {{table}} FOR EACH ROW DO SLEEP({pause})",
    )
    driver = played.start_job("digests")
    try:
        yield driver
    finally:
        driver.kill()


@pytest.mark.timeout(600)
def test_a_slow_sink_slows_reading_and_memory_stays_flat(
    services: Services, tmp_path: Path
) -> None:
    """While hundreds of MB wait, memory grows by a fraction; the lag is told, and worked off after."""
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
