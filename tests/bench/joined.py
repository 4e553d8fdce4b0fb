"""The results of several runs of the command, as one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.about import About
from tests.bench.figures import Run
from tests.bench.growth import Start
from tests.bench.plan import Pace, Workload


@dataclass(frozen=True)
class Part:
    """One run of the command.

    Args:
        about: its circumstances.
        rounds: number of rounds.
        warnings: rounds before which other processes used the machine.
    """

    about: About
    rounds: int
    warnings: int


@dataclass
class Joined:
    """The results by workload."""

    parts: list[Part] = field(default_factory=list)
    workloads: dict[str, Workload] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    starts: dict[str, Start] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    kills: int = 0
    jobs: int = 0
    operator: Sequence[Mapping[str, float]] = ()
    console_jobs: int = 0
    console: Sequence[Mapping[str, Mapping[str, float]]] = ()

    def compared(self) -> dict[str, Sequence[str]]:
        """Return the contenders of each comparison."""
        named = {name: workload.contenders for name, workload in self.workloads.items()}
        return {**named, **{name: pace.contenders for name, pace in self.paces.items()}}

    def sound(self, workload: str, contender: str) -> str:
        """Return how many runs have figures, of all."""
        runs = [run for run in self.runs if (run.workload, run.contender) == (workload, contender)]
        return f"{sum(bool(run.figures) for run in runs)}/{len(runs)}"


def join(results: Iterable[Mapping[str, Any]]) -> Joined:
    """Return what `report.write_json` wrote, several times; the later result of a workload counts."""
    joined = Joined()
    for result in results:
        warnings = sum(bool(machine["busy"]) for machine in result["machines"])
        joined.parts.append(Part(About(**result["about"]), result["rounds"], warnings))
        for stored in result["workloads"]:
            workload = Workload(**{**stored, "contenders": tuple(stored["contenders"])})
            joined.workloads[workload.name] = workload
        joined.paces |= {pace.name: pace for pace in (Pace(**of) for of in result["paces"])}
        joined.starts |= {start.name: start for start in (Start(**of) for of in result["starts"])}
        runs = [Run(**run) for run in result["runs"]]
        measured = {run.workload for run in runs}
        joined.runs = [run for run in joined.runs if run.workload not in measured] + runs
        joined.kills = result["kills"] or joined.kills
        if result["operator"]:
            joined.jobs, joined.operator = result["jobs"], result["operator"]
        if result["console"]:
            joined.console_jobs, joined.console = result["console_jobs"], result["console"]
    return joined
