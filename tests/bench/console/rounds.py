"""One round of the console's benchmark: the same fleet in a folder and on S3."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp

from infra.local_services.s3 import S3Server
from sluicegate.storage.lineage import read_lineage
from tests.bench.console import browser, report
from tests.bench.console.checkpoints import (
    EPOCHS,
    UnsyncedStore,
    name_of,
    write_epoch,
    write_fleet,
    write_spark_logs,
)
from tests.bench.console.server import Served, serve
from tests.bench.console.viewers import fetch, until_read, watched
from tests.bench.figures import percentile

VIEWERS = 100

_CHANGED_A_SECOND = 20
"""How many jobs decide an epoch each second while pages are open."""
_PAGES = 5
_REST_S = 2.0
"""Longer than a page is fresh, so that each request makes it again."""

Figure = tuple[str, str, float]
"""The store, the key of a measure, and its value."""


class Activity:
    """Jobs that go on: each call decides and applies an epoch of some of them."""

    def __init__(self, root: Path, jobs: int) -> None:
        self._root, self._next = root, dict.fromkeys(range(jobs), EPOCHS)

    def go_on(self) -> None:
        """Write the next epoch of some jobs."""
        for job in random.sample(list(self._next), min(_CHANGED_A_SECOND, len(self._next))):
            store, epoch = UnsyncedStore(self._root / name_of(job)), self._next[job]
            lineage = read_lineage(store)
            assert lineage is not None
            now_ms = time.time_ns() // 1_000_000
            write_spark_logs(store, epoch, now_ms)
            write_epoch(store, lineage, epoch, now_ms)
            self._next[job] += 1


async def round_of(folder: Path, jobs: int, seconds: float) -> AsyncIterator[Figure]:
    """Run all measures on both stores; yield each figure as soon as it is known.

    Args:
        folder: an empty folder for the fleet.
        jobs: number of jobs.
        seconds: how long the viewers have their pages open.
    """
    server = S3Server(folder)
    root = folder / "s3" / "objects" / server.endpoint.bucket / "fleet"
    root.mkdir(parents=True)
    await asyncio.to_thread(write_fleet, root, jobs, time.time_ns() // 1_000_000)
    activity = Activity(root, jobs)
    await asyncio.to_thread(server.start)
    try:
        on_s3 = f"{server.endpoint.url}/fleet", server.endpoint.environment()
        for store, (address, environment) in zip(
            report.STORES, ((str(root), {}), on_s3), strict=True
        ):
            async for key, value in _measured(address, environment, activity, seconds):
                yield store, key, value
    finally:
        await asyncio.to_thread(server.stop)


async def _measured(
    address: str, environment: Mapping[str, str], activity: Activity, seconds: float
) -> AsyncIterator[tuple[str, float]]:
    with serve(address, environment) as console:
        async with aiohttp.ClientSession() as session:
            first_s = await _fetched_s(session, console.url)
            yield report.FIRST_PAGE, 1e3 * first_s
            yield report.READ, first_s + await until_read(session, console.url)
            pages_s = [await _rested(session, console.url) for _ in range(_PAGES)]
            yield report.PAGE, 1e3 * percentile(pages_s, 50)
            yield report.PAGE_KB, (await fetch(session, console.url))[2] / 1e3
            job = f"{console.url}job/{name_of(1)}"
            jobs_s = [await _rested(session, job) for _ in range(_PAGES)]
            yield report.JOB_PAGE, 1e3 * percentile(jobs_s, 50)
        if chromium := browser.installed():
            yield report.PAINT, await browser.first_paint_ms(chromium, console.url)
        yield report.MEMORY, console.memory_mib()
        async for figure in _viewed(console, activity, seconds):
            yield figure
    if chromium:
        with serve(address, environment) as console:
            yield report.PAINT_COLD, await browser.first_paint_ms(chromium, console.url)


async def _viewed(
    console: Served, activity: Activity, seconds: float
) -> AsyncIterator[tuple[str, float]]:
    start_s, cpu_s = time.monotonic(), console.cpu_s()
    viewers = await watched(console.url, VIEWERS, seconds, activity.go_on)
    yield report.VIEWED_CPU, (console.cpu_s() - cpu_s) / (time.monotonic() - start_s)
    fetched_s = [each for viewer in viewers for each in viewer.fetched_s]
    assert all(viewer.fetched_s for viewer in viewers), "a viewer never got its page"
    yield report.VIEWED_P50, 1e3 * percentile(fetched_s, 50)
    yield report.VIEWED_P99, 1e3 * percentile(fetched_s, 99)
    yield report.VIEWED_MEMORY, console.memory_mib()


async def _fetched_s(session: aiohttp.ClientSession, url: str) -> float:
    start_s = time.monotonic()
    await fetch(session, url)
    return time.monotonic() - start_s


async def _rested(session: aiohttp.ClientSession, url: str) -> float:
    await asyncio.sleep(_REST_S)
    return await _fetched_s(session, url)
