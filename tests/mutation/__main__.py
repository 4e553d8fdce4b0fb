"""Mutates the packages that decide over data, and reports the mutants that no test notices."""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from infra.workspace import work_folder
from tests.mutation.mutations import Mutant
from tests.mutation.runner import KILLED, SURVIVED, TIMEOUT, UNREACHED, Target, run

_SIMULATED: Final = "jobs/src/sluicegate/protocol"

TARGETS: Final = (
    # without the searches over all schedules, which take seconds each
    Target(
        "protocol",
        ("jobs/src/sluicegate/protocol",),
        ("tests/unit/protocol", "-k", "not every_state and not random_schedules"),
    ),
    # with its tests on a real S3 server, which starts in half a second
    Target("storage", ("jobs/src/sluicegate/storage",), ("tests/unit/storage", "-m", "not slow")),
    Target("savepoints", ("jobs/src/sluicegate/savepoints",), ("tests/unit/savepoints",)),
    Target(
        "reconcile",
        ("operators/src/sluicegate_operator/reconcile",),
        ("tests/unit/operator/reconcile",),
    ),
    # how much of the protocol random schedules notice by themselves
    Target(
        "simulation",
        tuple(f"{_SIMULATED}/{name}.py" for name in ("coordinator", "job", "recovery", "sealing")),
        ("tests/robustness/model/protocol/test_simulation.py",),
        min_score=0.0,
    ),
)
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


def main(arguments: list[str]) -> int:
    """Run the mutants of the named packages.

    Returns:
        1 if a score is too low, or the list of equivalent mutants is wrong.
    """
    options = _parser().parse_args(arguments)
    end_s = time.monotonic() + options.seconds
    right = True
    for target in TARGETS:
        if target.name in (options.packages or [t.name for t in TARGETS[:-1]]):
            right &= _run(target, options, end_s)
    return int(not right)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    names = [target.name for target in TARGETS]
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(names))
    parser.add_argument("--resume", action="store_true", help="only mutants without a result")
    parser.add_argument(
        "--survivors", action="store_true", help="these, and those that survived or were unreached"
    )
    parser.add_argument("--match", default="", help="only mutants with this text in their id")
    parser.add_argument("--seconds", type=float, default=36e3, help="stop after this time")
    parser.add_argument("--show", action="store_true", help="run nothing, report the last results")
    return parser


def _run(target: Target, options: argparse.Namespace, end_s: float) -> bool:
    mutants = list(target.mutants())
    file = work_folder() / "mutants" / f"{target.name}.json"
    results: dict[str, str] = {}
    if options.resume or options.survivors or options.show or options.match:
        results = json.loads(file.read_text()) if file.exists() else {}
    if not options.show:
        again = {None} if options.resume else {None, SURVIVED, UNREACHED}
        wanted = [
            mutant
            for mutant in mutants
            if options.match in mutant.id and (options.match or results.get(mutant.id) in again)
        ]

        def report(mutant: Mutant, result: str) -> None:
            results[mutant.id] = result

        code = run(target, wanted, report, end_s)
        if results:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(results, indent=1))
        ended = pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.INTERRUPTED
        if code not in ended:
            print(f"{target.name}: pytest ended with exit code {int(code)}: there is no score")
            return False
    with EQUIVALENT.open("rb") as stored:
        listed = tomllib.load(stored).get(target.name, {})
    return report_on(target, [mutant.id for mutant in mutants], results, listed)


def report_on(
    target: Target, mutants: Sequence[str], results: dict[str, str], listed: dict[str, str]
) -> bool:
    """Print the mutants that no test noticed and the score.

    Returns:
        Whether the list of equivalent mutants is right, and the score is high enough if all were run.
    """
    missed = [m for m in mutants if results.get(m) in (SURVIVED, UNREACHED) and m not in listed]
    for mutant in missed:
        print(f"{results[mutant]} {mutant}")
    wrong = problems_of(mutants, results, listed)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    counts = Counter(results.get(mutant, "not run") for mutant in mutants)
    noticed = counts[KILLED] + counts[TIMEOUT]
    score = noticed / max(1, noticed + len(missed))
    print(f"{target.name}: score {score:.3f}, {dict(counts)}, {len(listed)} listed")
    low = score < target.min_score and not counts["not run"]
    if low:
        print(
            f"{target.name}: the score is below {target.min_score}: rules without a test, see above"
        )
    return not (wrong or low)


def problems_of(
    mutants: Sequence[str], results: dict[str, str], listed: dict[str, str]
) -> list[str]:
    """Return what is wrong with the list of equivalent mutants."""
    absent = [f"{EQUIVALENT.name}: there is no mutant {m}" for m in listed if m not in mutants]
    refuted = [
        f"{EQUIVALENT.name}: a test notices {m}"
        for m in listed
        if results.get(m) in (KILLED, TIMEOUT)
    ]
    return absent + refuted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
