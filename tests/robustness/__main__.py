"""`make robustness`: injects the faults of a seed into a running job, and judges every row at the end.

Exits with 1 if there is an anomaly. The history, the report and the logs of all drivers are in
.work/robustness; the folder of a seed is replaced by its next run. With --sum it runs nothing, and
prints the sum of the reports in some folders; with --page it writes that of the published runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from infra.local_services import Services
from infra.toolchain.maven import folder as jars_folder
from infra.workspace import work_folder
from sluicegate.settings.epoch import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from sluicegate.spark.conf import JARS_VARIABLE
from tests.robustness.failpoints import machine, network
from tests.robustness.failpoints.s3_proxy import proxied
from tests.robustness.history.recorder import read_history
from tests.robustness.report.run_report import as_markdown, summarize
from tests.robustness.report.sum_of_runs import (
    REPORT,
    chosen_cells,
    published_reports,
    read_report,
    sum_as_markdown,
    sum_as_page,
)
from tests.robustness.scenarios.long_run import LongRun
from tests.robustness.scenarios.run_options import (
    JOBS,
    KINDS,
    MATRICES,
    EndOfRun,
    RunOptions,
    matrix_of,
    option_of,
)

_IN_NAMESPACE = {"network": network, "machine": machine, "store_machine": machine}
"""The kinds of runs that are in a namespace of their own."""


def main() -> int:
    """Run, print the report and return the exit code."""
    given = read_arguments()
    if given.sum:
        return _print_sum(given.sum)
    if given.page:
        given.page.write_text(sum_as_page(published_reports()), encoding="utf-8")
        return 0
    for kind, failing in _IN_NAMESPACE.items():
        if getattr(given, kind):
            failing.in_own_namespace()
    return _run(run_options(given))


def _run(options: RunOptions) -> int:
    """Make a run; return the exit code."""
    end = EndOfRun(options.end_minutes)
    # so that `kill` leaves no driver running
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.setdefault(JARS_VARIABLE, str(jars_folder("spark")))
    folder = folder_of(options)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"SEED={options.seed} repeats these faults. Writing to {folder}", flush=True)  # noqa: T201
    brokers = 3 if options.brokers else 1
    with Services(s3=options.in_store, brokers=brokers) as services, ExitStack() as stack:
        stack.callback(_keep_logs, services, folder)
        proxy = None
        if options.in_store:  # for the judgment, which needs no proxy
            os.environ.update(services.store.endpoint.environment())
        if options.store:
            proxy = stack.enter_context(proxied(services.store.endpoint))
        LongRun(services, folder, options, end, proxy).run()
    report = summarize(read_history(folder / "history.jsonl"))
    page = as_markdown(report)
    (folder / "report.md").write_text(page, encoding="utf-8")
    (folder / REPORT).write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
    print(page)  # noqa: T201
    return 0 if report.passed else 1


def _keep_logs(services: Services, folder: Path) -> None:
    """Copy the logs of the servers, whose folders are removed with them."""
    for number, server in enumerate((services.database, *services.brokers)):
        shutil.copy(server.log, folder / f"server-{number}-{server.log.name}")


def folder_of(options: RunOptions) -> Path:
    """Return where a run writes its report, its history and its logs."""
    kinds = [kind for kind in KINDS if getattr(options, kind)]
    name = "-".join([options.job, options.delivery, *kinds, str(options.seed)])
    return work_folder() / "robustness" / name


def _print_sum(folders: list[Path]) -> int:
    """Print the sum of the runs with a report; return the exit code.

    A file is skipped: `.work/robustness/*` names logs too.
    """
    runs = [
        folder for folder in dict.fromkeys(f.resolve() for f in folders) if not folder.is_file()
    ]
    unended = [folder for folder in runs if not (folder / REPORT).is_file()]
    for folder in unended:
        print(f"{folder} has no {REPORT}: the run has not ended", file=sys.stderr)  # noqa: T201
    reports = [read_report(folder) for folder in runs if folder not in unended]
    print(sum_as_markdown(reports))  # noqa: T201
    return 0 if not unended and all(report.passed for report in reports) else 1


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments, by default those of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the plan and the input (default: a new one)")
    parser.add_argument("--faults", type=int, default=1000, help="at most (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=1440, help="start no fault later (default: %(default)s)"
    )
    parser.add_argument(
        "--end-minutes",
        type=float,
        default=2880,
        help="end the run; input that is not read then is an anomaly (default: %(default)s)",
    )
    parser.add_argument("--job", choices=sorted(JOBS), default="two_sinks")
    parser.add_argument(
        "--delivery",
        choices=(EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE),
        default=EXACTLY_ONCE,
        help="a weaker one shows that the checker finds what it breaks (default: %(default)s)",
    )
    parser.add_argument(
        "--state-backend",
        choices=("rocksdb", "hdfs"),
        default="rocksdb",
        help="where the state of ip_count and joined_payments is (default: %(default)s)",
    )
    parser.add_argument("--rate", type=float, default=40, help="records a second")
    parser.add_argument(
        "--store",
        action="store_true",
        help="keep the checkpoint in an S3 whose requests fail; needs versitygw (make store)",
    )
    parser.add_argument(
        "--executors",
        action="store_true",
        help="run executors in processes of their own, and kill them",
    )
    parser.add_argument(
        "--network",
        action="store_true",
        help="cut drivers off from their servers, in a network namespace of the run; needs root",
    )
    parser.add_argument(
        "--brokers", action="store_true", help="run three brokers, of which one fails"
    )
    parser.add_argument(
        "--supervisor",
        action="store_true",
        help="let `sluicegate run` restart the drivers; it fails, or they do",
    )
    parser.add_argument(
        "--machine",
        action="store_true",
        help="set the clock of the drivers, fill the disk of the checkpoint, leave them no more memory, "
        "and cut their power, in a mount namespace of the run; needs root",
    )
    parser.add_argument(
        "--store-machine",
        action="store_true",
        help="keep the checkpoint in an S3 whose server is killed or paused, whose disk is full, or "
        "which loses power, in a mount namespace of the run; needs root, and versitygw (make store)",
    )
    parser.add_argument(
        "--replica",
        action="store_true",
        help="let MySQL fail over to a replica that lacks the last epochs",
    )
    parser.add_argument(
        "--move",
        action="store_true",
        help="move the job to a new checkpoint by a savepoint at each fault, and kill a command of that "
        "or the first driver afterwards; only with exactly-once",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="keep a standby, which takes over unless its settings are others",
    )
    parser.add_argument(
        "--part",
        type=_part,
        default="1/1",
        metavar="1/4",
        help="draw the first faults from this part of the cells (default: all of them)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FAILPOINT:ACTOR",
        help="draw single faults of these cells, such as 'before-commit:topic:driver killed', or of "
        "those of no published run: 'uncovered'",
    )
    parser.add_argument(
        "--sum", nargs="+", type=Path, metavar="FOLDER", help="sum up the reports of runs"
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the page of the published runs"
    )
    given = parser.parse_args(arguments)
    if sum(getattr(given, kind) for kind in MATRICES) > 1:
        parser.error(f"{', '.join(map(option_of, MATRICES))} are different runs")
    if given.move and given.delivery != EXACTLY_ONCE:
        parser.error(f"--move: {given.delivery} has no markers that the next driver takes over")
    for kind, failing in _IN_NAMESPACE.items():
        if getattr(given, kind) and (reason := failing.missing()):
            parser.error(f"{option_of(kind)}: {reason}")
    try:
        chosen_cells(given.only, matrix_of(given))
    except ValueError as error:
        parser.error(str(error))
    return given


def _part(text: str) -> str:
    """Return which part of how many, such as '1/4'.

    Raises:
        ValueError: it is none.
    """
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(text)
    return text


def run_options(given: argparse.Namespace) -> RunOptions:
    """Return what a run does by its arguments."""
    values = {field.name: getattr(given, field.name) for field in dataclasses.fields(RunOptions)}
    if given.seed is None:
        values["seed"] = random.SystemRandom().randrange(1 << 32)
    return RunOptions(**{**values, "only": tuple(given.only)})


if __name__ == "__main__":
    sys.exit(main())
