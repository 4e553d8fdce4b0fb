"""The options of `python -m tests.bench`, and the workloads that they select."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench import growth, page
from tests.bench.about import about
from tests.bench.growth import Start
from tests.bench.plan import KILLS, PACES, RECOVERY, WORKLOADS, Pace
from tests.bench.report import Results

QUICK_JOBS: Final = 40
QUICK_SECONDS: Final = 5.0
_QUICK_RECORDS = 100_000
_QUICK_LENGTHS = (10, 100)

_OPERATOR, _CONSOLE = "operator", "console"
_JOBS = 1000


def selected(options: argparse.Namespace, arguments: Sequence[str]) -> Results:
    """Return empty results for the workloads that the options select."""
    records = options.records or (_QUICK_RECORDS if options.quick else None)
    workloads = [w for w in WORKLOADS if options.only in (None, w.name)]
    if options.only in (None, growth.PARTITIONS):
        workloads += growth.partition_workloads(options.cores)
    if options.only in (None, growth.EXECUTORS):
        workloads += growth.executor_workloads()
    if options.only in (None, growth.STATE):
        workloads += growth.state_workloads(many_keys=options.many_keys)
    if options.contenders:
        workloads = [
            replace(
                w, contenders=tuple(name for name in w.contenders if name in options.contenders)
            )
            for w in workloads
        ]
    if records:
        workloads = [w.of_size(records) for w in workloads]
    starts: Sequence[Start] = ()
    if options.only in (None, growth.START):
        lengths = _QUICK_LENGTHS if options.quick else growth.LOG_LENGTHS
        starts = [Start(length) for length in lengths]
    paces: Sequence[Pace] = [
        replace(pace, only=options.contenders, records_s=options.records_s or pace.records_s)
        for pace in PACES
        if options.only in (None, pace.workload)
    ]
    if options.quick:
        paces = [replace(pace, seconds=QUICK_SECONDS, warm_s=0.0) for pace in paces]
    jobs = QUICK_JOBS if options.quick else options.jobs
    kills = 1 if options.quick else KILLS
    return Results(
        1 if options.quick or options.profile else options.rounds,
        options.seed,
        workloads,
        paces,
        starts,
        about(arguments),
        kills=kills if options.only in (None, RECOVERY) else 0,
        jobs=jobs if options.only in (None, _OPERATOR) else 0,
        console_jobs=jobs if options.only in (None, _CONSOLE) else 0,
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...", description="Compare Sluicegate with its peers."
    )
    names = [w.name for w in WORKLOADS]
    names += [*growth.NAMES, RECOVERY, *dict.fromkeys(pace.workload for pace in PACES)]
    names += [_OPERATOR, _CONSOLE]
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--records", type=int, help="records per source topic; default by workload")
    parser.add_argument(
        "--records-s",
        type=int,
        help="records per second of a latency workload; default by workload",
    )
    parser.add_argument(
        "--jobs", type=int, default=_JOBS, help=f"jobs for operator and console; default {_JOBS}"
    )
    parser.add_argument(
        "--cores",
        type=_cores,
        default=growth.CORES,
        metavar="1,2",
        help=f"threads of Spark's session in {growth.PARTITIONS}, each of them; default 2",
    )
    parser.add_argument(
        "--many-keys",
        action="store_true",
        help=f"{growth.STATE} with {growth.MANY_KEYS:,} keys too: ten minutes more for each run",
    )
    parser.add_argument("--only", choices=names, metavar="WORKLOAD", help=", ".join(names))
    parser.add_argument(
        "--contenders",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="A,B",
        help="only these of each workload, for example sluicegate,flink",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FOLDER",
        help="one round that writes the stacks of runs of latency, and of throughput (more than 40 s), to "
        "FOLDER, for flame graphs; its figures do not count",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one small round as a smoke test; no figures"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all results to FILE")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write the report page with its plots; default: docs/reference/performance.md if everything is "
        "measured, without --only and --quick",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the contender order; default 1"
    )
    options = parser.parse_args(arguments)
    if options.profile and (options.json or options.page):
        parser.error("--profile slows the runs down: use it without --json and --page")
    sizes = (options.records, options.records_s)
    if options.rounds < 1 or any(size is not None and size < 100 for size in sizes):
        parser.error("--rounds must be 1 or more, --records and --records-s 100 or more")
    return options


def _cores(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def page_file(options: argparse.Namespace) -> Path | None:
    """Return where the report page is written; None: nowhere."""
    sizes = options.quick or options.records or options.records_s
    partial = options.only or sizes or options.contenders or options.profile
    return options.page or (None if partial else page.PAGE)
