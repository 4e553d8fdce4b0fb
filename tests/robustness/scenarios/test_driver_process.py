"""A user's script in a driver process with Spark: moved, stopped, killed, apply-only, fenced.

Cases without Spark are in tests/unit/driver. Executors in pods need a kubelet and are not tested here.
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

from infra.workspace import CHECKOUT
from sluicegate.failpoints import VARIABLE
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage, create_lineage, read_lineage
from sluicegate.storage.object_store import LocalObjectStore, ObjectStore
from tests.loopback_api import ApiServer, api_server
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_TIMEOUT_S,
    DriverResult,
    RunningDriver,
    start,
)
from tests.unit.savepoints.builders import record, take

pytestmark = [pytest.mark.faults, pytest.mark.slow]

JOB = CHECKOUT / "tests" / "robustness" / "traffic" / "driver_job.py"

HITS = 3
"""Hits per file, and so per epoch, all of one address."""


@dataclass(frozen=True)
class Pod:
    """A driver container whose job is `driver_job`."""

    folder: Path
    server: ApiServer

    @property
    def store(self) -> ObjectStore:
        return LocalObjectStore(self.checkpoint())

    def checkpoint(self, number: int = 1) -> Path:
        return self.folder / "volume" / "job" / str(number)

    def add(self, files: int) -> None:
        """Add input for a number of epochs."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        existing = len(list(source.iterdir()))
        for i in range(existing, existing + files):
            file = source / f"{i:04}.json"
            file.write_text('{"ip": "10.0.0.1"}\n' * HITS)
            os.utime(file, (1_000_000 + i, 1_000_000 + i))  # sets the read order

    def start(
        self, *, number: int = 1, interval: str = AVAILABLE_NOW, **variables: str
    ) -> RunningDriver:
        command = ["sluicegate.driver", "--file", str(JOB), "--", str(self.folder / "source")]
        environment = {
            "SLUICEGATE_CHECKPOINT": str(self.checkpoint(number)),
            "SLUICEGATE_EPOCHS": json.dumps(
                {"interval": interval, "min_pause_ms": 0, "timeout_s": EPOCH_TIMEOUT_S}
            ),
            "SLUICEGATE_SPARK_CONF": json.dumps({"spark.sql.shuffle.partitions": "1"}),
            "SLUICEGATE_MASTER": "local[1]",
            "SLUICEGATE_TERMINATION_FILE": str(self.folder / "termination"),
            **self.server.environment(),
        }
        log = self.folder / f"driver-{uuid.uuid4().hex[:6]}.log"
        return start([*command, str(self.folder / "emitted")], log, {**environment, **variables})

    def run(self, *, number: int = 1, **variables: str) -> DriverResult:
        return self.start(number=number, **variables).wait()

    @property
    def emitted(self) -> list[int]:
        """The totals in the sink of the last driver when it exited."""
        values: list[int] = json.loads((self.folder / "emitted").read_text())
        return values

    @property
    def reason(self) -> str:
        """The error class in the termination file of the last driver."""
        file = self.folder / "termination"
        return str(json.loads(file.read_text())["kind"]) if file.exists() else ""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with api_server(tmp_path / "cluster") as server:
        driver_pod = Pod(tmp_path, server)
        driver_pod.add(2)
        yield driver_pod


def expected_totals(first: int, last: int) -> list[int]:
    """Return the totals that epochs `first` to `last` emit, each once."""
    return [HITS * (epoch + 1) for epoch in range(first, last + 1)]


def test_a_moved_job_continues_at_the_checkpoint_of_its_environment(pod: Pod) -> None:
    """The environment overrides the script's checkpoint and interval; one restore is killed."""
    result = pod.run()
    assert result.code == 0, result.log
    assert pod.emitted == expected_totals(0, 1)
    assert pod.server.requests[0].progress["epoch"] == 0
    assert pod.server.requests[-1].progress["epoch"] == 1
    savepoint = take(str(pod.checkpoint()), str(pod.folder / "savepoints"), seal=True)
    pod.add(2)
    restore_variables = {"SLUICEGATE_RESTORE_FROM": savepoint.url}
    killed = pod.run(number=2, **restore_variables, **{VARIABLE: "restore-copying=kill-group"})
    assert killed.code == -signal.SIGKILL
    moved = pod.run(number=2, **restore_variables)
    assert moved.code == 0, moved.log
    assert pod.emitted == expected_totals(2, 3)
    lineage = read_lineage(LocalObjectStore(pod.checkpoint(2)))
    assert lineage is not None
    assert lineage.moved


def test_sigterm_stops_a_stream_after_its_epoch_with_exit_code_0(pod: Pod) -> None:
    """An idle stream keeps reporting its progress. The driver says that it was stopped."""
    driver = pod.start(interval="1 second")
    count = 1
    while [r.progress["epoch"] for r in pod.server.wait(count, timeout_s=250)].count(1) < 2:
        count += 1
    first, *_, before, last = pod.server.requests
    assert first.progress["epoch"] == 0
    assert before.progress["at"] < last.progress["at"]
    driver.process.send_signal(signal.SIGTERM)
    result = driver.wait()
    assert result.code == 0, result.log
    assert pod.emitted == expected_totals(0, 1)
    assert pod.reason == "Stopped"


def test_an_epoch_that_a_killed_driver_decided_is_applied_without_a_query(pod: Pod) -> None:
    sink = str(pod.folder / "sink")
    killed = pod.run(number=1, KEPT_STORE=sink, **{VARIABLE: "after-decide@0=kill-group"})
    assert killed.code == -signal.SIGKILL, killed.log
    assert "started" in killed.log.splitlines()
    result = pod.run(SLUICEGATE_MODE="apply-only", KEPT_STORE=sink)
    assert result.code == 0, result.log
    assert "started" not in result.log.splitlines()
    assert pod.emitted == expected_totals(0, 0)
    assert StoredEpochLog(pod.store).epochs() == [0]
    second = pod.run(SLUICEGATE_MODE="apply-only", KEPT_STORE=sink)
    assert second.code == 0, second.log
    assert "nothing to apply" in second.log


def test_a_superseded_driver_exits_fenced(pod: Pod) -> None:
    create_lineage(pod.store, Lineage("other", "counts"))
    StoredEpochLog(pod.store).create(record(5, "other"))
    result = pod.run()
    assert result.code == 65, result.log
    assert pod.reason == "Fenced"
    assert pod.emitted == []
