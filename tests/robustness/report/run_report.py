"""The report of a long run, made of its history alone. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.robustness.failpoints.fault_plan import SAVEPOINT
from tests.robustness.history.recorder import Event

ELSEWHERE = "not at its failpoint"
"""The failpoint of a failure whose own was not passed in time: the actor failed at another moment."""

Times = dict[str, dict[str, list[float]]]
"""Actor -> 'single' or 'double' -> seconds, one value a fault; of a double fault the actor is the first."""

Cells = dict[str, dict[str, int]]
"""Actor -> failpoint -> number of failures; a double fault has two."""


Changes = dict[str, int]
"""What was changed before the next driver, as `setting=value` -> number of faults."""

_MOVE = f"{SAVEPOINT}="


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
        run: its options, with the seed, and `commit`, which older reports do not have.
        seconds: how long it took.
        cells: where the actors failed, second faults included.
        recovery_s: time until every sink had new rows.
        reader_wait_s: longest wait of a read_committed reader.
        single, double: numbers of faults.
        changes: faults after which a driver was started with another setting, partition or checkpoint, by
            what was changed. 'savepoint=POINT': the job was moved, and a command or the first driver was
            killed at the failpoint POINT; 'savepoint=': it was moved without a kill.
        missed: failures that were not at their failpoint; see ELSEWHERE.
        skipped: planned faults that did not happen, because the request to fail was not sent in time.
        unfinished: faults from which the job had not recovered when the run ended.
        anomalies: what the checkers and the run found.
        judged: whether the run came to its end, where every row is judged.
        rows, drivers: judged rows of the source, and drivers that ran.
        taken_over: drivers that were a standby before.
    """

    run: dict[str, Any]
    seconds: float = 0.0
    cells: Cells = field(default_factory=dict)
    recovery_s: Times = field(default_factory=dict)
    reader_wait_s: Times = field(default_factory=dict)
    single: int = 0
    double: int = 0
    changes: Changes = field(default_factory=dict)
    missed: int = 0
    skipped: int = 0
    unfinished: int = 0
    anomalies: list[str] = field(default_factory=list)
    judged: bool = False
    rows: int = 0
    drivers: int = 0
    taken_over: int = 0

    @property
    def faults(self) -> int:
        """How many faults happened."""
        return self.single + self.double

    @property
    def changed(self) -> int:
        """How many faults were followed by a driver with something changed."""
        return sum(self.changes.values())

    @property
    def moved(self) -> int:
        """How many of those have moved the job by a savepoint."""
        return sum(number for change, number in self.changes.items() if change.startswith(_MOVE))

    @property
    def passed(self) -> bool:
        """Whether something failed, the run was judged and nothing was found."""
        return self.judged and self.faults > 0 and not self.anomalies

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "passed": self.passed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunReport:
        """Return the report that `as_json` wrote.

        Raises:
            ValueError: another version wrote it, whose numbers have another meaning.
        """
        names = {one.name for one in fields(cls)}
        if values.keys() != names | {"passed"}:
            different = ", ".join(sorted(values.keys() ^ (names | {"passed"})))
            raise ValueError(f"another version of the report, which differs in: {different}")
        return cls(**{name: values[name] for name in names})


def summarize(history: Iterable[Event]) -> RunReport:
    """Return the report of a history; it begins with the event 'run'."""
    events = list(history)
    report = RunReport({k: v for k, v in events[0].items() if k not in ("at_s", "event")})
    planned = ""  # change of the fault that began last
    for event in events:
        report.seconds = event["at_s"]
        match event["event"]:
            case "begin":
                planned = event["change"]
            case "fault":
                _count(report, event)
                if event["changed"]:
                    report.changes[planned] = report.changes.get(planned, 0) + 1
            case "skipped":
                report.skipped += 1
            case "anomaly":
                number = f"fault {event['fault']}: " if "fault" in event else ""
                report.anomalies.append(number + event["text"])
            case "judged":
                report.judged, report.rows = True, event["rows"]
            case "end":
                report.drivers, report.taken_over = event["drivers"], event["taken_over"]
    return report


def _count(report: RunReport, event: Event) -> None:
    """Count a fault where it happened, not where it was planned."""
    second, actor = event["second"], event["actor"]
    for failure in (event, second) if second else (event,):
        failpoint = failure["failpoint"] if failure["reached"] else ELSEWHERE
        cells = report.cells.setdefault(failure["actor"], {})
        cells[failpoint] = cells.get(failpoint, 0) + 1
        report.missed += not failure["reached"]
    kind = "double" if second else "single"
    report.double += bool(second)
    report.single += not second
    if event["recovery_s"]:
        times = report.recovery_s.setdefault(actor, {}).setdefault(kind, [])
        times.append(max(event["recovery_s"].values()))
    else:
        report.unfinished += 1
    report.reader_wait_s.setdefault(actor, {}).setdefault(kind, []).append(event["reader_wait_s"])


def as_markdown(report: RunReport) -> str:
    """Return the report as a page."""
    run = report.run
    summary = (
        f"{report.faults} faults in {report.seconds / 60:.1f} minutes at {run['rate']:g} records a "
        f"second: {report.single} single and {report.double} double, {report.changed} with a changed "
        f"setting, {report.moved} of which moved the job by a savepoint; {report.missed} not at their "
        f"failpoint. {report.skipped} planned faults did not happen. {report.drivers} drivers ran, "
        f"{report.taken_over} of which had been a standby; {report.rows} records of the source were "
        "judged."
    )
    lines = [f"# Seed {run['seed']}, {run['job']}, {run['delivery']}", "", summary, ""]
    if report.unfinished:
        lines += [f"The run ended before {report.unfinished} of them had recovered.", ""]
    lines += [*_verdict(report), ""]
    if report.faults:
        lines += [*times_table(report.recovery_s, report.reader_wait_s), ""]
        lines += cells_table(report.cells)
    if report.changes:
        lines += ["", *changes_table(report.changes)]
    return "\n".join(lines) + "\n"


def times_table(recovery_s: Times, reader_wait_s: Times) -> list[str]:
    """Return the lines of a table of times by actor."""
    lines = [
        "| actor | | faults | recovery: median, s | p95 | longest | reader's wait: median, s | longest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for actor, kinds in sorted(reader_wait_s.items()):
        for kind, waits in sorted(kinds.items(), reverse=True):
            wait = Spread.of(waits)
            recovered = recovery_s.get(actor, {}).get(kind)
            times = Spread.of(recovered) if recovered else None
            shown = (
                f"{times.median:.1f} | {times.p95:.1f} | {times.longest:.1f}" if times else "| |"
            )
            lines.append(
                f"| {actor} | {kind} | {wait.faults} | {shown} | {wait.median:.1f} | {wait.longest:.1f} |"
            )
    return lines


def cells_table(cells: Cells) -> list[str]:
    """Return the lines of a table of failures by failpoint and actor."""
    actors = sorted(cells)
    failpoints = sorted({failpoint for row in cells.values() for failpoint in row})
    lines = [f"| failpoint | {' | '.join(actors)} |", "|---|" + "---|" * len(actors)]
    return lines + [
        f"| {failpoint} | {' | '.join(str(cells[actor].get(failpoint, '')) for actor in actors)} |"
        for failpoint in failpoints
    ]


def changes_table(changes: Changes) -> list[str]:
    """Return the lines of a table of changes."""
    lines = ["| what was changed before the next driver | faults |", "|---|---|"]
    for change, number in sorted(changes.items()):
        text = f"`{change}`"
        if change.startswith(_MOVE):
            killed = change.removeprefix(_MOVE)
            text = "moved by a savepoint" + (f", with a kill at `{killed}`" if killed else "")
        lines.append(f"| {text} | {number} |")
    return lines


def _verdict(report: RunReport) -> list[str]:
    if report.passed:
        return ["**No anomaly**: nothing lost, repeated, altered, invented, late or stuck."]
    if report.judged and not report.anomalies:
        return ["**No fault happened**: the run proves nothing."]
    heading = "" if report.judged else " The run did not come to its end: its rows are not judged."
    return [
        f"**{len(report.anomalies)} anomalies.**{heading}",
        "",
        *(f"- {a}" for a in report.anomalies),
    ]
