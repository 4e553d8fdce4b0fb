"""One round of the operator's benchmark: every measure once, on its own cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.bench.figures import percentile
from tests.bench.operator import report, spark_submit
from tests.bench.operator.scenario import Stage, stage, until

_SINGLE = 100
_FAILED = 50
_EXECUTORS = 4
_REST_S = 20.0

Figure = tuple[str, float]
"""The key of a measure, and its value."""


async def round_of(folder: Path, jobs: int, submits: int) -> AsyncIterator[Figure]:
    """Run all measures; yield each figure as soon as it is known.

    Args:
        folder: folder for the servers' data.
        jobs: total number of jobs.
        submits: number of jobs submitted by spark-submit for each number of JVMs.
    """
    async with stage(folder) as found:
        # first, while no operator shares the two cores
        for at_once in report.SUBMITS:
            yield report.peers(at_once), await spark_submit.rate(found, at_once, submits)
        await found.start("bench")
        await found.volume_ready()
        names = [f"one-{i}" for i in range(min(_SINGLE, jobs // 4))]
        async for figure in _created(found, names, jobs):
            yield figure
        names += [f"many-{i}" for i in range(jobs - len(names))]
        async for figure in _failing(found, names):
            yield figure
        await _executors(found, names)
        yield report.MEMORY, found.memory_mib()
        async for figure in _killed(found, jobs):
            yield figure


async def _created(found: Stage, singles: Sequence[str], jobs: int) -> AsyncIterator[Figure]:
    took = []
    for name in singles:
        began = await found.job(name)
        took.append(await found.pod_of(name, 1) - began)
    yield report.CREATED_P50, 1e3 * percentile(took, 50)
    yield report.CREATED_P99, 1e3 * percentile(took, 99)
    names = [f"many-{i}" for i in range(jobs - len(singles))]
    began = time.monotonic()
    await asyncio.gather(*(found.job(name) for name in names))
    seen = [await found.pod_of(name, 1) for name in names]
    yield report.RATE, len(names) / (max(seen) - began)


async def _failing(found: Stage, names: Sequence[str]) -> AsyncIterator[Figure]:
    await asyncio.gather(*(found.move(name, 1, "Running") for name in names))
    await found.quiet()
    took = []
    for name in names[: min(_FAILED, len(names) // 4)]:
        began = await found.move(name, 1, "Failed")
        took.append(await found.pod_of(name, 2) - began)
    yield report.REPLACED_P50, 1e3 * percentile(took, 50)
    yield report.REPLACED_P99, 1e3 * percentile(took, 99)
    await found.quiet()
    unlucky = names[-(len(names) // 10) :]
    began = time.monotonic()
    await asyncio.gather(*(found.move(name, 1, "Failed") for name in unlucky))
    seen = [await found.pod_of(name, 2) for name in unlucky]
    yield report.MANY, max(seen) - began


async def _executors(found: Stage, names: Sequence[str]) -> None:
    made = (found.executor(name, number) for name in names for number in range(_EXECUTORS))
    await asyncio.gather(*made)
    await found.quiet()
    await asyncio.sleep(5.0)  # memory of the last events is released


async def _killed(found: Stage, jobs: int) -> AsyncIterator[Figure]:
    """Kill the operator twice: its pod restarts it, then another takes over as if the node was lost."""
    pods = set(found.seen)
    for key, identity in ((report.SYNC_SAME, "bench"), (report.SYNC_OTHER, "another")):
        found.kill()
        began = time.monotonic()
        await found.start(identity)
        await until(lambda: found.looks() >= jobs, every_s=0.1)
        await found.quiet()
        yield key, time.monotonic() - began
    yield report.DUPLICATES, len(set(found.seen) - pods)
    before = await found.versions()
    await asyncio.sleep(_REST_S)
    after = await found.versions()
    yield report.WRITES, len(set(after.items()) ^ set(before.items()))
