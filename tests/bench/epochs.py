"""Epochs as Spark reports them for every contender, and their steady rate.

Pure: reads the JSON of StreamingQueryProgress. Records are counted by the source's offsets, because
Spark's own count doubles if a plan reads its source twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.bench.plan import WARM_UP_EPOCHS


@dataclass(frozen=True)
class Epoch:
    """One micro-batch that had records.

    Args:
        number: Spark's batch id.
        records: read from the source.
        start_ms: start time in milliseconds since 1970.
        took_ms: milliseconds from the trigger to the committed batch.
        steps: Spark's own durations in milliseconds, such as addBatch and walCommit.
    """

    number: int
    records: int
    start_ms: float
    took_ms: float
    steps: Mapping[str, float]

    @property
    def end_ms(self) -> float:
        """The commit time in milliseconds since 1970."""
        return self.start_ms + self.took_ms


def read_epochs(progress: Iterable[Mapping[str, Any]]) -> list[Epoch]:
    """Return the epochs with records, in order; omit triggers without input."""
    result = []
    for batch in progress:
        records = _records(batch["sources"][0])
        if records:
            steps = {name: float(ms) for name, ms in batch["durationMs"].items()}
            start_ms = datetime.fromisoformat(batch["timestamp"]).timestamp() * 1000
            took_ms = steps["triggerExecution"]
            result.append(Epoch(int(batch["batchId"]), records, start_ms, took_ms, steps))
    return result


def _records(source: Mapping[str, Any]) -> int:
    """Return how far an epoch advanced the offsets of a topic that is read from offset 0."""
    start = source.get("startOffset") or {}
    return sum(
        int(end) - int(start.get(topic, {}).get(partition, 0))
        for topic, partitions in (source.get("endOffset") or {}).items()
        for partition, end in partitions.items()
    )


def steady_rate(epochs: Sequence[Epoch], warm_up: int = WARM_UP_EPOCHS) -> float | None:
    """Return records per second from the end of the warm-up to the end of the last epoch.

    None if there is no epoch after the warm-up.
    """
    measured = epochs[warm_up:]
    if not measured:
        return None
    begin_ms = epochs[warm_up - 1].end_ms if warm_up else measured[0].start_ms
    took_ms = measured[-1].end_ms - begin_ms
    return sum(e.records for e in measured) * 1000 / took_ms if took_ms > 0 else None


def irregular(epochs: Sequence[Epoch], records: int | None) -> str:
    """Describe a restart, gap or missing records in a run's epochs; empty if there is none."""
    numbers = [epoch.number for epoch in epochs]
    if numbers != sorted(set(numbers)):
        return f"an epoch ran twice: {numbers}"
    if numbers and numbers[0] != 0:
        return f"the first epoch is {numbers[0]}: the run was started again"
    records_read = sum(epoch.records for epoch in epochs)
    if records is not None and records_read != records:
        return f"{records_read:,} records read instead of {records:,}"
    return ""
