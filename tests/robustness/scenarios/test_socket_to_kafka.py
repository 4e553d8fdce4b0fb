"""socket_to_kafka is killed at a random failpoint; every logged line is in the topic once, in order."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
import uuid
from itertools import pairwise
from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.cli.options import as_arguments
from sluicegate.failpoints import VARIABLE
from sluicegate.spark.socket.write_ahead_log import WriteAheadLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.socket_to_kafka import SocketToKafkaSettings, create_targets
from tests.integration.kafka_reader import read_topic
from tests.robustness.failpoints.random_failpoint import DRIVER_POINTS, SeededRandom
from tests.robustness.traffic.ip_count_harness import (
    DRIVER_TIMEOUT_S,
    DriverResult,
    RunningDriver,
    start,
)
from tests.robustness.traffic.line_server import LineServer

pytestmark = [pytest.mark.faults, pytest.mark.slow]

MORE_LINES = 500
"""Lines sent after the driver was killed."""

OVERLONG = 777
"""Interval of lines that exceed the job's limit."""

RECEIVER_POINTS = ("before-receipt", "after-receipt")


def line_of(number: int) -> bytes:
    """Return a line; it is not UTF-8, and some lines are too long."""
    tail = b"x" * 5000 if is_overlong(b"%06d" % number) else b"\xff\xfe\r"
    return b"%06d " % number + tail + b"\n"


def is_overlong(line: bytes) -> bool:
    """Return whether a line is too long."""
    return int(line[:6]) % OVERLONG == 0


def create_settings(services: Services, tmp_path: Path, address: str) -> SocketToKafkaSettings:
    """Create new topics and return settings for them."""
    name = f"s{uuid.uuid4().hex[:8]}"
    settings = SocketToKafkaSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        interval="200 milliseconds",
        min_pause_ms=100,
        address=address,
        topic=f"{name}_lines",
        dead_letters=f"{name}_letters",
        max_line_bytes=4096,
        kafka=services.kafka.bootstrap,
    )
    create_targets(settings)
    return settings


def start_driver(
    tmp_path: Path, settings: SocketToKafkaSettings, failpoints: str = ""
) -> RunningDriver:
    """Start a driver."""
    command = ["sluicegate.cli", "run", "socket_to_kafka", "--once", *as_arguments(settings)]
    log = tmp_path / f"driver-{uuid.uuid4().hex[:6]}.log"
    return start(command, log, {VARIABLE: failpoints})


class SegmentReader(threading.Thread):
    """Reads each segment as soon as it is logged, before its epoch is decided and pruned."""

    def __init__(self, settings: SocketToKafkaSettings) -> None:
        super().__init__(daemon=True)
        self._receipts = WriteAheadLog(open_store(settings.checkpoint))
        self._over = threading.Event()
        self.lines: list[bytes] = []
        self._seen = 0

    def run(self) -> None:
        while not self._over.wait(0.1):
            self._read_new_segments()
        self._read_new_segments()

    def _read_new_segments(self) -> None:
        for number in range(self._seen + 1, self._receipts.newest() + 1):
            self.lines += self._receipts.read(number).column("line").to_pylist()
            self._seen = number

    def end(self) -> list[bytes]:
        """Return all logged lines in order."""
        self._over.set()
        self.join()
        return self.lines


def wait_logged(segment_reader: SegmentReader, last: int, driver: RunningDriver) -> None:
    """Wait until a line is in the receipt log."""
    deadline = time.monotonic() + DRIVER_TIMEOUT_S
    while not any(line.startswith(b"%06d " % last) for line in list(segment_reader.lines)):
        assert time.monotonic() < deadline, driver.text()
        assert driver.process.poll() is None, driver.text()
        time.sleep(0.2)


def drain(tmp_path: Path, settings: SocketToKafkaSettings) -> DriverResult:
    """Process the logged lines without receiving new ones."""
    finite_settings = dataclasses.replace(settings, interval="available-now", address="127.0.0.1:1")
    return start_driver(tmp_path, finite_settings).wait()


@pytest.mark.timeout(600)
def test_every_logged_line_is_in_the_topic_once_and_in_order(
    services: Services, tmp_path: Path
) -> None:
    """The driver is killed while lines arrive; the sender reconnects to the next driver."""
    seeded_random = SeededRandom()
    point = seeded_random.choice([*DRIVER_POINTS, *RECEIVER_POINTS])
    occurrence = (
        seeded_random.randrange(5, 40)
        if point in RECEIVER_POINTS
        else seeded_random.randrange(1, 5)
    )
    seeded_random.report(f"{point}@{occurrence}")
    with LineServer(line_of) as server:
        settings = create_settings(services, tmp_path, server.address)
        segment_reader = SegmentReader(settings)
        segment_reader.start()
        killed = start_driver(tmp_path, settings, f"{point}@{occurrence}=kill-group").wait()
        assert killed.code == -signal.SIGKILL, killed.log
        lines = server.end_after(MORE_LINES)
        second = start_driver(tmp_path, settings)
        wait_logged(segment_reader, lines - 1, second)
        second.process.send_signal(signal.SIGTERM)
        result = second.wait()
        assert result.code == 0, result.log
        assert server.connections == 2
    result = drain(tmp_path, settings)
    assert result.code == 0, result.log

    received = segment_reader.end()
    numbers = [int(line[:6]) for line in received]
    gaps = [number for number, following in pairwise(numbers) if following != number + 1]
    assert len(gaps) <= 1, "only what was sent to a connection of a killed driver may be missing"
    assert numbers == sorted(set(numbers))
    delivered = [record.value for record in read_topic(settings.kafka, settings.topic)]
    expected = [line for line in received if not is_overlong(line)]
    assert delivered == expected
    assert all(line.endswith(b"\xff\xfe\r") for line in expected)
    dead_letters = [
        json.loads(record.value or b"")
        for record in read_topic(settings.kafka, settings.dead_letters)
    ]
    rejected = sorted(dead_letter["payload"][:6].encode() for dead_letter in dead_letters)
    assert rejected == [line[:6] for line in received if is_overlong(line)]
    for dead_letter in dead_letters:
        assert dead_letter["reason"] == "overlong: the line has 5007 bytes, the limit is 4096"
        assert dead_letter["source"]["socket"] == settings.address
