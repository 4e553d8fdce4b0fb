"""The long run: a job at a steady rate, the faults of a seed one after another, and a judgment at the end."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewPartitions

from infra.local_services import Services
from sluicegate.errors import FINAL_EXIT_CODES
from sluicegate.packaged_job import PackagedJob
from sluicegate.settings.epoch import AVAILABLE_NOW, EXACTLY_ONCE
from sluicegate_jobs import ip_count, two_sinks
from tests.robustness.failpoints.fault_plan import (
    ANY_MOMENT,
    DRIVER_ACTORS,
    OBJECTS,
    STORE_EFFECTS,
    Actor,
    Change,
    PlannedFault,
    Strike,
    draw_plan,
)
from tests.robustness.failpoints.s3_proxy import Fault, S3Proxy
from tests.robustness.failpoints.strikes import Strikes, Violated
from tests.robustness.history.recorder import Recorder
from tests.robustness.traffic.ip_count_harness import command_of, start
from tests.robustness.traffic.long_lived_job import ArmedFailpoints, Driver, LongLivedJob
from tests.robustness.traffic.packaged_job_harness import JobScenario, new_job_scenario
from tests.robustness.traffic.steady_traffic import SteadyTraffic, access_lines, indicators
from tests.robustness.validate.checker.running_jobs import check_job
from tests.robustness.validate.readers import SinkReaders

REACH_TIMEOUT_S = 60.0
"""How long a failpoint is waited for; then the actor fails wherever the driver is."""

RECOVERY_TIMEOUT_S = 240.0
"""A job whose sinks have no new rows by then is stuck."""

DRAIN_TIMEOUT_S = 600.0
READER_SLACK_S = 15.0
"""Kafka looks every 10 s for transactions that have timed out."""

_TICK_S = 0.05
_SETTLE_S = 0.5
_SKEW = 2000


@dataclass(frozen=True)
class RunJob:
    """A job of the run: its input, and an SQL expression that changes with each of its rows."""

    job: PackagedJob
    records: Callable[[int], Iterator[bytes]]
    amount: str


JOBS = {
    "two_sinks": RunJob(two_sinks.JOB, indicators, "SUM(indicate)"),
    "ip_count": RunJob(ip_count.JOB, access_lines, "SUM(hits)"),
}


@dataclass(frozen=True)
class RunOptions:
    """What a run does.

    Args:
        seed: of the plan and of the input.
        faults: how many, at most.
        minutes: after which no fault begins.
        job: a key of JOBS.
        delivery: another guarantee than exactly-once shows that the checker finds what it breaks.
        rate: records per second.
        store: keep the checkpoint in an object store, whose requests fail.
    """

    seed: int
    faults: int
    minutes: float
    job: str
    delivery: str
    rate: float
    store: bool


class Stuck(Exception):
    """The job does not go on; the run ends here."""


class LongRun:
    """A run on servers of its own.

    Args:
        services: servers that it may kill.
        folder: of its files.
        options: what it does.
        proxy: of the object store; None for a checkpoint in the folder.
    """

    def __init__(
        self, services: Services, folder: Path, options: RunOptions, proxy: S3Proxy | None
    ) -> None:
        self._proxy = proxy
        self._options, self._services = options, services
        run_job = JOBS[options.job]
        self._scenario = new_job_scenario(
            services,
            folder,
            run_job.job,
            0,
            interval="500 milliseconds",
            min_pause_ms=100,
            timeout_s=120.0,
            apply_timeout_s=30.0,
            delivery=options.delivery,
            # otherwise the rows are in the record of the epoch, and no part is uploaded
            **({"checkpoint": f"{proxy.endpoint.url}/run", "inline_bytes": 0} if proxy else {}),
        )
        settings = self._scenario.settings
        sinks = {
            "topic": f"kafka.{settings.topic}",
            "table": f"mysql.{settings.table}",
            "letters": f"kafka.{settings.dead_letters}",
        }
        _await_topics(services, settings.source, settings.topic, settings.dead_letters)
        self._history = Recorder(folder / "history.jsonl")
        self._armed = ArmedFailpoints(folder / "armed", sinks)
        self._traffic = SteadyTraffic(
            settings.kafka, settings.source, run_job.records(options.seed), options.rate
        )
        self._readers = SinkReaders(
            settings.kafka,
            settings.mysql,
            (settings.topic, settings.dead_letters),
            (settings.table, run_job.amount),
        )
        self._job: LongLivedJob
        self._number = 0  # of the fault that is being injected

    def run(self) -> None:
        """Run to the end; the outcome is in the history."""
        options = self._options
        self._history.add("run", **dataclasses.asdict(options))
        self._traffic.start()
        self._readers.start()
        variables = self._proxy.endpoint.environment() if self._proxy else {}
        self._job = LongLivedJob(self._scenario, self._armed, variables)
        try:
            self._await_rows(time.monotonic())
            for fault in draw_plan(options.seed, options.faults, store=options.store):
                if self._history.now_s() > options.minutes * 60:
                    break
                self._number = fault.number
                self._history.add("begin", **_described(fault))
                self._inject(fault)
            self._number = 0
            self._judge()
        except Stuck as error:
            self._anomaly(f"stuck: {error}", **({"fault": self._number} if self._number else {}))
        finally:
            self._job.driver.kill()
            self._readers.close()
            self._history.add("end", drivers=self._job.started, records=self._traffic.confirmed)
            self._history.close()

    # --- one fault --------------------------------------------------------------------------

    def _inject(self, fault: PlannedFault) -> None:
        """Let one fault happen, and wait until every sink has new rows."""
        self._run_for(fault.delay_s)
        drivers, began = self._job.started, time.monotonic()
        reached = self._reach(fault.strike)
        struck = time.monotonic()
        after_kill = self._restarting(fault.change)
        try:
            if fault.strike.actor is Actor.ZOMBIE:
                outcome = self._outlive(after_kill)
            else:
                outcome = self._strike(fault, after_kill)
        except Violated as violation:
            outcome = "violated"
            self._anomaly(str(violation), fault=fault.number)
            if fault.second is not None:
                self._armed.disarm(fault.second)
            if self._job.driver.code is not None:
                after_kill()
        baseline = time.monotonic()
        recovered = self._await_rows(baseline if fault.second else struck + _SETTLE_S)
        ended = time.monotonic()
        wait_s = self._readers.waits.longest(began, ended)
        self._history.add(
            "fault",
            **_described(fault),
            reached=reached,
            outcome=outcome,
            recovery_s={sink: round(at - struck, 2) for sink, at in recovered.items()},
            reader_wait_s=round(wait_s, 2),
            drivers=self._job.started - drivers,
            records=self._traffic.confirmed,
        )
        self._check_wait(fault, wait_s)

    def _strike(self, fault: PlannedFault, after_kill: Callable[[], None]) -> str:
        strikes = Strikes(self._services, self._job)
        second = fault.second
        if second is not None:
            self._armed.arm(second)
        outcome = strikes.strike(fault.strike)
        time.sleep(_SETTLE_S if fault.strike.actor in DRIVER_ACTORS else 0)
        if self._job.driver.code is not None:
            after_kill()
        if second is not None:
            reached = self._await_stopped(second)
            outcome += f", then {strikes.strike(second)}"
            outcome += "" if reached else " (not at its failpoint)"
            if self._job.driver.code is not None:
                self._job.restart()
        return outcome

    def _outlive(self, after_kill: Callable[[], None]) -> str:
        """Start a successor of a stopped driver, and resume that one when the successor has applied rows."""
        zombie = self._job.driver
        zombie.signal(signal.SIGSTOP)
        try:
            time.sleep(_SETTLE_S)
            stopped = time.monotonic()
            after_kill()
            self._await_rows(stopped)
            return Strikes(self._services, self._job).resume_zombie(zombie)
        finally:
            zombie.kill()

    def _reach(self, strike: Strike) -> bool:
        """Wait until the driver is stopped at the place of a strike; return whether it is."""
        if strike.point == ANY_MOMENT:
            return True
        if strike.actor in STORE_EFFECTS:
            return self._await_request(strike)
        self._armed.arm(strike)
        return self._await_stopped(strike)

    def _await_request(self, strike: Strike) -> bool:
        """Let the next creation of an object fail, and wait for it; return whether there was one."""
        assert self._proxy is not None
        fault = Fault("PUT", OBJECTS[strike.point], STORE_EFFECTS[strike.actor])
        self._proxy.faults.append(fault)
        deadline = time.monotonic() + REACH_TIMEOUT_S
        while not fault.met and time.monotonic() < deadline:
            self._keep_running()
            time.sleep(_TICK_S)
        self._proxy.faults.remove(fault)
        return bool(fault.met)

    def _await_stopped(self, strike: Strike) -> bool:
        deadline = time.monotonic() + REACH_TIMEOUT_S
        while not self._armed.reached(strike):
            if time.monotonic() > deadline:
                self._armed.disarm(strike)
                return False
            self._keep_running()
            time.sleep(_TICK_S)
        # the process that was stopped may be a Python worker, and others still run
        self._job.driver.signal(signal.SIGSTOP)
        time.sleep(_SETTLE_S)
        return True

    def _restarting(self, change: Change | None) -> Callable[[], None]:
        """Return what starts the next driver, with a change."""

        def restart() -> None:
            if change is not None and change.setting == "partitions":
                self._add_partition()
            elif change is not None:
                changed = self._job.scenario.with_settings(**{change.setting: change.value})
                self._job.scenario = changed
            self._job.restart()

        return restart

    def _add_partition(self) -> None:
        settings = self._scenario.settings
        partitions = self._traffic.partitions + 1
        admin = self._services.kafka.admin()
        asked = admin.create_partitions(
            [NewPartitions(settings.source, partitions)], operation_timeout=30.0
        )
        asked[settings.source].result(timeout=60.0)
        self._traffic.grow(partitions)

    # --- progress ---------------------------------------------------------------------------

    def _await_rows(self, start: float) -> dict[str, float]:
        """Wait until every sink has shown rows that it did not show at a time; return when it did."""
        deadline = time.monotonic() + RECOVERY_TIMEOUT_S
        while True:
            found = {sink: seen.first_after(start) for sink, seen in self._readers.seen.items()}
            times = {sink: at for sink, at in found.items() if at is not None}
            if len(times) == len(found):
                return times
            if time.monotonic() > deadline:
                missing = ", ".join(found.keys() - times.keys())
                raise Stuck(f"no new rows in {missing} for {RECOVERY_TIMEOUT_S:g} s")
            self._keep_running()
            time.sleep(_TICK_S)

    def _run_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._keep_running()
            time.sleep(_TICK_S)

    def _keep_running(self) -> None:
        """Restart a driver that has exited, as its supervisor would."""
        self._traffic.check()
        driver = self._job.driver
        if driver.code is None:
            return
        if driver.code in FINAL_EXIT_CODES:
            raise Stuck(f"the only driver ended for good: exit code {driver.code}, {_last(driver)}")
        self._history.add("restart", code=driver.code)
        driver.kill()
        self._job.restart()

    # --- judgment ---------------------------------------------------------------------------

    def _check_wait(self, fault: PlannedFault, wait_s: float) -> None:
        """Report a read_committed reader that waited longer for a dead job than one apply may take."""
        struck = {fault.strike.actor} | ({fault.second.actor} if fault.second else set())
        limit_s = self._scenario.settings.apply_timeout_s + READER_SLACK_S
        if struck <= DRIVER_ACTORS and wait_s > limit_s:
            self._anomaly(f"stalled: a reader waited {wait_s:.1f} s", fault=fault.number)

    def _judge(self) -> None:
        """Let the job read the rest of its input, and judge every row of every sink."""
        driver = self._job.driver
        self._traffic.stop()
        driver.signal(signal.SIGTERM, [p for p in driver.members() if p.pid == driver.pid])
        code = driver.wait_code(120.0)
        driver.kill()
        if code != 0:
            self._anomaly(f"a driver that got SIGTERM exited with {code}: {_last(driver)}")
        final = self._job.scenario.with_settings(interval=AVAILABLE_NOW, max_records=200_000)
        self._drain(final)
        report = check_job(self._options.job, final.settings, skew=_SKEW)
        for (kind, where), rows in sorted(report.anomalies.items()):
            self._anomaly(f"{kind}: {rows} in {where}")
        if report.letters.get("late"):
            self._anomaly(f"late: {report.letters['late']} rows, but the input has none")
        checked = {}
        if self._options.delivery == EXACTLY_ONCE:
            assert final.job.verify is not None
            outcome = final.job.verify(final.settings)
            checked = outcome.checked
            for finding in outcome.findings:
                self._anomaly(f"{finding.kind}: {finding.count}, {finding.examples[:1]}")
        self._history.add("judged", rows=report.rows, letters=dict(report.letters), verify=checked)

    def _drain(self, scenario: JobScenario) -> None:
        log = scenario.folder / "driver-last.log"
        last = start(command_of(scenario.job.name, scenario.settings), log)
        result = last.wait(DRAIN_TIMEOUT_S)
        if result.code != 0:
            raise Stuck(f"the last driver exited with {result.code}: {_last(Driver(last))}")

    def _anomaly(self, text: str, **fields: object) -> None:
        self._history.add("anomaly", text=text, **fields)


def _await_topics(services: Services, *topics: str) -> None:
    """Wait until the broker's metadata has topics that were just created."""
    deadline = time.monotonic() + REACH_TIMEOUT_S
    while missing := [topic for topic in topics if not services.kafka.topics().get(topic)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Kafka does not know {', '.join(missing)}")
        time.sleep(_TICK_S)


def _described(fault: PlannedFault) -> dict[str, Any]:
    """Return a fault for the history."""
    second, change = fault.second, fault.change
    return {
        "number": fault.number,
        "place": fault.strike.place,
        "actor": fault.strike.actor,
        "second": f"{second.actor} at {second.place}" if second else "",
        "change": f"{change.setting}={change.value}" if change else "",
    }


def _last(driver: Driver) -> str:
    """Return the last line of a driver's log."""
    lines = driver.running.text().strip().splitlines()
    return lines[-1] if lines else "no output"
