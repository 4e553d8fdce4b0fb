"""Attempts at an epoch that were thrown away: they ended before the epoch was decided. Pure.

Spark fixes the input of an epoch once, in `offsets/N`. A driver that starts between that and the decision
stages the epoch again, so the attempt of the driver before it was thrown away. Drivers record their start
anyway. Nothing else has the number: an attempt whose rows fit the record leaves no object in `staging/`,
and a killed pod writes no failure. Attempts that failed in the driver that decided the epoch, which
`tolerated-failures` allows, are in its report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sluicegate.console.model import Epoch


def decided_after_starts(epochs: Sequence[Epoch], started_ms: Iterable[int]) -> list[int]:
    """Return the epochs that were the first to be decided after a start: of no other was one thrown away.

    Args:
        epochs: in order.
        started_ms: when drivers started, in ms since 1970.
    """
    decided_ms = [epoch.decided_at_ms for epoch in epochs]
    first = {bisect_right(decided_ms, started) for started in started_ms}
    return [epochs[position].number for position in sorted(first) if position < len(epochs)]


def thrown_away(
    epochs: Sequence[Epoch], planned_ms: Mapping[int, int], started_ms: Sequence[int]
) -> dict[int, int]:
    """Return epoch -> the number of its attempts that were thrown away, without those that have none.

    Args:
        epochs: the decided ones.
        planned_ms: when Spark fixed the input of an epoch, in ms since 1970; 0 if that is unknown.
        started_ms: when drivers started.
    """
    decided_ms = {epoch.number: epoch.decided_at_ms for epoch in epochs}
    numbers = Counter({e.number: e.report.thrown_away for e in epochs if e.report is not None})
    for epoch, planned in planned_ms.items():
        if planned:
            last = decided_ms.get(epoch)
            numbers[epoch] += sum(planned < at and (last is None or at < last) for at in started_ms)
    return {epoch: number for epoch, number in numbers.items() if number}
