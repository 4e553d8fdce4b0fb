"""One round of the operator's benchmark: every measure once, on its own cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.bench.figures import percentile
from tests.bench.operator import fleet, report, spark_submit
from tests.bench.operator.scenario import BenchCluster, bench_cluster, until

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
    async with bench_cluster(folder) as cluster:
        # first, while no operator shares the two cores
        for at_once in report.SUBMITS:
            yield report.rate_key(at_once), await spark_submit.rate(cluster, at_once, submits)
        await cluster.start("bench")
        await cluster.volume_ready()
        names = [f"one-{i}" for i in range(min(_SINGLE, jobs // 4))]
        async for figure in _created(cluster, names, jobs):
            yield figure
        names += [f"many-{i}" for i in range(jobs - len(names))]
        async for figure in _failing(cluster, names):
            yield figure
        await _executors(cluster, names)
        yield report.MEMORY, cluster.memory_mib()
        async for figure in fleet.at_rest(cluster, names):
            yield figure
        async for figure in fleet.upgraded(cluster, names):
            yield figure
        async for figure in _killed(cluster, jobs):
            yield figure


async def _created(
    cluster: BenchCluster, single_jobs: Sequence[str], jobs: int
) -> AsyncIterator[Figure]:
    durations_s = []
    for name in single_jobs:
        start_s = await cluster.create_job(name)
        durations_s.append(await cluster.wait_pod(name, 1) - start_s)
    yield report.CREATED_P50, 1e3 * percentile(durations_s, 50)
    yield report.CREATED_P99, 1e3 * percentile(durations_s, 99)
    names = [f"many-{i}" for i in range(jobs - len(single_jobs))]
    start_s = time.monotonic()
    await asyncio.gather(*(cluster.create_job(name) for name in names))
    created_at_s = [await cluster.wait_pod(name, 1) for name in names]
    yield report.RATE, len(names) / (max(created_at_s) - start_s)


async def _failing(cluster: BenchCluster, names: Sequence[str]) -> AsyncIterator[Figure]:
    await asyncio.gather(*(cluster.set_driver_phase(name, 1, "Running") for name in names))
    await cluster.wait_idle()
    durations_s = []
    for name in names[: min(_FAILED, len(names) // 4)]:
        start_s = await cluster.set_driver_phase(name, 1, "Failed")
        durations_s.append(await cluster.wait_pod(name, 2) - start_s)
    yield report.REPLACED_P50, 1e3 * percentile(durations_s, 50)
    yield report.REPLACED_P99, 1e3 * percentile(durations_s, 99)
    await cluster.wait_idle()
    failing_jobs = names[-(len(names) // 10) :]
    start_s = time.monotonic()
    await asyncio.gather(*(cluster.set_driver_phase(name, 1, "Failed") for name in failing_jobs))
    replaced_at_s = [await cluster.wait_pod(name, 2) for name in failing_jobs]
    yield report.MANY, max(replaced_at_s) - start_s


async def _executors(cluster: BenchCluster, names: Sequence[str]) -> None:
    creations = (
        cluster.create_executor(name, number) for name in names for number in range(_EXECUTORS)
    )
    await asyncio.gather(*creations)
    await cluster.wait_idle()
    await asyncio.sleep(5.0)  # memory of the last events is released


async def _killed(cluster: BenchCluster, jobs: int) -> AsyncIterator[Figure]:
    """Kill the operator three times: its pod restarts it, another is started, a replica takes over."""
    await cluster.wait_idle()  # the last job that was created meanwhile gets its pod
    pods = set(cluster.seen)
    cluster.kill()
    start_s = time.monotonic()
    await cluster.start("bench")
    _, synced_s = await _taken_over(cluster, jobs, start_s)
    yield report.SYNC_SAME, synced_s
    cluster.kill()
    start_s = time.monotonic()
    await cluster.start("another")
    yield report.READ_OTHER, time.monotonic() - start_s
    leads_s, synced_s = await _taken_over(cluster, jobs, start_s)
    yield report.LEASE_OTHER, leads_s
    yield report.SYNC_OTHER, synced_s
    await cluster.start_follower("replica")
    cluster.kill_leader()
    leads_s, synced_s = await _taken_over(cluster, jobs, time.monotonic())
    yield report.LEASE, leads_s
    yield report.SYNC_REPLICA, synced_s
    again = sorted(set(cluster.seen) - pods)
    yield report.DUPLICATES, len(again)
    if again:
        print(f"    made again: {again}", flush=True)
    before = await cluster.versions()
    await asyncio.sleep(_REST_S)
    after = await cluster.versions()
    written = {name for name in before | after if before.get(name) != after.get(name)}
    yield report.WRITES, len(written)
    if written:
        print(f"    written: {', '.join(sorted(written))}", flush=True)


async def _taken_over(cluster: BenchCluster, jobs: int, start_s: float) -> tuple[float, float]:
    """Return how many seconds after a time the operator leads, and has reconciled all jobs."""
    await until(cluster.leads)
    leads_s = time.monotonic() - start_s
    await until(lambda: cluster.reconciliations() >= jobs, every_s=0.1)
    await cluster.wait_idle()
    return leads_s, time.monotonic() - start_s
