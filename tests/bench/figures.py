"""Percentiles, medians and ratios of pairs from the same round.

Pure. A run with an anomaly has no figures, so no median and no ratio includes it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """One run of one contender.

    Args:
        figures: values by name, such as 'records_s'; empty if there is an anomaly.
        phases: phase -> milliseconds of each measured epoch; empty if there is an anomaly.
        anomaly: why the run has no number; empty if the run is valid.
        detail: other values for the JSON file.
    """

    workload: str
    contender: str
    round_: int
    figures: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    anomaly: str = ""
    detail: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject figures of a run with an anomaly."""
        if self.anomaly and (self.figures or self.phases):
            raise ValueError("a run with an anomaly has no figures")


@dataclass(frozen=True)
class Spread:
    """Minimum, median, maximum and count of some values."""

    low: float
    median: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return the spread; None if there are no values."""
        numbers = list(values)
        if not numbers:
            return None
        return cls(
            min(numbers),
            statistics.median(numbers),
            max(numbers),
            len(numbers),
        )


def shown(spread: Spread | None, digits: int) -> str:
    """Return a spread for a table: its median, and the others in parentheses."""
    if spread is None:
        return "no number"
    low, median, high = (
        f"{value:,.{digits}f}" for value in (spread.low, spread.median, spread.high)
    )
    return f"{median} ({low} - {high})"


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that is not exceeded by at least `percent` % of the values.

    Raises:
        ValueError: there are no values, or the percentage is not above 0 and at most 100.
    """
    ordered = sorted(values)
    if not ordered or not 0 < percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(ordered)} values")
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def spread(runs: Iterable[Run], workload: str, contender: str, figure: str) -> Spread | None:
    """Return the spread of a figure over the valid runs of a contender."""
    return Spread.of(
        run.figures[figure]
        for run in runs
        if (run.workload, run.contender) == (workload, contender) and figure in run.figures
    )


def ratios(
    runs: Iterable[Run], workload: str, figure: str, numerator: str, denominator: str
) -> Spread | None:
    """Return the spread of a contender's figure divided by another's, over pairs of valid runs of a round."""
    by_run = {
        (run.contender, run.round_): run.figures[figure]
        for run in runs
        if run.workload == workload and figure in run.figures
    }
    return Spread.of(
        value / by_run[denominator, round_]
        for (contender, round_), value in by_run.items()
        if contender == numerator and by_run.get((denominator, round_))
    )


def pooled(runs: Iterable[Run], workload: str, contender: str) -> dict[str, list[float]]:
    """Return each phase's milliseconds over all valid runs of a contender."""
    times: dict[str, list[float]] = {}
    for run in runs:
        if (run.workload, run.contender) == (workload, contender):
            for phase, values in run.phases.items():
                times.setdefault(phase, []).extend(values)
    return times


def anomalies(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that have no number."""
    return [run for run in runs if run.anomaly]
