"""A user's script in a driver's container, with Spark: where it is told, stopped, killed, finished, moved.

What needs no Spark is in tests/unit/pod; executors in pods need a kubelet and are not tested.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluicegate.checkpoint.savepoints import take
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage, create_lineage, read_lineage
from sluicegate.storage.objects import LocalObjects, Objects
from tests.faults.harness import TIMEOUT_S, Ended, Running, start
from tests.loopback_api import ApiServer, api_server
from tests.unit.checkpoint.made import record

pytestmark = [pytest.mark.faults, pytest.mark.slow]

JOB = Path(__file__).with_name("pod_job.py")

HITS = 3
"""In each file, and so in each epoch, all of one address."""


@dataclass(frozen=True)
class Pod:
    """A driver's container whose job is `pod_job`."""

    folder: Path
    server: ApiServer

    @property
    def objects(self) -> Objects:
        return LocalObjects(self.checkpoint())

    def checkpoint(self, number: int = 1) -> Path:
        return self.folder / "volume" / "job" / str(number)

    def add(self, files: int) -> None:
        """Add input of so many epochs."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        there = len(list(source.iterdir()))
        for i in range(there, there + files):
            file = source / f"{i:04}.json"
            file.write_text('{"ip": "10.0.0.1"}\n' * HITS)
            os.utime(file, (1_000_000 + i, 1_000_000 + i))  # read in this order

    def start(self, *, number: int = 1, interval: str = AVAILABLE_NOW, **more: str) -> Running:
        command = ["sluicegate.pod", "--file", str(JOB), "--", str(self.folder / "source")]
        environment = {
            "SLUICEGATE_CHECKPOINT": str(self.checkpoint(number)),
            "SLUICEGATE_EPOCHS": json.dumps(
                {"interval": interval, "min_pause_ms": 0, "timeout_s": TIMEOUT_S}
            ),
            "SLUICEGATE_SPARK_CONF": json.dumps({"spark.sql.shuffle.partitions": "1"}),
            "SLUICEGATE_MASTER": "local[1]",
            "SLUICEGATE_OUTCOME": str(self.folder / "outcome"),
            **self.server.environment(),
        }
        log = self.folder / f"driver-{uuid.uuid4().hex[:6]}.log"
        return start([*command, str(self.folder / "told")], log, {**environment, **more})

    def run(self, *, number: int = 1, **more: str) -> Ended:
        return self.start(number=number, **more).wait()

    @property
    def told(self) -> list[int]:
        """What the sink of the last driver held at its end."""
        found: list[int] = json.loads((self.folder / "told").read_text())
        return found

    @property
    def outcome(self) -> str:
        """The kind of error that the last driver has left."""
        file = self.folder / "outcome"
        return str(json.loads(file.read_text())["kind"]) if file.exists() else ""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with api_server(tmp_path / "cluster") as server:
        made = Pod(tmp_path, server)
        made.add(2)
        yield made


def totals(first: int, last: int) -> list[int]:
    """Return what the epochs from `first` to `last` tell, each once."""
    return [HITS * (epoch + 1) for epoch in range(first, last + 1)]


def test_a_moved_job_goes_on_exactly_where_it_is_told(pod: Pod) -> None:
    """The script's own checkpoint and trigger do not count; a restore is killed in between."""
    ended = pod.run()
    assert ended.code == 0, ended.log
    assert pod.told == totals(0, 1)
    assert pod.server.requests[0].progress["epoch"] == 0
    assert pod.server.requests[-1].progress["epoch"] == 1
    made = take(str(pod.checkpoint()), str(pod.folder / "savepoints"), seal=True)
    pod.add(2)
    where = {"SLUICEGATE_RESTORE_FROM": made.url}
    killed = pod.run(number=2, **where, **{VARIABLE: "restore-copying=kill-group"})
    assert killed.code == -signal.SIGKILL
    moved = pod.run(number=2, **where)
    assert moved.code == 0, moved.log
    assert pod.told == totals(2, 3)
    found = read_lineage(LocalObjects(pod.checkpoint(2)))
    assert found is not None
    assert found.moved


def test_sigterm_ends_a_stream_at_an_epochs_end_with_0(pod: Pod) -> None:
    """It reports meanwhile that it lives, though there is nothing to do."""
    driver = pod.start(interval="1 second")
    count = 1
    while [r.progress["epoch"] for r in pod.server.wait(count, timeout_s=250)].count(1) < 2:
        count += 1
    first, *_, before, last = pod.server.requests
    assert first.progress["epoch"] == 0
    assert before.progress["at"] < last.progress["at"]
    driver.process.send_signal(signal.SIGTERM)
    ended = driver.wait()
    assert ended.code == 0, ended.log
    assert pod.told == totals(0, 1)
    assert pod.outcome == ""


def test_what_a_killed_driver_decided_is_finished_without_a_query(pod: Pod) -> None:
    killed = pod.run(number=1, **{VARIABLE: "after-decide@0=kill-group"})
    assert killed.code == -signal.SIGKILL, killed.log
    ended = pod.run(SLUICEGATE_PURPOSE="finish")
    assert ended.code == 0, ended.log
    assert "started" not in ended.log.splitlines()
    assert pod.told == totals(0, 0)
    assert StoredEpochLog(pod.objects).epochs() == [0]
    again = pod.run(SLUICEGATE_PURPOSE="finish")
    assert again.code == 0, again.log
    assert "nothing is to be finished" in again.log


def test_a_driver_that_another_has_overtaken_says_fenced(pod: Pod) -> None:
    create_lineage(pod.objects, Lineage("other", "counts"))
    StoredEpochLog(pod.objects).create(record(5, "other"))
    ended = pod.run()
    assert ended.code == 65, ended.log
    assert pod.outcome == "Fenced"
    assert pod.told == []
