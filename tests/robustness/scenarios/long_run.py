"""The long run: a job at a steady rate, the faults of a seed one after another, and a judgment at the end."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from infra.local_services import Services
from tests.bench.about import commit
from tests.robustness.failpoints.actors import (
    ACTORS_OF,
    DRIVER_ACTORS,
    ENDING_ACTORS,
    OUTLIVED_ACTORS,
    STORE_EFFECTS,
    Actor,
    Matrix,
)
from tests.robustness.failpoints.fault_plan import (
    PlannedFault,
    Strike,
    draw_plan,
)
from tests.robustness.failpoints.machine import Machine
from tests.robustness.failpoints.network import Network, as_driver
from tests.robustness.failpoints.replica import Replica
from tests.robustness.failpoints.s3_proxy import S3Proxy
from tests.robustness.failpoints.store_machine import StoreMachine
from tests.robustness.failpoints.strikes import Parts, Strikes, Violated
from tests.robustness.history.recorder import Recorder
from tests.robustness.report.sum_of_runs import chosen_cells
from tests.robustness.scenarios.judgment import Stuck, judge, read_rest
from tests.robustness.scenarios.progress import Progress, TooLate
from tests.robustness.scenarios.reach import REACH_TIMEOUT_S, SETTLE_S, Reach
from tests.robustness.scenarios.run_options import (
    ENDLESS_RESTARTS,
    JOBS,
    EndOfRun,
    OutOfTime,
    RunOptions,
    matrix_of,
    stages_files,
)
from tests.robustness.scenarios.successors import Successors
from tests.robustness.traffic.ip_count_harness import CLUSTER
from tests.robustness.traffic.long_lived_job import ArmedFailpoints, LongLivedJob
from tests.robustness.traffic.packaged_job_harness import new_job_scenario
from tests.robustness.traffic.steady_traffic import SteadyTraffic
from tests.robustness.validate.readers import SinkReaders

_STOP_TIMEOUT_S = 120.0
_APPLY_TIMEOUT_S = 30.0
READER_LIMIT_S = _APPLY_TIMEOUT_S + 15.0
"""A dead driver's transaction times out as an apply does, and Kafka looks for such transactions every 10 s."""

_TICK_S = 0.05

LAST_ROWS_S = 90.0
"""How long a driver may take to show rows when the time for faults is over: half of the judgment's time."""


class LongRun:
    """A run on servers of its own.

    Args:
        services: servers that it may kill.
        folder: of its files.
        options: what it does.
        end: when it ends.
        proxy: of the object store; None for a checkpoint in the folder.
    """

    def __init__(
        self,
        services: Services,
        folder: Path,
        options: RunOptions,
        end: EndOfRun,
        proxy: S3Proxy | None,
    ) -> None:
        self._proxy, self._end = proxy, end
        self._parts = Parts(
            network=Network() if options.network else None,
            machine=Machine(folder) if options.machine else None,
            replica=Replica(services.database) if options.replica else None,
            store=StoreMachine(services.store, folder) if options.store_machine else None,
        )
        self._store = services.store.endpoint if options.in_store else None
        if proxy:
            self._store = proxy.endpoint
        self._options, self._services = options, services
        machine, run_job = self._parts.machine, JOBS[options.job]
        self._scenario = new_job_scenario(
            services,
            folder,
            run_job.job,
            0,
            interval="500 milliseconds",
            min_pause_ms=100,
            timeout_s=120.0,
            progress_timeout_s=90.0,
            apply_timeout_s=_APPLY_TIMEOUT_S,
            delivery=options.delivery,
            state_backend=options.state_backend,
            **({"checkpoint": f"{self._store.url}/run"} if self._store else {}),
            **({"checkpoint": str(machine.disk / "checkpoint")} if machine else {}),
            **({"inline_bytes": 0} if stages_files(options) else {}),
            **(ENDLESS_RESTARTS if options.supervisor else {}),
        )
        settings = self._scenario.settings
        sinks = {
            "topic": f"kafka.{settings.topic}",
            "table": f"mysql.{settings.table}",
            "dead-letters": f"kafka.{settings.dead_letters}",
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
        self._strikes: Strikes
        self._successors: Successors
        self._progress: Progress
        self._reach: Reach
        self._number = 0  # of the fault that is being injected

    def run(self) -> None:
        """Run to the end; the outcome is in the history."""
        options = self._options
        staged = stages_files(options)
        self._history.add("run", **dataclasses.asdict(options), staged=staged, commit=commit())
        self._traffic.start()
        self._readers.start()
        store = self._store.environment() if self._store else {}
        variables = {**store, **(CLUSTER if options.executors else {})}
        variables |= self._parts.machine.variables if self._parts.machine else {}
        within = {"within": as_driver} if options.network else {}
        supervisor = ["--standby"] if options.standby else []
        self._job = LongLivedJob(
            self._scenario,
            self._armed,
            variables,
            supervisor=supervisor if options.supervisor else None,
            **within,
        )
        self._strikes = Strikes(self._services, self._job, self._parts)
        self._successors = Successors(self._job, self._traffic, self._services)
        self._progress = Progress(
            self._traffic, self._successors, self._readers.seen, self._history, self._end
        )
        self._reach = Reach(
            self._job,
            self._armed,
            self._progress,
            self._traffic,
            self._end,
            self._proxy,
        )
        try:
            with self._end.enforced():
                self._inject_all()
                self._judge()
        except Stuck as error:
            self._anomaly(f"stuck: {error}", **({"fault": self._number} if self._number else {}))
        except OutOfTime:
            doing = f"fault {self._number}" if self._number else "the judgment"
            self._anomaly(f"unfinished: the time of the run was over during {doing}")
        finally:
            self._job.driver.kill()
            self._job.drop_standby()
            self._readers.close()
            self._history.add(
                "end",
                drivers=self._job.started,
                taken_over=self._job.taken_over,
                records=self._traffic.confirmed,
            )
            self._history.close()

    # --- one fault --------------------------------------------------------------------------

    def _inject_all(self) -> None:
        options = self._options
        matrix = matrix_of(options)
        only = chosen_cells(options.only, matrix)
        try:
            self._progress.await_rows(time.monotonic())
            for fault in draw_plan(
                options.seed, options.faults, matrix, part=options.part, only=only
            ):
                # a run without any fault would prove nothing
                if fault.number > 1 and self._history.now_s() > options.minutes * 60:
                    break
                if options.standby and not options.supervisor:
                    self._job.keep_standby()
                self._number = fault.number
                self._history.add("begin", **fault.described())
                self._inject(fault)
        except TooLate:
            self._history.add("too late", fault=self._number)
        self._number = 0

    def _inject(self, fault: PlannedFault) -> None:
        """Let one fault happen, and wait until every sink has new rows.

        Raises:
            TooLate: the time does not suffice for that.
        """
        self._progress.run_for(fault.delay_s)
        drivers, moves, began = self._job.started, self._successors.moves, time.monotonic()
        if fault.strike.actor in ACTORS_OF[Matrix.REPLICA]:
            assert self._parts.replica is not None
            self._parts.replica.catch_up()
            self._progress.await_rows(time.monotonic())  # which it lacks
        reached = self._reach.wait(fault.strike)
        if not reached and fault.strike.actor in STORE_EFFECTS:
            self._history.add("skipped", **fault.strike.described())
            return
        described, struck = fault.strike.described(), time.monotonic()
        self._successors.plan(fault.change)
        second_reached = None
        try:
            if fault.strike.actor in OUTLIVED_ACTORS:
                outcome = self._outlive(fault.strike)
            else:
                outcome, second_reached = self._strike(fault)
        except Violated as violation:
            outcome = "violated"
            self._anomaly(str(violation), fault=fault.number)
            if fault.second is not None:
                self._armed.disarm(fault.second)
            if self._job.driver.code is not None:
                self._successors.start()
        except TooLate:  # a stopped driver was not resumed
            outcome, described["actor"] = "killed", Actor.DRIVER
        if fault.strike.actor in ACTORS_OF[Matrix.MOVE]:
            reached = self._successors.changed  # the kill is part of the move
        second = fault.second if second_reached is not None else None
        baseline = time.monotonic()
        recovered: dict[str, float] = {}
        try:
            recovered = self._progress.await_rows(baseline if second else struck + SETTLE_S)
        finally:
            self._successors.forget_plan()
            wait_s = self._readers.waits.longest(began, time.monotonic())
            self._history.add(
                "fault",
                **described,
                number=fault.number,
                reached=reached,
                second={**second.described(), "reached": second_reached} if second else None,
                changed=self._successors.changed,
                moved=self._successors.moves > moves,
                outcome=outcome,
                recovery_s={sink: round(at - struck, 2) for sink, at in recovered.items()},
                reader_wait_s=round(wait_s, 2),
                drivers=self._job.started - drivers,
                records=self._traffic.confirmed,
            )
        self._check_wait(fault, wait_s)
        alone = fault.strike.actor in ACTORS_OF[Matrix.EXECUTORS] and fault.second is None
        if alone and self._job.started > drivers:
            self._anomaly("the driver ended, although only an executor did", fault=fault.number)

    def _strike(self, fault: PlannedFault) -> tuple[str, bool | None]:
        """Let an actor fail, and the second one, if there is one.

        Returns:
            What became of the drivers, and whether the second actor failed at its failpoint; None if
            there is none.
        """
        second = fault.second
        # a driver that is ending must not stop at the failpoint that its successor has to reach
        ends = fault.strike.actor in ENDING_ACTORS
        if second is not None and not ends:
            self._armed.arm(second)
        outcome = self._strikes.strike(fault.strike, self._reach.stopped)
        if second is not None and ends:
            self._armed.arm(second)
        time.sleep(SETTLE_S if fault.strike.actor in DRIVER_ACTORS else 0)
        self._successors.replace_ended()
        if second is None:
            return outcome, None
        reached = self._reach.wait_stopped(second)
        outcome += f", then {self._strikes.strike(second, self._reach.stopped)}"
        self._successors.replace_ended()
        return outcome, reached

    def _outlive(self, strike: Strike) -> str:
        """Start a successor of a driver that is stopped, cut off or without its supervisor meanwhile.

        It has when rows of an epoch that it decided are in every sink. The first rows that it applies may
        be of an epoch that the other one decided: after that one, with overlap, either driver may decide
        the next, and the other one is fenced.
        """
        zombie = self._job.driver
        try:
            with self._strikes.away(zombie, strike):
                time.sleep(SETTLE_S)
                began = time.monotonic()
                self._successors.start()
                found = self._progress.await_rows(began)
                self._progress.await_rows(max(found.values()) + SETTLE_S)
            return self._strikes.await_superseded(zombie)
        finally:
            zombie.kill()

    # --- judgment ---------------------------------------------------------------------------

    def _check_wait(self, fault: PlannedFault, wait_s: float) -> None:
        """Report a read_committed reader that waited longer for a dead job than Kafka lets it."""
        struck = {fault.strike.actor} | ({fault.second.actor} if fault.second else set())
        if struck <= DRIVER_ACTORS and wait_s > READER_LIMIT_S:
            self._anomaly(f"stalled: a reader waited {wait_s:.1f} s", fault=fault.number)

    def _judge(self) -> None:
        """Let the job read the rest of its input, and judge every row of every sink."""
        self._job.drop_standby()
        self._stop()
        final = read_rest(self._job.scenario, self._history)
        for text in judge(final, self._history):
            self._anomaly(text)

    def _stop(self) -> None:
        """Stop the traffic and the driver, which must exit at SIGTERM if it has recovered."""
        began = time.monotonic()
        try:
            self._progress.await_rows(began)
            recovered = True
        except TooLate:
            recovered = self._await_last_rows(began)
        self._traffic.stop()
        driver = self._job.driver
        late = self._end.faults_over()  # the rest of the time is for the judgment
        if recovered and not late and driver.code is None:
            driver.terminate()
            code = driver.wait_code(_STOP_TIMEOUT_S)
            if code != 0:
                self._anomaly(f"a driver that got SIGTERM exited with {code}: {driver.last_line()}")
        driver.kill()

    def _await_last_rows(self, start: float) -> bool:
        """Wait for rows of the driver as long as the judgment can spare; return whether each sink has some.

        A driver that hangs would otherwise be replaced by the one that reads the rest.
        """
        if self._progress.until(lambda: self._progress.rows_since(start), start + LAST_ROWS_S):
            return True
        self._anomaly(f"stuck: no new rows in some sink in the last {LAST_ROWS_S:g} s of the run")
        return False

    def _anomaly(self, text: str, **fields: object) -> None:
        self._history.add("anomaly", text=text, **fields)


def _await_topics(services: Services, *topics: str) -> None:
    """Wait until the broker's metadata has topics that were just created."""
    deadline = time.monotonic() + REACH_TIMEOUT_S
    while missing := [topic for topic in topics if not services.kafka.topics().get(topic)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Kafka does not know {', '.join(missing)}")
        time.sleep(_TICK_S)
