"""Jobs that run while somebody views them: in the session of the test, or in drivers of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from infra.local_services import Services
from sluicegate.failpoints import VARIABLE
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.query import EpochsQuery
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate_jobs.ip_count import job as ip_count
from sluicegate_jobs.ip_count.job import IpCountSettings
from sluicegate_jobs.two_sinks import job as two_sinks
from sluicegate_jobs.two_sinks.job import TwoSinksSettings
from sluicegate_jobs.word_count import job as word_count
from sluicegate_jobs.word_count.job import WordCountSettings
from tests.robustness.traffic.ip_count_harness import RunningDriver, command_of, environment
from tests.robustness.traffic.ip_count_harness import start as start_driver
from tests.waiting import wait_until

SOON_S = 120.0
"""How long a job may take for what a test waits for, on a machine that is busy with other tests."""

PARTITIONS = 4


@dataclass(frozen=True)
class Stage:
    """Where jobs with faults run, below a folder that a console shows."""

    services: Services
    checkpoints: Path

    def checkpoint(self, fault: str) -> LocalObjectStore:
        return LocalObjectStore(self.checkpoints / fault)

    def source(self, fault: str, records: Iterable[bytes]) -> str:
        """Create the source of a job and fill it; return its topic."""
        topic = f"{fault}-in"
        self.services.kafka.create_topic(topic, PARTITIONS)
        self.send(topic, records)
        return topic

    def send(self, topic: str, records: Iterable[bytes], bootstrap: str = "") -> None:
        """Send records to a topic and wait until Kafka has them; default: the Kafka of all tests."""
        servers = bootstrap or self.services.kafka.bootstrap
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0})
        for record in records:
            producer.produce(topic, record)
        assert not producer.flush(30)

    def two_sinks(self, fault: str, **settings: object) -> TwoSinksSettings:
        """Return the settings of a job into Kafka and MySQL with a source, and create its targets."""
        values = self._common(fault) | {"topic": f"{fault}-out"} | settings
        made = TwoSinksSettings(**values)
        two_sinks.create_targets(made)
        return made

    def ip_count(self, fault: str, **settings: object) -> IpCountSettings:
        """As `two_sinks`, of the job with windows and late rows."""
        values = self._common(fault) | {"topic": f"{fault}-out"} | settings
        made = IpCountSettings(**values)
        ip_count.create_targets(made)
        return made

    def word_count(self, fault: str, **settings: object) -> WordCountSettings:
        """As `two_sinks`, of the job whose state has every word that it has ever read."""
        made = WordCountSettings(**(self._common(fault) | settings))
        word_count.create_targets(made)
        return made

    def _common(self, fault: str) -> dict[str, Any]:
        return {
            "checkpoint": str(self.checkpoints / fault),
            "interval": "1 second",
            "min_pause_ms": 0,
            "kafka": self.services.kafka.bootstrap,
            "mysql": self.services.mysql.url,
            "source": f"{fault}-in",
            "table": fault.replace("-", "_"),
            "dead_letters": f"{fault}-letters",
            "apply_timeout_s": 4.0,
        }

    def newest(self, fault: str) -> int | None:
        """Return the newest decided epoch of a job, None before its first one."""
        return StoredEpochLog(self.checkpoint(fault)).newest()

    def await_epochs(self, fault: str, number: int) -> None:
        """Wait until a job has decided an epoch with this number."""

        def decided() -> bool:
            newest = self.newest(fault)
            return newest is not None and newest >= number

        wait_until(decided, f"epoch {number} of {fault}", seconds=SOON_S)

    def await_read(self, fault: str, records: int) -> None:
        """Wait until a job has decided an epoch up to which it has read so many records of Kafka."""

        def read() -> bool:
            newest = self.newest(fault)
            stored = self.checkpoint(fault).read(f"offsets/{newest}")
            if stored is None:
                return False
            topics = json.loads(stored.splitlines()[-1])
            return sum(sum(offsets.values()) for offsets in topics.values()) >= records

        wait_until(read, f"record {records} of {fault}", seconds=SOON_S)

    def await_failure(self, fault: str) -> None:
        """Wait until the failure of a driver is recorded."""
        store = self.checkpoint(fault)
        wait_until(lambda: any(store.entries("failures/")), f"a failure of {fault}", seconds=SOON_S)


@contextmanager
def running(writer: EpochsWriter) -> Iterator[EpochsQuery]:
    """Run a job in the session of this process."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def supervised(
    settings: TwoSinksSettings, folder: Path, failpoints: str = ""
) -> Iterator[RunningDriver]:
    """Run `sluicegate run two_sinks`: a supervisor with a driver."""
    command = command_of("two_sinks", settings, supervised=True)
    with _killed(start_driver(command, folder / "driver.log", {VARIABLE: failpoints})) as driver:
        yield driver
        driver.process.terminate()  # the supervisor ends its driver, whose group is another
        driver.process.wait(SOON_S)


@contextmanager
def zombie(settings: TwoSinksSettings, folder: Path, failpoints: str) -> Iterator[RunningDriver]:
    """Run the same driver as a pod does, whose machine may be silent and then come back."""
    command = ["sluicegate.driver", "--module", "sluicegate.cli", "--"]
    command += command_of("two_sinks", settings)[1:]
    variables = {
        VARIABLE: failpoints,
        "SLUICEGATE_CHECKPOINT": settings.checkpoint,
        "SLUICEGATE_TERMINATION_FILE": str(folder / "termination"),
    }
    with _killed(start_driver(command, folder / "driver.log", variables)) as driver:
        yield driver


@contextmanager
def _killed(driver: RunningDriver) -> Iterator[RunningDriver]:
    try:
        yield driver
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(driver.process.pid).children(recursive=True):
                child.kill()  # of a supervisor: its driver is in another group
        driver.kill()
        driver.process.wait(SOON_S)


@contextmanager
def console(checkpoints: Path, kafka: str) -> Iterator[str]:
    """Run `sluicegate ui` and yield its address."""
    command = [sys.executable, "-m", "sluicegate.cli", "ui", checkpoints.name, "--port", "0"]
    command += ["--refresh-s", "0.5", "--kafka", kafka]
    process = subprocess.Popen(
        command, cwd=checkpoints.parent, stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        with process:
            process.wait(30)


def sums(count: int, first: int = 0) -> list[bytes]:
    """Return input of two_sinks, each with a key of its own."""
    rows = (
        {
            "time": f"2026-01-07T12:{i // 60 % 60:02}:{i % 60:02}Z",
            "key1": f"k{i}",
            "key2": "a",
            "key3": "b",
            "indicate": i,
        }
        for i in range(first, first + count)
    )
    return [json.dumps(row).encode() for row in rows]
