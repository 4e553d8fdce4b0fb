"""`python -m tests.robustness.model.promela.check`: lets Spin search the model, and then its broken variants.

Needs Spin and a C compiler; as root on Debian it installs them. One process, less than 1 GB of memory.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.toolchain.host import HostError, need, run
from infra.workspace import scratch_folder

MODEL = Path(__file__).with_name("protocol.pml")
_SEARCH_S = 300.0
_MEMORY_MB = 2000
_DEPTH = 10_000

_VIOLATED = re.compile(r"assertion violated \(*(?P<invariant>\w+)\|\|")
_STATES = re.compile(r"(?P<states>\d+) states, stored")


@dataclass(frozen=True)
class Scope:
    """How much a search covers.

    Args:
        drivers: that may run at once.
        faults: lost, failed and late requests, and connections that the server ends.
        sealers: processes that take a savepoint which moves the job.
        successors: jobs that are restored from it.
    """

    drivers: int = 2
    faults: int = 0
    sealers: int = 0
    successors: int = 0

    def __str__(self) -> str:
        counts = {
            "driver": self.drivers,
            "fault": self.faults,
            "savepoint": self.sealers,
            "successor": self.successors,
        }
        return ", ".join(f"{n} {what}{'s' * (n > 1)}" for what, n in counts.items() if n)

    def options(self) -> list[str]:
        """Return the definitions for Spin."""
        return [
            f"-DDRIVERS={self.drivers}",
            f"-DFAULTS={self.faults}",
            f"-DSEALERS={self.sealers}",
            f"-DSUCCESSORS={self.successors}",
        ]


@dataclass(frozen=True)
class Result:
    """What a search has found.

    Args:
        states: that it visited.
        violated: the invariant that does not hold; empty if all do.
        unreached: statements of the model that no state has reached.
    """

    states: int
    violated: str
    unreached: tuple[str, ...]


SCOPES = (
    Scope(faults=2),
    Scope(faults=1, sealers=1, successors=1),
    Scope(sealers=1, successors=2),
)

_MOVED = Scope(sealers=1, successors=1)
BUGS = {
    "APPLY_BEFORE_DECIDE": ("presumed_abort", Scope()),
    "MARKER_OUTSIDE": ("once", Scope()),
    "NO_FENCING": ("once", Scope()),
    "OVERLAP_BY_SETTING": ("commit_log", Scope()),
    "NO_FIRST_LOOK": ("atomicity", Scope()),
    "NO_SECOND_LOOK": ("order", Scope()),
    "DECISION_PASSES_SEAL": ("seal", _MOVED),
    "SEAL_WITHOUT_LOOK": ("seal", _MOVED),
    "NO_TAKEOVER": ("once", Scope(drivers=1, sealers=1, successors=2)),
}
"""A rule that is taken out -> the invariant that must break, and where to search."""

IMPOSSIBLE = ("sealed = epoch", "assert(((seal||(sealed==255))||(at<sealed)))")
"""Statements of a shared macro that cannot be reached: no driver seals, and no sealer decides."""


def search(scope: Scope, bug: str = "") -> Result:
    """Let Spin generate the search, compile it and run it."""
    with scratch_folder("spin") as folder:
        options = scope.options() + ([f"-DBUG_{bug}"] if bug else [])
        compiled = ["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={_MEMORY_MB}"]
        generate = _inside(folder, "spin", "-a", *options, str(MODEL))
        run(generate, what=f"Spin does not accept {MODEL.name}")
        compile_ = _inside(folder, "gcc", *compiled, "-o", "pan", "pan.c")
        run(compile_, what="The search does not compile")
        # -E: a process that waits when all are killed is no error
        explore = _inside(folder, "./pan", "-E", f"-m{_DEPTH}")
        report = run(explore, what=f"The search of {scope} failed", patience_s=_SEARCH_S)
    return parse(report)


def _inside(folder: Path, *command: str) -> list[str | Path]:
    """Return a command that runs in a folder, where Spin and its search write their files."""
    return ["sh", "-c", 'cd "$0" && exec "$@"', folder, *command]


def parse(report: str) -> Result:
    """Return what a search has printed; raises HostError if it is not complete."""
    violated, states = _VIOLATED.search(report), _STATES.search(report)
    # "errors: 0" also stands in the report of a search that ran out of memory or depth
    cut_off = "Search not completed" in report or "max search depth too small" in report
    complete = "errors: 0" in report and not cut_off
    if states is None or not (complete or violated):
        raise HostError(f"The search did not end as expected:\n{report[-2000:]}")
    lines = re.findall(r'state \d+, "(.*)"$', report, re.MULTILINE)
    unreached = tuple(line for line in lines if line not in (*IMPOSSIBLE, "-end-"))
    return Result(int(states["states"]), violated["invariant"] if violated else "", unreached)


def check() -> Iterator[str]:
    """Yield a line for each search; raises HostError at the first unexpected result."""
    for scope in SCOPES:
        began = time.monotonic()
        result = search(scope)
        if result.violated:
            raise HostError(f"{scope}: invariant {result.violated} does not hold")
        if result.unreached and scope.sealers and scope.faults:
            raise HostError(f"{scope}: no state reaches {result.unreached[0]}")
        seconds = time.monotonic() - began
        yield f"{scope}: all invariants hold in {result.states:,} states ({seconds:.0f} s)"
    for bug, (invariant, scope) in BUGS.items():
        result = search(scope, bug)
        if result.violated != invariant:
            found = result.violated or "nothing"
            raise HostError(f"{bug} must violate {invariant}, but {found} was violated")
        yield f"{bug}: violates {invariant}, as it must"


def main() -> int:
    """Print the results."""
    try:
        need({"spin": "spin", "gcc": "gcc"})
        for line in check():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    except HostError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
