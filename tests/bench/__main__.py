"""The command `python -m tests.bench`, which `make bench ARGS=...` runs.

Fills the source topics once and runs the contenders in rounds, shuffled within each round. Then runs the
operator's rounds, each on its own cluster, and the console's, and prints the tables. The exit code is 0
even if a contender has no number, because a benchmark passes no judgment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.local_services import ServiceError, Services
from infra.local_services.process import free_ports
from infra.toolchain.maven import JarError
from infra.workspace import work_folder
from tests.bench import (
    command_line,
    delaying_proxy,
    latency,
    machine,
    page,
    produce,
    profiling,
    recovery,
    report,
    start_time,
    throughput,
)
from tests.bench.command_line import QUICK_JOBS, QUICK_SECONDS
from tests.bench.console import rounds as console_rounds
from tests.bench.distant_broker import DistantBroker, DistantServers
from tests.bench.figures import Run, anomalies
from tests.bench.operator import rounds
from tests.bench.plan import (
    RECOVERY,
    RECOVERY_CONTENDERS,
    Workload,
    shuffled,
)
from tests.bench.profiling import Profilers
from tests.bench.report import Results
from tests.bench.sinks import Servers
from tests.bench.throughput import Source, Turn

_BEGAN = time.monotonic()

_VIEWED_S = 30.0
_QUICK_SUBMITS = 2
_SUBMITS = 8
"""Jobs submitted through spark-submit, for each number of JVMs."""


class Bench:
    """The part of one command run that measures jobs."""

    def __init__(
        self, results: Results, services: Services, folder: Path, profilers: Profilers | None
    ) -> None:
        self._results, self._services, self._folder = results, services, folder
        self._profilers = profilers
        self._sources: dict[str, Source] = {}
        self._distant: dict[str, DistantBroker] = {}

    def run(self) -> None:
        """Fill the topics, then run all rounds."""
        try:
            for workload in self._results.workloads:
                self._fill(workload)
            for round_ in range(1, self._results.rounds + 1):
                self._round(round_)
        finally:
            for name, source in self._sources.items():
                if name in self._distant:
                    shutil.rmtree(self._broker_folder(name))
                else:
                    self._services.kafka.delete_topic(source.topic)

    def _fill(self, workload: Workload) -> None:
        _print(f"Filling the source of {workload.name}: {workload.records:,} records")
        topic = f"{self._folder.name}-{workload.name}"
        with self._servers(workload) as servers:
            servers.kafka.create_topic(topic, workload.partitions)
            expected = produce.fill(servers.kafka.bootstrap, topic, workload)
        self._sources[workload.name] = Source(topic, expected)

    @contextmanager
    def _servers(self, workload: Workload) -> Iterator[Servers]:
        """Yield the servers of a workload; a distant broker only runs meanwhile."""
        if not workload.round_trip_ms:
            yield self._services
            return
        if workload.name not in self._distant:
            folder = self._broker_folder(workload.name)
            self._distant[workload.name] = DistantBroker(folder, workload.round_trip_ms)
        with self._distant[workload.name].running() as kafka:
            yield DistantServers(kafka, self._services.mysql)

    @contextmanager
    def _checkpoints(self, workload: Workload) -> Iterator[str]:
        """Yield the address of checkpoints; empty for a folder of the run."""
        if not workload.store:
            yield ""
            return
        store = self._services.store.endpoint
        with ExitStack() as stack:
            if workload.store_round_trip_ms:
                (port,) = free_ports(1)
                target_port = int(store.endpoint.rpartition(":")[2])
                log = self._folder / f"{workload.name}-proxy.log"
                stack.enter_context(
                    delaying_proxy.running(port, target_port, workload.store_round_trip_ms, log)
                )
                store = store.through_proxy(f"http://127.0.0.1:{port}")
            os.environ.update(store.environment())  # for contenders, which inherit it
            yield store.url

    def _broker_folder(self, workload: str) -> Path:
        return self._folder / f"{workload}-kafka"

    def _round(self, round_: int) -> None:
        _sample_machine(self._results, f"Round {round_}")
        seed = self._results.seed
        for workload in self._results.workloads:
            for contender in shuffled(
                workload.contenders, seed=seed, round_=round_, workload=workload.name
            ):
                _print(f"  round {round_}: {workload.name}, {contender} ...")
                source = self._sources[workload.name]
                with self._servers(workload) as servers, self._checkpoints(workload) as folder:
                    turn = Turn(workload, contender, round_, self._profilers, folder)
                    run = throughput.run(turn, source, servers, self._folder)
                self._add_run(run, "records_s", "append_records_s")
        for start in shuffled(self._results.starts, seed=seed, round_=round_, workload="starts"):
            _print(f"  round {round_}: {start.name} ...")
            self._add_run(
                start_time.run(start, round_, self._services, self._folder),
                "query_s",
                "first_epoch_s",
            )
        kills = self._results.kills
        for contender in shuffled(
            RECOVERY_CONTENDERS if kills else (), seed=seed, round_=round_, workload=RECOVERY
        ):
            _print(f"  round {round_}: {RECOVERY}, {contender} ...")
            run = recovery.run(contender, round_, kills, self._services, self._folder)
            self._add_run(run, "recovery_p50_s", "recovery_max_s")
        for pace in self._results.paces:
            for contender in shuffled(
                pace.contenders, seed=seed, round_=round_, workload=pace.name
            ):
                _print(f"  round {round_}: {pace.name}, {contender} ...")
                run = latency.run(
                    contender, round_, pace, self._services, self._folder, self._profilers
                )
                self._add_run(run, "p50_ms", "p99_ms")

    def _add_run(self, run: Run, *shown: str) -> None:
        self._results.runs.append(run)
        if run.anomaly:
            _print(f"    ANOMALY, no number: {run.anomaly}")
        else:
            _print(
                "    "
                + ", ".join(f"{n} {_figure(run.figures[n])}" for n in shown if n in run.figures)
            )


async def _operator(results: Results, round_: int, folder: Path) -> None:
    """Run a round of the operator benchmark."""
    _sample_machine(results, f"Operator, round {round_}")
    submits = _QUICK_SUBMITS if results.jobs <= QUICK_JOBS else _SUBMITS
    figures: dict[str, float] = {}
    results.operator.append(figures)
    async for name, value in rounds.round_of(folder, results.jobs, submits):
        figures[name] = value
        _print(f"    {name} {value:,.2f}")


async def _console(results: Results, round_: int, folder: Path) -> None:
    """Run a round of the console's benchmark."""
    _sample_machine(results, f"Console, round {round_}")
    quick = results.console_jobs <= QUICK_JOBS
    figures: dict[str, dict[str, float]] = {}
    results.console.append(figures)
    async for store, name, value in console_rounds.round_of(
        folder, results.console_jobs, QUICK_SECONDS if quick else _VIEWED_S
    ):
        figures.setdefault(store, {})[name] = value
        _print(f"    {store}: {name} {value:,.2f}")
    shutil.rmtree(folder)  # a gigabyte


def _sample_machine(results: Results, round_: str) -> None:
    """Record and print how busy the machine is before a round."""
    sample = machine.sample()
    results.machines.append(sample)
    _print(f"{round_} of {results.rounds}: {sample}")
    if sample.warning():
        _print(sample.warning())


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _print(message: str) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {message}", flush=True)


def _write_files(results: Results, options: argparse.Namespace, *, complete: bool) -> None:
    """Write what the options request."""
    if options.quick:
        print("\n--quick: the number of records is too small for meaningful figures.")
    if options.json:
        report.write_json(results, options.json)
        print(f"\nAll results are in {options.json}")
    page_file = command_line.page_file(options) if complete else None
    if page_file:
        page.write([report.as_json(results)], page_file, page.kept_profiles())
        print(f"\nThe page with plots is {page_file}")


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    given = sys.argv[1:] if arguments is None else arguments
    options = command_line.parse(given)
    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` leaves no process running
    results = command_line.selected(options, given)
    base = work_folder() / "bench"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    code = 0
    try:
        if results.workloads or results.paces or results.starts or results.kills:
            print(
                "Starting Kafka and MariaDB (or using the servers from the environment)", flush=True
            )
            store = any(workload.store for workload in results.workloads)
            with Services(s3=store) as services:
                profilers = profiling.install(options.profile) if options.profile else None
                Bench(results, services, folder, profilers).run()
        for round_ in range(1, results.rounds + 1 if results.jobs else 1):
            asyncio.run(_operator(results, round_, folder / f"operator-{round_}"))
        for round_ in range(1, results.rounds + 1 if results.console_jobs else 1):
            asyncio.run(_console(results, round_, folder / f"console-{round_}"))
    except KeyboardInterrupt:
        print("\nInterrupted. Results so far:")
        code = 130
    except (ServiceError, JarError) as error:
        print(error, file=sys.stderr)
        return 1
    print(report.text(results))
    _write_files(results, options, complete=code == 0)
    if anomalies(results.runs):
        print(f"The logs of the runs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
