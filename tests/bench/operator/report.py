"""The operator's measures with their limits and goals, and the table.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.figures import Spread, shown

CREATED_P50: Final = "created_p50_ms"
CREATED_P99: Final = "created_p99_ms"
RATE: Final = "rate_s"
REPLACED_P50: Final = "replaced_p50_ms"
REPLACED_P99: Final = "replaced_p99_ms"
MANY: Final = "many_s"
MEMORY: Final = "memory_mib"
REQUESTS: Final = "requests"
UPGRADED: Final = "upgraded_s"
UPGRADE_PAUSE: Final = "upgrade_pause_s"
UPGRADE_DOWN: Final = "upgrade_down"
UPGRADE_OTHER_P99: Final = "upgrade_other_p99_ms"
SYNC_SAME: Final = "sync_same_s"
READ_OTHER: Final = "read_other_s"
LEASE_OTHER: Final = "lease_other_s"
SYNC_OTHER: Final = "sync_other_s"
LEASE: Final = "lease_s"
SYNC_REPLICA: Final = "sync_replica_s"
DUPLICATES: Final = "duplicates"
WRITES: Final = "writes"

SUBMITS: Final = (1, 2, 4)
"""Numbers of concurrent spark-submit JVMs."""


@dataclass(frozen=True)
class Measure:
    """A row of the table.

    Args:
        key: key of the figure.
        name: label in the table.
        least: required value.
        aim: target value.
        digits: digits after the decimal point.
    """

    key: str
    name: str
    least: str = ""
    aim: str = ""
    digits: int = 0


def rate_key(at_once: int) -> str:
    """Return the key of the peers' rate."""
    return f"submit_{at_once}_rate_s"


def measures(jobs: int) -> list[Measure]:
    """Return the rows for a number of jobs."""
    return [
        Measure(CREATED_P50, "one job, idle operator: applied -> pod, p50 ms", "", "50"),
        Measure(CREATED_P99, "  p99 ms", "200", "150"),
        Measure(RATE, f"{jobs:,} jobs at once: pods created a second", "7", "20", 1),
        Measure(REPLACED_P50, "driver failed, backoff 0 -> replaced, p50 ms", "2,000", "150"),
        Measure(REPLACED_P99, "  p99 ms", "2,000", "500"),
        Measure(
            MANY, f"{jobs // 10} of {jobs:,} drivers fail at once -> replaced, s", "30", "5", 1
        ),
        Measure(
            MEMORY, f"memory, {jobs:,} jobs, drivers, {4 * jobs:,} executors, MiB", "400", "150"
        ),
        Measure(REQUESTS, "requests of the operator for each job and minute", "1", "1", 2),
        Measure(UPGRADED, f"new image for {jobs:,} jobs -> all run it, s", "", "60", 1),
        Measure(UPGRADE_PAUSE, "  longest time without a new driver, s", "5", "1", 1),
        Measure(UPGRADE_DOWN, "  most jobs without a driver at a time", "", "20"),
        Measure(UPGRADE_OTHER_P99, "  another job: applied -> pod, p99 ms", "2,000", "150"),
        Measure(SYNC_SAME, "killed, started again in its pod -> in sync, s", "30", "10", 1),
        Measure(READ_OTHER, "killed, another is started -> has read all objects, s", "", "", 1),
        Measure(LEASE_OTHER, "  -> leads, s", "", "", 1),
        Measure(SYNC_OTHER, "  -> in sync, s", "30", "5", 1),
        Measure(LEASE, "killed, the other replica takes over -> leads, s", "30", "5", 1),
        Measure(SYNC_REPLICA, "  -> in sync, s", "30", "5", 1),
        Measure(DUPLICATES, "  pods made twice by that", "0", "0"),
        Measure(WRITES, "  objects written in 20 s at rest", "0", "0"),
    ]


def lines(rounds: Sequence[Mapping[str, float]], jobs: int) -> Iterator[str]:
    """Yield the table's lines; `rounds` has the figures of each round."""
    yield ""
    yield f"operator: {jobs:,} StreamingJobs, {len(rounds)} rounds, API server and etcd on the same machine"
    yield f"  {'':<58}{'median (min - max)':>26}{'at least':>10}{'aim':>7}"
    for measure in measures(jobs):
        spread = Spread.of(figures[measure.key] for figures in rounds if measure.key in figures)
        cell = shown(spread, measure.digits)
        yield f"  {measure.name:<58}{cell:>26}{measure.least:>10}{measure.aim:>7}"
    yield "  the peers' path: spark-submit --deploy-mode cluster, a JVM a job"
    for at_once in SUBMITS:
        key = rate_key(at_once)
        spread = Spread.of(figures[key] for figures in rounds if key in figures)
        yield f"  {f'{at_once} JVMs at once: pods created a second':<58}{shown(spread, 2):>26}"
        ratio = Spread.of(
            figures[RATE] / figures[key] for figures in rounds if key in figures and RATE in figures
        )
        yield f"  {'  ours / theirs, pair by pair':<58}{shown(ratio, 0):>26}"
