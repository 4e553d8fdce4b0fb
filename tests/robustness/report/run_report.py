"""The report of a long run, made of its history alone. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.robustness.history.recorder import Event


@dataclass(frozen=True)
class Spread:
    """Times in seconds."""

    faults: int
    median: float
    p95: float
    longest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of some values."""
        ordered = sorted(values)
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        return cls(len(ordered), round(statistics.median(ordered), 1), p95, ordered[-1])


@dataclass
class RunReport:
    """What a run did and found.

    Args:
        run: its options, with the seed.
        seconds: how long it took.
        cells: actor -> place -> number of faults, double faults included under their first.
        recovery: actor -> time until every sink had new rows.
        reader_wait: actor -> longest wait of a read_committed reader, one value a fault.
        single, double, changed, missed: numbers of faults; missed are those whose failpoint was not
            passed in time, where the actor failed at another moment.
        anomalies: what the checkers and the run found.
        judged: whether the run came to its end, where every row is judged.
        rows, drivers: judged rows of the source, and drivers that were started.
    """

    run: dict[str, Any]
    seconds: float = 0.0
    cells: dict[str, dict[str, int]] = field(default_factory=dict)
    recovery: dict[str, Spread] = field(default_factory=dict)
    reader_wait: dict[str, Spread] = field(default_factory=dict)
    single: int = 0
    double: int = 0
    changed: int = 0
    missed: int = 0
    anomalies: list[str] = field(default_factory=list)
    judged: bool = False
    rows: int = 0
    drivers: int = 0

    @property
    def passed(self) -> bool:
        """Whether the run was judged and nothing was found."""
        return self.judged and not self.anomalies

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "passed": self.passed}


def summarize(history: Iterable[Event]) -> RunReport:
    """Return the report of a history; it begins with the event 'run'."""
    events = list(history)
    report = RunReport({k: v for k, v in events[0].items() if k not in ("at_s", "event")})
    recovery: dict[str, list[float]] = defaultdict(list)
    waits: dict[str, list[float]] = defaultdict(list)
    for event in events:
        report.seconds = event["at_s"]
        match event["event"]:
            case "fault":
                actor = event["actor"]
                cells = report.cells.setdefault(actor, {})
                cells[event["place"]] = cells.get(event["place"], 0) + 1
                report.single += not event["second"]
                report.double += bool(event["second"])
                report.changed += bool(event["change"])
                report.missed += not event["reached"]
                recovery[actor].append(max(event["recovery_s"].values()))
                waits[actor].append(event["reader_wait_s"])
            case "anomaly":
                number = f"fault {event['fault']}: " if "fault" in event else ""
                report.anomalies.append(number + event["text"])
            case "judged":
                report.judged, report.rows = True, event["rows"]
            case "end":
                report.drivers = event["drivers"]
    report.recovery = {actor: Spread.of(values) for actor, values in recovery.items()}
    report.reader_wait = {actor: Spread.of(values) for actor, values in waits.items()}
    return report


def as_markdown(report: RunReport) -> str:
    """Return the report as a page."""
    run = report.run
    faults = report.single + report.double
    summary = (
        f"{faults} faults in {report.seconds / 60:.1f} minutes at {run['rate']:g} records a second: "
        f"{report.single} single and {report.double} double, {report.changed} with a changed setting; "
        f"{report.missed} not at their failpoint. {report.drivers} drivers were started, {report.rows} "
        "records of the source were judged."
    )
    lines = [
        f"# Seed {run['seed']}, {run['job']}, {run['delivery']}",
        "",
        summary,
        "",
        *_verdict(report),
        "",
        "| actor | faults | recovery: median, s | p95 | longest | reader's wait: median, s | longest |",
        "|---|---|---|---|---|---|---|",
    ]
    for actor, times in sorted(report.recovery.items()):
        wait = report.reader_wait[actor]
        lines.append(
            f"| {actor} | {times.faults} | {times.median:.1f} | {times.p95:.1f} | {times.longest:.1f} "
            f"| {wait.median:.1f} | {wait.longest:.1f} |"
        )
    actors = sorted(report.cells)
    places = sorted({place for cells in report.cells.values() for place in cells})
    lines += ["", f"| place | {' | '.join(actors)} |", "|---|" + "---|" * len(actors)]
    lines += [
        f"| {place} | {' | '.join(str(report.cells[a].get(place, '')) for a in actors)} |"
        for place in places
    ]
    return "\n".join(lines) + "\n"


def _verdict(report: RunReport) -> list[str]:
    if report.passed:
        return ["**No anomaly**: nothing lost, repeated, altered, invented, late or stuck."]
    heading = "" if report.judged else " The run did not come to its end: its rows are not judged."
    return [
        f"**{len(report.anomalies)} anomalies.**{heading}",
        "",
        *(f"- {a}" for a in report.anomalies),
    ]
