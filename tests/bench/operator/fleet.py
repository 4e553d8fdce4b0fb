"""Scenes of the operator's benchmark with a fleet that runs: at rest, and while all of it is upgraded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from itertools import count, pairwise

from tests.bench.figures import percentile
from tests.bench.operator import report
from tests.bench.operator.drivers import REPORT_S, Drivers
from tests.bench.operator.scenario import PATIENCE_S, BenchCluster, until

Figure = tuple[str, float]

_OTHER_EVERY_S = 0.25

_EDITS_S = 50.0
"""Edits per second. As fast as the API server takes them, they alone would keep it busy."""


async def at_rest(cluster: BenchCluster, names: Sequence[str]) -> AsyncIterator[Figure]:
    """Count the operator's requests while each driver reports progress each minute."""
    async with Drivers(cluster, names) as drivers:
        await until(lambda: drivers.all_up)
        await drivers.report_for(REPORT_S)  # the first report of a driver is written at once
        before, start_s = cluster.requests(), time.monotonic()
        await drivers.report_for(REPORT_S)
        minutes = (time.monotonic() - start_s) / 60.0
        yield report.REQUESTS, (cluster.requests() - before) / len(names) / minutes


async def upgraded(cluster: BenchCluster, names: Sequence[str]) -> AsyncIterator[Figure]:
    """Change the image of all jobs, 50 a second, and create others until all of them run it."""
    patience_s = max(PATIENCE_S, float(len(names)))
    async with Drivers(cluster, names) as drivers:
        await until(lambda: drivers.all_up)
        await cluster.wait_idle()
        before = dict(drivers.up)
        drivers.reset()

        def all_upgraded() -> bool:
            return all(drivers.up.get(name, 0) > before[name] for name in names)

        start_s = time.monotonic()
        others = asyncio.create_task(_create_others(cluster))
        try:
            await asyncio.gather(*(_edit(cluster, name, at) for at, name in enumerate(names)))
            await until(all_upgraded, every_s=0.1, within_s=patience_s)
            yield report.UPGRADED, time.monotonic() - start_s
        finally:
            others.cancel()
            durations_s = (await asyncio.gather(others, return_exceptions=True))[0]
        if isinstance(durations_s, BaseException):
            raise durations_s
        yield report.UPGRADE_OTHER_P99, 1e3 * percentile(durations_s, 99)
        yield report.UPGRADE_DOWN, drivers.most_down
        new = (
            at
            for (name, attempt), at in cluster.seen.items()
            if attempt > before.get(name, attempt)
        )
        yield report.UPGRADE_PAUSE, max(b - a for a, b in pairwise([start_s, *sorted(new)]))


async def _edit(cluster: BenchCluster, name: str, number: int) -> None:
    await asyncio.sleep(number / _EDITS_S)
    await cluster.set_image(name, "jobs:2")


async def _create_others(cluster: BenchCluster) -> list[float]:
    """Create unrelated jobs, one after another, until cancelled; return the times until their pods, in s."""
    durations_s = []
    try:
        for number in count():
            start_s = await cluster.create_job(f"other-{number}")
            durations_s.append(await cluster.wait_pod(f"other-{number}", 1) - start_s)
            await asyncio.sleep(_OTHER_EVERY_S)
    except asyncio.CancelledError:
        pass
    return durations_s
