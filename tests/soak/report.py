"""The report of a soak: which series grew, and how old the newest epoch in every sink was. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infra.reference_docs.markdown import paragraph
from sluicegate.storage.driver_failure import RETAINED
from tests.bench import charts
from tests.bench.page_parts import table
from tests.e2e.sent import counts

GROWN = 1.1
"""A series has grown if the median of its last quarter is so many times the largest value of its second
quarter. The first quarter is left out: caches fill, and each process is started for the first time."""

_LIMITED = ("starts objects of ", "ends objects of ", "failures objects of ")
"""Series that grow with each kill, up to RETAINED."""

_BELIEVED = "dead letters that cannot be judged any more"

Point = tuple[float, float]
"""Minutes since the start, and a value."""

NEAR_S = 20.0
"""A time without epochs belongs to a kill if the last epoch before it is no further from the kill."""

Run = Mapping[str, Any]
"""What a soak writes: `seed`, `minutes`, `rate`, `commit`, `began_s` (in s since 1970), `samples` with `minute`
and `values`, `kills` with `minute` and `victim`, `applied_s` by job and epoch; `restarts`, `records` and
`verified` by job."""


class Trend(NamedTuple):
    """A series' medians of the second and the last quarter of its points."""

    second: float
    last: float
    grown: bool

    @classmethod
    def of(cls, points: Sequence[Point]) -> Trend | None:
        """Return the trend of a series, None if it has too few points."""
        quarter = len(points) // 4
        if not quarter:
            return None
        values = [value for _, value in points]
        second, last = values[quarter : 2 * quarter], values[-quarter:]
        median = statistics.median(last)
        return cls(statistics.median(second), median, median > GROWN * max(second))


def series(run: Run) -> dict[str, list[Point]]:
    """Return all series by name."""
    found: dict[str, list[Point]] = {}
    for sample in run["samples"]:
        for name, value in sample["values"].items():
            found.setdefault(name, []).append((sample["minute"], value))
    return found


def trends(run: Run) -> dict[str, Trend]:
    """Return the trends of the series that have one, by name."""
    found = {name: Trend.of(points) for name, points in sorted(series(run).items())}
    return {
        name: trend._replace(grown=False)
        if name.startswith(_LIMITED) and trend.last <= RETAINED
        else trend
        for name, trend in found.items()
        if trend is not None
    }


def grown(run: Run) -> list[str]:
    """Return the names of the series that have grown."""
    return [name for name, trend in trends(run).items() if trend.grown]


def nothing_late(said: str, sent: int) -> bool:
    """Return whether `sluicegate verify` found no late row, but for the rows that were sent twice.

    Of the rows that were sent, none is late. The traffic sends them again when its producer has
    forgotten a leader, and such a copy may come after its window was closed. Of epochs whose offsets
    are gone, `verify` believes a letter that says so.

    Args:
        said: what it printed.
        sent: how many different rows were sent.
    """
    found = counts(said)
    # the letters are a part of the late rows
    late = max((found[what] for what in found if what.startswith(("late ", _BELIEVED))), default=0)
    return late <= max(0, found.get("source lines", sent) - sent)


def ages_s(applied_s: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return how old the newest epoch in every sink was, at most, in a share of the time.

    Between two epochs that are in every sink at times a and b the age grows from 0 to b - a. So it is
    above x for the sum of max(0, gap - x), over all gaps.

    Args:
        applied_s: when each epoch was in every sink.
        shares: of the time, below 1: 0.5 for the median.
    """
    times = sorted(applied_s)
    gaps = sorted((b - a for a, b in itertools.pairwise(times)), reverse=True)
    return [_age(gaps, (1 - share) * sum(gaps)) for share in shares]


def _age(gaps: Sequence[float], above: float) -> float:
    """Return x for which the sum of max(0, gap - x) is `above`; gaps are in descending order."""
    total = 0.0
    for number, gap in enumerate(gaps, 1):
        total += gap
        following = gaps[number] if number < len(gaps) else 0.0
        x = (total - above) / number
        if x >= following:
            return max(0.0, x)
    return 0.0


def without_epoch_s(run: Run) -> dict[str, dict[str, list[float]]]:
    """Return the longest time between two epochs of each job after each kill, by victim and job.

    A job that was down already at a kill has none for it.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for kill in run["kills"]:
        at_s = run["began_s"] + kill["minute"] * 60
        of_victim = found.setdefault(kill["victim"], {job: [] for job in run["applied_s"]})
        for job, applied in run["applied_s"].items():
            pairs = itertools.pairwise(sorted(applied.values()))
            near = [b - a for a, b in pairs if abs(a - at_s) <= NEAR_S]
            of_victim[job] += [max(near)] if near else []
    return found


def page(run: Run) -> tuple[str, dict[str, str]]:
    """Return the page in Markdown, and its plots as SVG by name."""
    plots = {
        name: charts.over_time(title, "minutes", unit, _matching(run, prefix))
        for name, title, unit, prefix in (
            ("memory", "Resident memory", "MiB", "memory (MiB) of "),
            ("files", "Open files", "", "open files of "),
            ("connections", "Established connections", "", "connections of "),
            ("objects", "Objects of the checkpoints", "", "objects of "),
            ("staging", "Staged objects", "", "staging objects of "),
            ("epochs", "Size of the epoch log", "bytes", "bytes of epochs of "),
            ("ids", "Transactional ids", "", "transactional ids of "),
        )
    }
    lines = [
        "# Soak",
        "",
        "<!-- Generated by `make soak`. -->",
        "",
        paragraph(
            f"`make soak MINUTES={run['minutes']:g} SEED={run['seed']}` at commit {run['commit']}: "
            f"{run['rate']:g} records a second for each job, {len(run['kills'])} pods killed. "
            "[What it does](../operations/robustness.md#on-the-cluster)."
        ),
        "",
        *_exactness(run),
        "",
        *_kills(run),
        "",
        "## What grew",
        "",
        paragraph(
            "A series has grown if the median of its last quarter is more than "
            f"{GROWN:g} times the largest value of its second quarter. What each kill adds, starts, ends "
            f"and failures of drivers, may grow up to {RETAINED}."
        ),
        "",
        *_trends(run),
        *(f"\n![{name}](soak.plots/{name}.svg)" for name in plots),
    ]
    return "\n".join([*lines, ""]), plots


def _matching(run: Run, prefix: str) -> dict[str, list[Point]]:
    return {
        name.removeprefix(prefix): points
        for name, points in sorted(series(run).items())
        if name.startswith(prefix)
    }


def _exactness(run: Run) -> list[str]:
    rows = []
    for job, applied in run["applied_s"].items():
        ages = [f"{age:.1f} s" for age in ages_s(list(applied.values()), (0.5, 0.99, 1.0))]
        verified = "exact" if run["verified"].get(job) else "NOT verified"
        rows.append(
            [job, f"{run['records'][job]:,}", verified, run["restarts"][job], len(applied), *ages]
        )
    heads = ["job", "records", "`verify`", "restarts", "epochs seen"]
    heads += ["age of the newest epoch, p50", "p99", "largest"]
    return list(table(heads, rows))


def _kills(run: Run) -> list[str]:
    counts = Counter(kill["victim"] for kill in run["kills"])
    without = without_epoch_s(run)
    heads = [
        "killed",
        "times",
        *(f"{job}: longest time without an epoch" for job in run["applied_s"]),
    ]
    rows = [
        [victim, count, *(_median_and_longest(without[victim][job]) for job in run["applied_s"])]
        for victim, count in sorted(counts.items())
    ]
    return list(table(heads, rows))


def _median_and_longest(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    return f"median {statistics.median(seconds):.0f} s, longest {max(seconds):.0f} s"


def _trends(run: Run) -> list[str]:
    rows = [
        [name, f"{trend.second:,.0f}", f"{trend.last:,.0f}", "grew" if trend.grown else "flat"]
        for name, trend in trends(run).items()
    ]
    return list(table(["series", "median, second quarter", "last quarter", ""], rows))
