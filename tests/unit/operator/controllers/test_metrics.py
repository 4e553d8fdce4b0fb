"""Metrics of what fails, for alerts."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest

from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.kube.work_queue import WorkQueue


def test_failed_reconciliations_are_counted_by_their_error() -> None:
    """A resource that is retried without end changes no other metric."""

    async def fails(_key: Key) -> None:
        raise PermissionError

    async def scene() -> str:
        metrics, queue = Metrics(), WorkQueue[Key]("StreamingJob", fails)
        metrics.watch_queue(queue)
        queue.add(("team", "clicks"))
        running = asyncio.create_task(queue.run())
        while not queue.errors:  # noqa: ASYNC110 - one round of the loop
            await asyncio.sleep(0)
        running.cancel()
        queue.forget(("team", "clicks"))
        return generate_latest(metrics.registry).decode()

    labels = 'error="PermissionError",kind="StreamingJob"'
    assert f"sluicegate_reconcile_errors_total{{{labels}}} 1.0" in asyncio.run(scene())
