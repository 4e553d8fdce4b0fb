"""How long a supervised job goes without a new epoch when its driver is killed with SIGKILL.

`sluicegate run ip_count`, with and without `--standby`, reads at a steady rate. A recovery begins at the
kill of Python, JVM and workers, and ends when an epoch that was not decided before is in every sink.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import Popen
from typing import Final

from infra.local_services import Services
from infra.toolchain.maven import folder as jars
from sluicegate.cli.options import as_arguments
from sluicegate.errors import SluicegateError
from sluicegate.spark.conf import JARS_VARIABLE
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import read_report
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.ip_count.job import IpCountSettings, create_targets
from sluicegate_jobs.ip_count.verify import verify
from tests.bench import child
from tests.bench.child import RunFailed
from tests.bench.figures import Run, percentile
from tests.bench.plan import RECOVERY, STANDBY
from tests.robustness.traffic.long_lived_job import processes
from tests.robustness.traffic.steady_traffic import SteadyTraffic, access_lines

LINES_S: Final = 500.0
INTERVAL: Final = "200 milliseconds"

_WARM_EPOCHS: Final = 10
_SETTLE_S: Final = 5.0
"""After the standby is ready, or the job goes on: what was started has come to rest."""
_PATIENCE_S: Final = 120.0
_TICK_S: Final = 0.01
_READY: Final = "the standby is ready"


def run(contender: str, round_: int, kills: int, services: Services, base: Path) -> Run:
    """Run a job through its kills; report any error as the run's anomaly."""
    folder = base / f"{RECOVERY}-{contender}-{round_}"
    folder.mkdir(parents=True)
    stem = f"{base.name}-{folder.name}"
    settings = IpCountSettings(
        checkpoint=str(folder / "checkpoint"),
        source=f"{stem}-source",
        topic=f"{stem}-sink",
        table=stem.replace("-", "_"),
        dead_letters=f"{stem}-letters",
        interval=INTERVAL,
        restart_attempts=kills,
        restart_delay_s=0.0,
        kafka=services.kafka.bootstrap,
        mysql=services.mysql.url,
    )
    create_targets(settings)
    try:
        return _measured(contender, round_, kills, settings, folder)
    except (RunFailed, TimeoutError, SluicegateError) as error:
        return Run(RECOVERY, contender, round_, anomaly=str(error))
    finally:
        for topic in (settings.source, settings.topic, settings.dead_letters):
            services.kafka.delete_topic(topic)


def _measured(
    contender: str, round_: int, kills: int, settings: IpCountSettings, folder: Path
) -> Run:
    command = [sys.executable, "-m", "sluicegate.cli", "run", "ip_count", "--supervised"]
    command += as_arguments(settings)
    if contender == STANDBY:
        command.append("--standby")
    environment = os.environ | {JARS_VARIABLE: str(jars("spark"))}
    traffic = SteadyTraffic(settings.kafka, settings.source, access_lines(round_), LINES_S)
    traffic.start()
    log = folder / child.LOG
    with child.running_command(command, log, environment) as supervisor:
        job = _Job(settings, supervisor, log)
        job.await_epoch(_WARM_EPOCHS)
        recoveries_s = []
        for kill in range(kills):
            if contender == STANDBY:
                job.await_log(_READY, kill + 1)
            time.sleep(_SETTLE_S)
            recoveries_s.append(job.recovery_s())
        traffic.stop()
        job.await_all_read()
        supervisor.send_signal(signal.SIGTERM)
        child.await_exit(supervisor, _PATIENCE_S, "the supervisor")
    outcome = verify(settings)
    if not outcome.exact:
        raise RunFailed(str(outcome.findings[0]))
    figures = {
        "recovery_p50_s": percentile(recoveries_s, 50),
        "recovery_max_s": max(recoveries_s),
    }
    return Run(RECOVERY, contender, round_, figures, detail={"recoveries_s": recoveries_s})


@dataclasses.dataclass(frozen=True)
class _Job:
    """A supervised job, seen through its checkpoint, its processes and its log."""

    settings: IpCountSettings
    supervisor: Popen[bytes]
    log: Path

    def recovery_s(self) -> float:
        """Kill the driver; return how long it takes until the next epoch is in every sink."""
        driver = self._driver()
        killed = time.monotonic()
        for process in processes():
            if process.session == driver:
                os.kill(process.pid, signal.SIGKILL)
        decided = StoredEpochLog(open_store(self.settings.checkpoint)).newest()
        self.await_epoch(0 if decided is None else decided + 1)
        return time.monotonic() - killed

    def await_epoch(self, epoch: int) -> None:
        """Wait until every sink has an epoch."""
        store = open_store(self.settings.checkpoint)
        self._wait(lambda: read_report(store, epoch) is not None, f"epoch {epoch} in every sink")

    def await_log(self, text: str, times: int) -> None:
        """Wait until the log has a text a number of times."""
        self._wait(lambda: self.log.read_text(errors="replace").count(text) >= times, text)

    def await_all_read(self) -> None:
        """Wait until every line that was sent is in the sinks."""
        self._wait(self._all_read, "every line in the sinks")

    def _all_read(self) -> bool:
        try:
            checked: Mapping[str, int] = verify(self.settings).checked
        except SluicegateError:
            return False  # an epoch is between two sinks
        return checked["source lines not read yet"] == 0

    def _driver(self) -> int:
        """Return the process id of the driver: the eldest child, because a standby is started later."""
        children = [p.pid for p in processes() if p.parent == self.supervisor.pid]
        if not children:
            raise RunFailed("the supervisor has no driver")
        return min(children, key=_started)

    def _wait(self, met: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not met():
            if self.supervisor.poll() is not None:
                raise RunFailed(f"the supervisor exited: {child.last_words(self.log.parent)}")
            if time.monotonic() > deadline:
                raise RunFailed(f"not within {_PATIENCE_S:.0f} s: {what}")
            time.sleep(_TICK_S)


def _started(pid: int) -> int:
    """Return when a process was started, in clock ticks since the boot."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[19])
