"""socket_to_kafka is killed at a random failpoint; every logged line is in the topic once, in order."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.cli.options import as_arguments
from sluicegate.failpoints import VARIABLE
from sluicegate.spark.socket.write_ahead_log import WriteAheadLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.socket_to_kafka import SocketToKafkaSettings, create_targets
from tests.integration.kafka_reader import read_topic
from tests.robustness.failpoints.random_failpoint import DRIVER_POINTS, Chance
from tests.robustness.traffic.ip_count_harness import PATIENCE_S, Ended, Running, start
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


def settings_of(services: Services, tmp_path: Path, address: str) -> SocketToKafkaSettings:
    """Create new topics and return settings for them."""
    name = f"s{uuid.uuid4().hex[:8]}"
    made = SocketToKafkaSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        interval="200 milliseconds",
        min_pause_ms=100,
        address=address,
        topic=f"{name}_lines",
        dead_letters=f"{name}_letters",
        max_line_bytes=4096,
        kafka=services.kafka.bootstrap,
    )
    create_targets(made)
    return made


def started(tmp_path: Path, settings: SocketToKafkaSettings, failpoints: str = "") -> Running:
    """Start a driver."""
    command = ["sluicegate.cli", "run", "socket_to_kafka", "--once", *as_arguments(settings)]
    log = tmp_path / f"driver-{uuid.uuid4().hex[:6]}.log"
    return start(command, log, {VARIABLE: failpoints})


class Witness(threading.Thread):
    """Reads each segment as soon as it is logged, before its epoch is decided and pruned."""

    def __init__(self, settings: SocketToKafkaSettings) -> None:
        super().__init__(daemon=True)
        self._receipts = WriteAheadLog(open_store(settings.checkpoint))
        self._over = threading.Event()
        self.lines: list[bytes] = []
        self._seen = 0

    def run(self) -> None:
        while not self._over.wait(0.1):
            self._look()
        self._look()

    def _look(self) -> None:
        for number in range(self._seen + 1, self._receipts.newest() + 1):
            self.lines += self._receipts.read(number).column("line").to_pylist()
            self._seen = number

    def end(self) -> list[bytes]:
        """Return all logged lines in order."""
        self._over.set()
        self.join()
        return self.lines


def wait_logged(witness: Witness, last: int, running: Running) -> None:
    """Wait until a line is in the receipt log."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(line.startswith(b"%06d " % last) for line in list(witness.lines)):
        assert time.monotonic() < deadline, running.text()
        assert running.process.poll() is None, running.text()
        time.sleep(0.2)


def emptied(tmp_path: Path, settings: SocketToKafkaSettings) -> Ended:
    """Process the logged lines without receiving more."""
    now = dataclasses.replace(settings, interval="available-now", address="127.0.0.1:1")
    return started(tmp_path, now).wait()


@pytest.mark.timeout(600)
def test_every_logged_line_is_in_the_topic_once_and_in_order(
    services: Services, tmp_path: Path
) -> None:
    """The driver is killed while lines arrive; the sender reconnects to the next driver."""
    chance = Chance()
    point = chance.choice([*DRIVER_POINTS, *RECEIVER_POINTS])
    at = chance.randrange(5, 40) if point in RECEIVER_POINTS else chance.randrange(1, 5)
    chance.tell(f"{point}@{at}")
    with LineServer(line_of) as server:
        settings = settings_of(services, tmp_path, server.address)
        witness = Witness(settings)
        witness.start()
        killed = started(tmp_path, settings, f"{point}@{at}=kill-group").wait()
        assert killed.code == -signal.SIGKILL, killed.log
        lines = server.end_after(MORE_LINES)
        second = started(tmp_path, settings)
        wait_logged(witness, lines - 1, second)
        second.process.send_signal(signal.SIGTERM)
        ended = second.wait()
        assert ended.code == 0, ended.log
        assert server.connections == 2
    ended = emptied(tmp_path, settings)
    assert ended.code == 0, ended.log

    received = witness.end()
    numbers = [int(line[:6]) for line in received]
    assert numbers == sorted(set(numbers))
    delivered = [record.value for record in read_topic(settings.kafka, settings.topic)]
    whole = [line for line in received if not is_overlong(line)]
    assert delivered == whole
    assert all(line.endswith(b"\xff\xfe\r") for line in whole)
    letters = [
        json.loads(r.value or b"") for r in read_topic(settings.kafka, settings.dead_letters)
    ]
    buried = sorted(letter["payload"][:6].encode() for letter in letters)
    assert buried == [line[:6] for line in received if is_overlong(line)]
    for letter in letters:
        assert letter["reason"] == "overlong: the line has 5007 bytes, the limit is 4096"
        assert letter["source"]["socket"] == settings.address
