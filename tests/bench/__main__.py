"""The command `python -m tests.bench`, which `make bench ARGS=...` runs.

Fills the source topics once, then lets the contenders run in rounds, shuffled within each, and
prints the tables. Exit code 0 even where a contender has no number: a benchmark judges nothing.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.embedded import ServiceError, Services
from infra.jars import JarError
from infra.work import work_folder
from tests.bench import feed, latency, machine, report, throughput
from tests.bench.figures import Run, anomalies
from tests.bench.plan import LATENCY, OURS, RIVALS, WORKLOADS, Pace, Workload, shuffled
from tests.bench.report import Results
from tests.bench.throughput import Source, Turn

_QUICK_RECORDS = 100_000
_QUICK_SECONDS = 5.0


class Bench:
    """One call of the command."""

    def __init__(self, results: Results, services: Services, folder: Path) -> None:
        self._results, self._services, self._folder = results, services, folder
        self._sources: dict[str, Source] = {}
        self._began = time.monotonic()

    def say(self, said: str) -> None:
        """Print a line with the time since the start."""
        print(f"[{time.monotonic() - self._began:6.1f} s] {said}", flush=True)

    def run(self) -> None:
        """Fill the topics, then run all rounds."""
        try:
            for workload in self._results.workloads:
                self._fill(workload)
            for round_ in range(1, self._results.rounds + 1):
                self._round(round_)
        finally:
            for source in self._sources.values():
                self._services.kafka.delete_topic(source.topic)

    def _fill(self, workload: Workload) -> None:
        self.say(f"Filling the source of {workload.name}: {workload.records:,} records")
        topic = f"{self._folder.name}-{workload.name}"
        self._services.kafka.create_topic(topic, feed.PARTITIONS)
        wanted = feed.fill(self._services.kafka.bootstrap, topic, workload)
        self._sources[workload.name] = Source(topic, wanted)

    def _round(self, round_: int) -> None:
        before = machine.look()
        self._results.machines.append(before)
        self.say(f"Round {round_} of {self._results.rounds}: {before}")
        if before.warning():
            self.say(before.warning())
        seed = self._results.seed
        for workload in self._results.workloads:
            for contender in shuffled(
                workload.contenders, seed=seed, round_=round_, workload=workload.name
            ):
                self.say(f"  round {round_}: {workload.name}, {contender} ...")
                turn = Turn(workload, contender, round_)
                source = self._sources[workload.name]
                self._keep(throughput.run(turn, source, self._services, self._folder), "records_s")
        pace = self._results.pace
        if pace is None:
            return
        for contender in shuffled((OURS, *RIVALS), seed=seed, round_=round_, workload=LATENCY):
            self.say(f"  round {round_}: {LATENCY}, {contender} ...")
            run = latency.run(contender, round_, pace, self._services, self._folder)
            self._keep(run, "p50_ms", "p99_ms")

    def _keep(self, run: Run, *shown: str) -> None:
        self._results.runs.append(run)
        if run.anomaly:
            self.say(f"    ANOMALY, no number: {run.anomaly}")
        else:
            self.say("    " + ", ".join(f"{name} {run.figures[name]:,.0f}" for name in shown))


def _chosen(options: argparse.Namespace) -> Results:
    """Return what the options ask for, with nothing run yet."""
    records = options.records or (_QUICK_RECORDS if options.quick else None)
    workloads = [w for w in WORKLOADS if options.only in (None, w.name)]
    if records:
        workloads = [w.of_size(records) for w in workloads]
    pace = None
    if options.only in (None, LATENCY):
        pace = Pace(seconds=_QUICK_SECONDS) if options.quick else Pace()
    return Results(1 if options.quick else options.rounds, options.seed, workloads, pace)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...", description="Measure Sluicegate beside Spark's own sinks."
    )
    names = [*(w.name for w in WORKLOADS), LATENCY]
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--records", type=int, help="of each source topic; default by workload")
    parser.add_argument("--only", choices=names, metavar="WORKLOAD", help=", ".join(names))
    parser.add_argument(
        "--quick", action="store_true", help="one small round, to see that it works; no figures"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    parser.add_argument("--seed", type=int, default=1, help="of the order of contenders; default 1")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or (options.records is not None and options.records < 100):
        parser.error("--rounds must be 1 or more, --records 100 or more")
    return options


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` leaves nothing running either
    results = _chosen(options)
    base = work_folder() / "bench"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    print("Starting Kafka and MariaDB (or using those that the environment names)", flush=True)
    code = 0
    try:
        with Services() as services:
            Bench(results, services, folder).run()
    except KeyboardInterrupt:
        print("\nInterrupted; what was measured until then:")
        code = 130
    except (ServiceError, JarError) as error:
        print(error, file=sys.stderr)
        return 1
    print(report.text(results))
    if options.quick:
        print("\n--quick: far too few records for a figure to mean anything.")
    if options.json:
        report.write_json(results, options.json)
        print(f"\nEverything is in {options.json}")
    if anomalies(results.runs):
        print(f"The logs of the runs are kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
