"""The console's measures with their aims, and the table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.figures import Spread, shown

STORES: Final = ("folder", "S3")
"""Where the checkpoints are."""

FIRST_PAGE: Final = "first_page_ms"
READ: Final = "read_s"
PAGE: Final = "page_ms"
PAINT_COLD: Final = "paint_cold_ms"
PAINT: Final = "paint_ms"
PAGE_KB: Final = "page_kb"
JOB_PAGE: Final = "job_page_ms"
MEMORY: Final = "memory_mib"
VIEWED_P50: Final = "viewed_p50_ms"
VIEWED_P99: Final = "viewed_p99_ms"
VIEWED_MEMORY: Final = "viewed_memory_mib"
VIEWED_CPU: Final = "viewed_cores"

Figures = Mapping[str, Mapping[str, float]]
"""The figures of a round, by store."""


@dataclass(frozen=True)
class Measure:
    """A row of the table: the key of the figure, its label, the aim, and digits after the decimal point."""

    key: str
    name: str
    aim: str = ""
    digits: int = 0


def measures(jobs: int, viewers: int) -> list[Measure]:
    """Return the rows for a number of jobs and viewers."""
    return [
        Measure(FIRST_PAGE, "console just started: first page, ms", "1,000"),
        Measure(PAINT_COLD, "  the same: first paint in Chromium, ms", "1,000"),
        Measure(READ, f"  all {jobs:,} jobs are on the page, s", "", 1),
        Measure(PAGE, f"all {jobs:,} jobs read: page, ms", "1,000"),
        Measure(PAINT, "  the same: first paint in Chromium, ms", "1,000"),
        Measure(PAGE_KB, "  size on the network, kB"),
        Measure(JOB_PAGE, "  page of a job, ms", "1,000"),
        Measure(MEMORY, "  memory, the most so far, MiB", "200"),
        Measure(VIEWED_P50, f"{viewers} viewers, jobs change: fetch after an event, p50 ms"),
        Measure(VIEWED_P99, "  p99 ms", "1,000"),
        Measure(VIEWED_CPU, "  cores in use", "", 2),
        Measure(VIEWED_MEMORY, "  memory, the most of all, MiB", "200"),
    ]


def lines(rounds: Sequence[Figures], jobs: int, viewers: int) -> Iterator[str]:
    """Yield the table's lines."""
    yield ""
    yield f"console: {jobs:,} jobs, {len(rounds)} rounds, store and browser on the same machine"
    heads = "".join(f"{store + ': median (min - max)':>30}" for store in STORES)
    yield f"  {'':<58}{heads}{'aim':>8}"
    for measure in measures(jobs, viewers):
        cells = ""
        for store in STORES:
            values = (figures.get(store, {}).get(measure.key) for figures in rounds)
            spread = Spread.of(value for value in values if value is not None)
            cells += f"{shown(spread, measure.digits):>30}"
        yield f"  {measure.name:<58}{cells}{measure.aim:>8}"
