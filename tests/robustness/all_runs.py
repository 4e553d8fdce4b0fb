"""`make robustness ALL=1`: the runs that together cover every cell of every matrix, some at a time.

Each run draws each cell of its part of a matrix once, so all of them have the same commit and their page
is that of one state of the code. With --publish their reports replace the published ones, if none failed.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from infra.toolchain.host import HostError, need
from infra.workspace import CHECKOUT
from tests.robustness.__main__ import folder_of, read_arguments, run_options
from tests.robustness.failpoints import machine, network
from tests.robustness.failpoints.actors import Matrix
from tests.robustness.failpoints.fault_plan import cells_of
from tests.robustness.report.sum_of_runs import (
    REPORT,
    RESULTS,
    published_reports,
    read_report,
    sum_as_markdown,
    sum_as_page,
)

PAGE = CHECKOUT / "docs" / "reference" / "long-runs.md"

AT_ONCE = 3
"""Runs at a time on two cores: most of a run waits for a server or a driver's start. One with three brokers
counts as two."""

_JUDGED_MINUTES = 7


@dataclass(frozen=True)
class Run:
    """One of the runs.

    Args:
        job: whose sinks are judged.
        matrix: of which the run strikes a part.
        part: which part, such as '1/4'.
        options: what makes it a run of the kind.
    """

    job: str
    matrix: Matrix
    part: str = "1/1"
    options: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """How many other runs it replaces: three brokers are a load of their own."""
        return 2 if self.matrix is Matrix.BROKERS else 1

    @property
    def faults(self) -> int:
        """The number of first faults: one for each cell of the part."""
        return ceil(len(cells_of(self.matrix)) / int(self.part.partition("/")[2]))

    def command(self, seed: int) -> list[str]:
        """Return the arguments of `tests.robustness`; a run may take two minutes for a fault."""
        minutes = 2 * self.faults
        return [
            *("--seed", str(seed), "--job", self.job, "--faults", str(self.faults)),
            *("--minutes", str(minutes), "--end-minutes", str(minutes + _JUDGED_MINUTES)),
            *("--part", self.part, *self.options),
        ]

    def folder(self, seed: int) -> Path:
        """Return the folder of its report."""
        return folder_of(run_options(read_arguments(self.command(seed))))


RUNS = (
    # the longest first, so that no run goes on alone; no two with three brokers at a time
    Run("two_sinks", Matrix.NETWORK, "1/2", ("--network", "--standby")),
    Run("two_sinks", Matrix.BROKERS, "1/2", ("--brokers",)),
    Run("ip_count", Matrix.NETWORK, "2/2", ("--network",)),
    Run("ip_count", Matrix.BROKERS, "2/2", ("--brokers",)),
    Run("two_sinks", Matrix.SUPERVISOR, options=("--supervisor",)),
    Run("joined_payments", Matrix.ANY_RUN, "1/4"),
    Run("ip_count", Matrix.ANY_RUN, "2/4"),
    Run("two_sinks", Matrix.ANY_RUN, "3/4"),
    Run("two_sinks", Matrix.ANY_RUN, "4/4", ("--standby",)),
    Run("ip_count", Matrix.ANY_RUN, "1/4", ("--standby", "--state-backend", "hdfs")),
    Run("two_sinks", Matrix.MACHINE, "1/2", ("--machine",)),
    Run("ip_count", Matrix.MACHINE, "2/2", ("--machine",)),
    Run("two_sinks", Matrix.REPLICA, options=("--replica",)),
    Run("joined_payments", Matrix.STORE_MACHINE, "1/2", ("--store-machine",)),
    Run("two_sinks", Matrix.STORE_MACHINE, "2/2", ("--store-machine",)),
    Run("two_sinks", Matrix.STORE, options=("--store",)),
    Run("two_sinks", Matrix.EXECUTORS, options=("--executors",)),
    Run("ip_count", Matrix.MOVE, options=("--move",)),
    Run("joined_payments", Matrix.MOVE, options=("--move",)),
)


def main(arguments: Sequence[str]) -> int:
    """Make all runs and print their sum; return 1 if one of them failed or could not be made."""
    given = _parser().parse_args(arguments)
    try:
        need({**network.PROGRAMS, **machine.PROGRAMS})
    except HostError as error:
        print(f"the runs with --network or --machine cannot be made: {error}", file=sys.stderr)
        return 1
    if reason := network.missing() or machine.missing():
        print(f"the runs with --network or --machine cannot be made: {reason}", file=sys.stderr)
        return 1
    began = time.monotonic()
    lock = threading.Lock()

    def say(message: str) -> None:
        with lock:
            print(f"[{(time.monotonic() - began) / 60:6.1f} min] {message}", flush=True)

    seeds = [given.seed * 100 + number for number in range(1, len(RUNS) + 1)]
    codes = _make_all(seeds, given.at_once, say)
    folders = [run.folder(seed) for run, seed in zip(RUNS, seeds, strict=True)]
    reports = [read_report(folder) for folder in folders if (folder / REPORT).exists()]
    print(sum_as_markdown(reports))
    if any(codes):
        return 1
    if given.publish:
        shutil.rmtree(RESULTS)
        for folder in folders:
            (RESULTS / folder.name).mkdir(parents=True)
            shutil.copy(folder / REPORT, RESULTS / folder.name)
        PAGE.write_text(sum_as_page(published_reports()), encoding="utf-8")
    return 0


def _make_all(seeds: Sequence[int], at_once: int, say: Callable[[str], None]) -> list[int]:
    """Make all runs, in order, as many at a time as their weights allow; return their exit codes."""
    free = threading.Semaphore(at_once)

    def make(run: Run, seed: int) -> int:
        try:
            return _make(run, seed, say)
        finally:
            free.release(run.weight)

    with ThreadPoolExecutor(at_once) as pool:
        made = []
        for run, seed in zip(RUNS, seeds, strict=True):
            for _ in range(run.weight):
                free.acquire()
            made.append(pool.submit(make, run, seed))
        return [run.result() for run in made]


def _make(run: Run, seed: int, say: Callable[[str], None]) -> int:
    """Make a run; return its exit code."""
    folder = run.folder(seed)
    log = folder.with_suffix(".log")
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # its report would be taken for that of this run
    command = ["python", "-m", "tests.robustness", *run.command(seed)]
    say(f"begins: {shlex.join(command)}")
    with log.open("wb") as output:
        command[0] = sys.executable
        code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    say(f"{folder.name}: " + ("passed" if code == 0 else f"FAILED, see {log}"))
    return code


def _at_once(text: str) -> int:
    """Return how many runs may be made at a time.

    Raises:
        ValueError: there would be no place for a run with three brokers.
    """
    number = int(text)
    if number < max(run.weight for run in RUNS):
        raise ValueError(text)
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.robustness.all_runs", description=__doc__
    )
    parser.add_argument("--seed", type=int, required=True, help="each run has one of its own")
    parser.add_argument(
        "--at-once", type=_at_once, default=AT_ONCE, help="at least 2 (default: %(default)s)"
    )
    parser.add_argument("--publish", action="store_true", help="replace the published reports")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
