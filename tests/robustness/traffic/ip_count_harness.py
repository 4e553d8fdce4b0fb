"""Runs the ip_count job as a user does: in its own process if a test kills it, otherwise in a warm one.

Each test has its own `Scenario`: topics, table, checkpoint and a filled source.
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
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

from infra.local_services import Services
from infra.toolchain.maven import folder as jars_folder
from infra.workspace import CHECKOUT
from sluicegate.cli.options import as_arguments
from sluicegate.errors import SluicegateError
from sluicegate.failpoints import VARIABLE
from sluicegate.packaged_job import JobSettings
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.ip_count.job import IpCountSettings, create_targets
from sluicegate_jobs.ip_count.verify import verify
from tests.robustness.failpoints.fault_matrix import exhaustive
from tests.robustness.traffic.warm_driver import WarmProcess
from tests.robustness.validate.checker.running_jobs import check_job

LINES, EPOCH_LINES = 1200, 200
"""Lines in a source; enough for about six epochs."""

UNPARSED, LATE = 17, 15
"""What the job must refuse of them: fewer or more would be lines that were lost, or counted although late.

So many are late if the first three epochs have EPOCH_LINES each, however many read the rest. In one epoch
none is.
"""

DRIVER_TIMEOUT_S = 250.0
"""A driver that has not exited by this time is killed and fails its test; a shutdown takes about 10 s."""

EPOCH_TIMEOUT_S = 180.0
"""Epoch timeout in a scenario; generous, because two drivers may start on a busy machine."""

PARTITIONS = 2


_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A short-lived driver spends most of its time compiling; one compiler is enough."""

_BEGIN = datetime(2026, 1, 7, 12, 0, 0, tzinfo=UTC)


_LINES_A_SECOND = 10  # of their time

LONG_ADDRESSES = 197
"""Counts of addresses with more than eight characters, if each epoch has EPOCH_LINES: one for each epoch
that changes it."""


def access_lines(count: int = LINES, *, seed: int = 7) -> list[bytes]:
    """Return deterministic access-log lines: out of order, some late, some invalid."""
    rng = random.Random(seed)
    return [_line(i, rng) for i in range(count)]


def count_unparsed(lines: Sequence[bytes]) -> int:
    """Return how many access-log lines are invalid."""
    return sum(b"(" in line for line in lines)


def _line(i: int, rng: random.Random) -> bytes:
    kind = rng.random()
    delay_s = rng.uniform(0, 4) if kind > 0.02 else rng.uniform(30, 90)
    at = _BEGIN + timedelta(seconds=i * 0.1 - delay_s)
    address = f"10.0.0.{min(int(rng.expovariate(0.15)), 250)}"
    timestamp = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    line = f'{address} - - [{timestamp}] "GET /{i} HTTP/1.1" 200 {i} "-" "curl/8"'
    return (line if kind < 0.98 else line.replace("[", "(", 1)).encode()


def feed(bootstrap: str, topic: str, lines: Sequence[bytes], *, in_step: bool = False) -> None:
    """Send lines to a topic, round-robin over its partitions.

    Args:
        bootstrap: address of Kafka.
        topic: its name.
        lines: what to send.
        in_step: wait after each second of lines, so that a running job reads both partitions equally
            far; otherwise an epoch may read many lines of one before the first of the other.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for i, line in enumerate(lines):
        producer.produce(topic, line, partition=i % PARTITIONS)
        if in_step and i % _LINES_A_SECOND == 0:
            producer.flush(30)
    if producer.flush(30):
        raise TimeoutError(f"topic {topic} did not accept the lines of the test")


@dataclass(frozen=True)
class DriverResult:
    """Exit code and log of a driver or supervisor. A negative code is a signal's number."""

    code: int
    log: str

    def epochs(self, outcome: str) -> list[int]:
        """Return the epochs that the log calls 'committed' or 'replayed', in order."""
        parts = (line.partition(" epoch ")[2].split() for line in self.log.splitlines())
        return [int(words[0]) for words in parts if len(words) > 1 and words[1] == f"{outcome}:"]


@dataclass
class RunningDriver:
    """A running driver."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, timeout_s: float = DRIVER_TIMEOUT_S) -> DriverResult:
        """Wait until it exits; kill the rest of its process group."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the driver did not exit in {timeout_s:g} s:\n{self.text()}"
            ) from None
        finally:
            self.kill()
        return DriverResult(code, self.text())

    def wait_for(self, text: str, timeout_s: float = DRIVER_TIMEOUT_S) -> None:
        """Wait until the log contains a text."""
        deadline = time.monotonic() + timeout_s
        while text not in self.text():
            assert self.process.poll() is None, (
                f"it exited before it logged {text!r}:\n{self.text()}"
            )
            assert time.monotonic() < deadline, f"it never logged {text!r}:\n{self.text()}"
            time.sleep(0.05)

    def wait_stopped(self, timeout_s: float = DRIVER_TIMEOUT_S) -> None:
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


_INSTALLED_JOBS = Path(__file__).parent / "installed"
"""Metadata of a package with the jobs of tests, so that `sluicegate run` finds them as it finds a user's."""

NO_VARIABLES: Mapping[str, str] = {}

CLUSTER: Mapping[str, str] = {"SLUICEGATE_MASTER": "local-cluster[2,1,1024]"}
"""Makes a driver start two executors, each in its own process."""


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a driver: that of this process, the jars and only the given failpoints."""
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    driver_variables = {
        "SLUICEGATE_JARS": str(jars_folder("spark")),
        "JDK_JAVA_OPTIONS": _SHORT_LIVED_JVM,
        # executors import tests.robustness.traffic.faulty_jobs; the library is that of this
        # checkout, even if the environment was made for another one
        "PYTHONPATH": os.pathsep.join(
            map(str, (CHECKOUT, CHECKOUT / "jobs" / "src", _INSTALLED_JOBS))
        ),
    }
    return inherited | driver_variables | dict(variables or {})


def start(
    command: Sequence[str],
    log: Path,
    variables: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    *,
    within: Sequence[str] = (),
) -> RunningDriver:
    """Start a Python module with arguments as the leader of a new session.

    Args:
        command: the module and its arguments.
        log: file for its output.
        variables: more than those of `environment`.
        pass_fds: file descriptors that it inherits.
        within: a command that executes the one after it, such as `unshare`.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*within, sys.executable, "-m", *command],
            env=environment(variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    return RunningDriver(process, log)


def command_of(job: str, settings: JobSettings, *, supervised: bool = False) -> list[str]:
    """Return the module and arguments that run a packaged job."""
    mode = "--supervised" if supervised else "--once"
    return ["sluicegate.cli", "run", job, mode, *as_arguments(settings)]


def new_log_file(folder: Path) -> Path:
    """Return a new log file for a driver."""
    return folder / f"driver-{uuid.uuid4().hex[:6]}.log"


_WARM_PROCESS = WarmProcess()


def run_driver(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> DriverResult:
    """Run a driver until it exits: in the warm process unless it has variables or failpoints."""
    if exhaustive() or any(variables.values()):
        return start(command, log, variables).wait()
    try:
        code = _WARM_PROCESS.run(command, log, environment(), DRIVER_TIMEOUT_S)
    except TimeoutError:
        raise AssertionError(
            f"the driver did not exit in {DRIVER_TIMEOUT_S:g} s:\n{log.read_text()}"
        ) from None
    return DriverResult(code, log.read_text(errors="replace"))


@dataclass(frozen=True)
class Scenario:
    """A source, sinks and a checkpoint that no other test shares."""

    folder: Path
    settings: IpCountSettings

    @property
    def sinks(self) -> dict[str, str]:
        """Ids of the sinks by kind, in the order in which they are applied."""
        return {
            "kafka": f"kafka.{self.settings.topic}",
            "mysql": f"mysql.{self.settings.table}",
            "dead-letters": f"kafka.{self.settings.dead_letters}",
        }

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's folder."""
        return Path(self.settings.checkpoint)

    def with_settings(self, **changes: object) -> Scenario:
        """Return the scenario with changed settings."""
        return Scenario(self.folder, dataclasses.replace(self.settings, **changes))  # type: ignore[arg-type]

    def start(
        self,
        failpoints: str = "",
        *,
        supervised: bool = False,
        env: Mapping[str, str] = NO_VARIABLES,
    ) -> RunningDriver:
        """Start a driver, or its supervisor."""
        command = command_of("ip_count", self.settings, supervised=supervised)
        return start(command, new_log_file(self.folder), {VARIABLE: failpoints, **env})

    def run(
        self,
        failpoints: str = "",
        *,
        supervised: bool = False,
        env: Mapping[str, str] = NO_VARIABLES,
    ) -> DriverResult:
        """Run a driver, or its supervisor, until it exits."""
        if supervised:
            return self.start(failpoints, supervised=True, env=env).wait()
        command = command_of("ip_count", self.settings)
        return run_driver(command, new_log_file(self.folder), {VARIABLE: failpoints, **env})

    def finish(self) -> DriverResult:
        """Process the remaining input in as few epochs as possible; the driver must exit with code 0."""
        result = self.with_settings(max_records=100_000).run()
        assert result.code == 0, result.log
        return result

    def failpoint(self, point: str, sink: str, epoch: int) -> str:
        """Return a failpoint such as 'before-commit:kafka.topic@2'; `sink` is a key of `sinks` or empty."""
        return f"{point}{f':{self.sinks[sink]}' if sink else ''}@{epoch}"

    def run_job(
        self, name: str, failpoints: str = "", *, env: Mapping[str, str] = NO_VARIABLES
    ) -> DriverResult:
        """Run a driver of a job of tests.robustness.traffic.faulty_jobs until it exits."""
        return run_driver(self._job(name), new_log_file(self.folder), {VARIABLE: failpoints, **env})

    def start_job(
        self, name: str, failpoints: str = "", *, env: Mapping[str, str] = NO_VARIABLES
    ) -> RunningDriver:
        """Start a driver of a job of tests.robustness.traffic.faulty_jobs."""
        return start(self._job(name), new_log_file(self.folder), {VARIABLE: failpoints, **env})

    def _job(self, name: str) -> list[str]:
        return [
            "tests.robustness.traffic.faulty_jobs",
            name,
            json.dumps(dataclasses.asdict(self.settings)),
        ]

    def epoch_log(self) -> StoredEpochLog:
        """Return the epoch log of the checkpoint."""
        return StoredEpochLog(open_store(self.settings.checkpoint))

    def all_read(self) -> bool:
        """Return whether every line is read and in both sinks; the job may be running."""
        try:
            return verify(self.settings).checked["source lines not read yet"] == 0
        except SluicegateError:
            return False  # an epoch is between two sinks

    def check_exact(
        self,
        lines: int = LINES,
        *,
        unparsed: int = UNPARSED,
        late: int | Container[int] = LATE,
        refused: int = 0,
    ) -> Mapping[str, int]:
        """Assert that all lines were read and the sinks are exact; return the counts of `verify`.

        `verify` accepts any number of dead letters that it can justify, so a test pins them.

        Args:
            lines: lines of the source.
            unparsed: those that are invalid.
            late: those that are late, or the possible numbers if the epochs decide it.
            refused: dead letters of counts that a sink refused.
        """
        outcome = verify(self.settings)
        assert outcome.exact, outcome.findings
        checked = outcome.checked
        assert (checked["source lines"], checked["source lines not read yet"]) == (lines, 0)
        possible = range(late, late + 1) if isinstance(late, int) else late
        assert checked["late lines"] in possible, checked
        assert checked["dead letters"] == unparsed + checked["late lines"] + refused, checked
        return checked

    def check_rows(self) -> None:
        """Assert the same by the checker that shares no code with the job, and pin the dead letters.

        For `access_lines()` in epochs of `EPOCH_LINES` up to that of a kill at least, with the rest in
        any number of epochs.
        """
        report = check_job("ip_count", self.settings, skew=LINES // 100)
        assert not report.anomalies, report
        assert (report.rows, report.letters) == (LINES, {"unparsed": UNPARSED, "late": LATE})


def new_scenario(
    services: Services,
    tmp_path: Path,
    *,
    lines: Sequence[bytes] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    **settings: object,
) -> Scenario:
    """Create topics, table and input of a new scenario.

    Args:
        services: Kafka and MySQL.
        tmp_path: folder for the checkpoint and the logs.
        lines: lines of the source; default `access_lines()`.
        configs: 'topic' or 'dead_letters' -> configuration of that topic.
        settings: job settings in addition to those of a scenario.
    """
    name = f"f{uuid.uuid4().hex[:8]}"
    defaults = IpCountSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        source=f"{name}_source",
        topic=f"{name}_sink",
        table=f"{name}_table",
        dead_letters=f"{name}_letters",
        interval="available-now",
        max_records=EPOCH_LINES,
        timeout_s=EPOCH_TIMEOUT_S,
        kafka=services.kafka.bootstrap,
        mysql=services.mysql.url,
    )
    scenario = Scenario(tmp_path, dataclasses.replace(defaults, **settings))  # type: ignore[arg-type]
    services.kafka.create_topic(scenario.settings.source, PARTITIONS)
    for role, config in (configs or {}).items():
        services.kafka.create_topic(getattr(scenario.settings, role), PARTITIONS, config)
    create_targets(scenario.settings)
    feed(
        services.kafka.bootstrap,
        scenario.settings.source,
        access_lines() if lines is None else lines,
    )
    return scenario
