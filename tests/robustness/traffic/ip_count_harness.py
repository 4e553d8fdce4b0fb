"""Runs the ip_count job as a user does: in its own process if a test kills it, otherwise in a warm one.

Each test has its own `Scene`: topics, table, checkpoint and a filled source.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

from infra.local_services import Services
from infra.toolchain.maven import folder as jars_folder
from infra.workspace import CHECKOUT
from sluicegate.cli.options import as_arguments
from sluicegate.failpoints import VARIABLE
from sluicegate.packaged_job import JobSettings
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.ip_count.job import IpCountSettings, create_targets
from sluicegate_jobs.ip_count.verify import verify
from tests.robustness.failpoints.fault_matrix import exhaustive
from tests.robustness.traffic.warm_driver import WarmProcess

LINES, EPOCH_LINES = 1200, 200
"""Lines in a source; enough for about six epochs."""

PATIENCE_S = 250.0
"""A driver that has not exited by this time is killed and fails its test; a shutdown takes about 10 s."""

TIMEOUT_S = 180.0
"""Epoch timeout in a scene; generous, because two drivers may start on a busy machine."""

PARTITIONS = 2


SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A short-lived driver spends most of its time compiling; one compiler is enough."""

_BEGIN = datetime(2026, 1, 7, 12, 0, 0, tzinfo=UTC)


def access_lines(count: int = LINES, *, seed: int = 7) -> list[bytes]:
    """Return deterministic access-log lines: out of order, some late, some invalid."""
    chance = random.Random(seed)
    return [_line(i, chance) for i in range(count)]


def _line(i: int, chance: random.Random) -> bytes:
    kind = chance.random()
    behind_s = chance.uniform(0, 4) if kind > 0.02 else chance.uniform(30, 90)
    at = _BEGIN + timedelta(seconds=i * 0.1 - behind_s)
    address = f"10.0.0.{min(int(chance.expovariate(0.15)), 250)}"
    stamp = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    text = f'{address} - - [{stamp}] "GET /{i} HTTP/1.1" 200 {i} "-" "curl/8"'
    return (text if kind < 0.98 else text.replace("[", "(", 1)).encode()


def feed(bootstrap: str, topic: str, lines: Sequence[bytes]) -> None:
    """Send lines to a topic, round-robin over its partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for i, line in enumerate(lines):
        producer.produce(topic, line, partition=i % PARTITIONS)
    if producer.flush(30):
        raise TimeoutError(f"topic {topic} did not accept the lines of the test")


@dataclass(frozen=True)
class Ended:
    """Exit code and log of a driver or supervisor. A negative code is a signal's number."""

    code: int
    log: str
    seconds: float

    def epochs(self, how: str) -> list[int]:
        """Return the epochs that the log calls 'committed' or 'replayed', in order."""
        words = (line.partition(" epoch ")[2].split() for line in self.log.splitlines())
        return [int(w[0]) for w in words if len(w) > 1 and w[1] == f"{how}:"]


@dataclass
class Running:
    """A running driver."""

    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)

    def wait(self, timeout_s: float = PATIENCE_S) -> Ended:
        """Wait until it exits; kill the rest of its process group."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the driver did not exit in {timeout_s:g} s:\n{self.text()}"
            ) from None
        finally:
            self.kill()
        return Ended(code, self.text(), time.monotonic() - self.began)

    def wait_for(self, said: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the log contains a text."""
        deadline = time.monotonic() + timeout_s
        while said not in self.text():
            assert self.process.poll() is None, (
                f"it exited before it logged {said!r}:\n{self.text()}"
            )
            assert time.monotonic() < deadline, f"it never logged {said!r}:\n{self.text()}"
            time.sleep(0.05)

    def wait_stopped(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until SIGSTOP has stopped the process, as the failpoint 'stop-group' does."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        deadline = time.monotonic() + timeout_s
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, f"it was never stopped:\n{self.text()}"
            time.sleep(0.05)

    def text(self) -> str:
        """Return the log so far."""
        return self.log.read_text(errors="replace")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to Python and JVM."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill the rest of the process group."""
        try:
            self.signal_group(signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self.process.poll()


NOTHING: Mapping[str, str] = {}

CLUSTER: Mapping[str, str] = {"SLUICEGATE_MASTER": "local-cluster[2,1,1024]"}
"""Makes a driver start two executors, each in its own process."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a driver: that of this process, the jars and only the given failpoints."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    ours = {
        "SLUICEGATE_JARS": str(jars_folder("spark")),
        "JDK_JAVA_OPTIONS": SHORT_LIVED_JVM,
        "PYTHONPATH": str(
            CHECKOUT
        ),  # of tests.robustness.traffic.faulty_jobs, which executors import
    }
    return kept | ours | dict(more or {})


def start(command: Sequence[str], log: Path, more: Mapping[str, str] | None = None) -> Running:
    """Start a Python module with arguments as the leader of a new session."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment(more),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return Running(process, log)


def command_of(job: str, settings: JobSettings, *, supervised: bool = False) -> list[str]:
    """Return the module and arguments that run a packaged job."""
    how = "--supervised" if supervised else "--once"
    return ["sluicegate.cli", "run", job, how, *as_arguments(settings)]


def log_in(folder: Path) -> Path:
    """Return a new log file for a driver."""
    return folder / f"driver-{uuid.uuid4().hex[:6]}.log"


_WARM = WarmProcess()


def run_driver(command: Sequence[str], log: Path, more: Mapping[str, str]) -> Ended:
    """Run a driver until it exits: in the warm process unless it has variables or failpoints."""
    if exhaustive() or any(more.values()):
        return start(command, log, more).wait()
    began = time.monotonic()
    try:
        code = _WARM.run(command, log, environment(), PATIENCE_S)
    except TimeoutError:
        raise AssertionError(
            f"the driver did not exit in {PATIENCE_S:g} s:\n{log.read_text()}"
        ) from None
    return Ended(code, log.read_text(errors="replace"), time.monotonic() - began)


@dataclass(frozen=True)
class Scene:
    """A source, sinks and a checkpoint that no other test shares."""

    folder: Path
    settings: IpCountSettings

    @property
    def sinks(self) -> dict[str, str]:
        """Ids of the sinks by kind, in the order in which they are applied."""
        return {
            "kafka": f"kafka.{self.settings.topic}",
            "mysql": f"mysql.{self.settings.table}",
            "letters": f"kafka.{self.settings.dead_letters}",
        }

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's folder."""
        return Path(self.settings.checkpoint)

    def but(self, **changes: object) -> Scene:
        """Return the scene with other settings."""
        return Scene(self.folder, dataclasses.replace(self.settings, **changes))  # type: ignore[arg-type]

    def start(
        self, failpoints: str = "", *, supervised: bool = False, env: Mapping[str, str] = NOTHING
    ) -> Running:
        """Start a driver, or its supervisor."""
        command = command_of("ip_count", self.settings, supervised=supervised)
        return start(command, log_in(self.folder), {VARIABLE: failpoints, **env})

    def run(
        self, failpoints: str = "", *, supervised: bool = False, env: Mapping[str, str] = NOTHING
    ) -> Ended:
        """Run a driver, or its supervisor, until it exits."""
        if supervised:
            return self.start(failpoints, supervised=True, env=env).wait()
        command = command_of("ip_count", self.settings)
        return run_driver(command, log_in(self.folder), {VARIABLE: failpoints, **env})

    def run_job(
        self, name: str, failpoints: str = "", *, env: Mapping[str, str] = NOTHING
    ) -> Ended:
        """Run a driver of a job of tests.robustness.traffic.faulty_jobs until it exits."""
        return run_driver(self._job(name), log_in(self.folder), {VARIABLE: failpoints, **env})

    def start_job(
        self, name: str, failpoints: str = "", *, env: Mapping[str, str] = NOTHING
    ) -> Running:
        """Start a driver of a job of tests.robustness.traffic.faulty_jobs."""
        return start(self._job(name), log_in(self.folder), {VARIABLE: failpoints, **env})

    def _job(self, name: str) -> list[str]:
        return [
            "tests.robustness.traffic.faulty_jobs",
            name,
            json.dumps(dataclasses.asdict(self.settings)),
        ]

    def epoch_log(self) -> StoredEpochLog:
        """Return the epoch log of the checkpoint."""
        return StoredEpochLog(open_store(self.settings.checkpoint))

    def undecided(self) -> list[int]:
        """Return the epochs that Spark has begun and no driver has decided."""
        begun = {int(p.name) for p in (self.checkpoint / "offsets").glob("*") if p.name.isdecimal()}
        return sorted(begun - set(self.epoch_log().epochs()))

    def check_exact(self, lines: int = LINES) -> Mapping[str, int]:
        """Assert that all lines were read and the sinks are exact; return the counts of `verify`."""
        outcome = verify(self.settings)
        assert outcome.exact, outcome.findings
        read = outcome.checked["source lines"], outcome.checked["source lines not read yet"]
        assert read == (lines, 0)
        return outcome.checked


@contextmanager
def scene(
    services: Services,
    tmp_path: Path,
    *,
    lines: Sequence[bytes] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    **settings: object,
) -> Iterator[Scene]:
    """Yield a new scene.

    Args:
        services: Kafka and MySQL.
        tmp_path: folder for the checkpoint and the logs.
        lines: lines of the source; default `access_lines()`.
        configs: 'topic' or 'dead_letters' -> configuration of that topic.
        settings: job settings in addition to those of a scene.
    """
    name = f"f{uuid.uuid4().hex[:8]}"
    given = IpCountSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        source=f"{name}_source",
        topic=f"{name}_sink",
        table=f"{name}_table",
        dead_letters=f"{name}_letters",
        interval="available-now",
        max_records=EPOCH_LINES,
        timeout_s=TIMEOUT_S,
        kafka=services.kafka.bootstrap,
        mysql=services.mysql.url,
    )
    made = Scene(tmp_path, dataclasses.replace(given, **settings))  # type: ignore[arg-type]
    services.kafka.create_topic(made.settings.source, PARTITIONS)
    for role, config in (configs or {}).items():
        services.kafka.create_topic(getattr(made.settings, role), PARTITIONS, config)
    create_targets(made.settings)
    feed(services.kafka.bootstrap, made.settings.source, access_lines() if lines is None else lines)
    yield made
