"""Deletions of checkpoints of deleted jobs: few at a time, and none by a replica that is not the leader."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from sluicegate_operator.controllers.caches import Caches
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.streaming_job import JobController
from sluicegate_operator.kube.events import EventRecorder
from sluicegate_operator.reconcile.observed import Job
from tests.unit.operator.builders import job


def controller() -> JobController:
    """Return a controller whose API is never asked."""
    api: Any = None
    caches = Caches(api)
    recorder = EventRecorder(api, "c", "c/o", "i")
    return JobController(api, caches, lambda: True, recorder, CheckpointResolver(caches), Metrics())


def test_few_checkpoints_are_deleted_at_a_time_and_none_after_the_lease_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each deletion is a process of about 50 MB; twenty at once would exceed the operator's memory."""
    running: set[str] = set()
    peak = 0

    async def delete(_controller: JobController, one: Job) -> None:
        nonlocal peak
        running.add(one.uid)
        peak = max(peak, len(running))
        try:
            await asyncio.Event().wait()
        finally:
            running.discard(one.uid)

    monkeypatch.setattr(JobController, "_delete_checkpoint", delete)

    async def scenario() -> None:
        jobs = controller()
        for number in range(20):
            key = (f"n{number % 2}", f"j{number}")
            jobs.deletions.start(key, dataclasses.replace(job(), uid=f"u{number}"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(running) == peak == 4
        jobs.cancel_tasks()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not running
        assert jobs.queue.depth == 20  # to be started again, if this replica leads again
        await jobs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("created_again", [False, True])
def test_a_deletion_ends_with_its_job(monkeypatch: pytest.MonkeyPatch, created_again: bool) -> None:  # noqa: FBT001
    """A person removed the finalizer; a job that is created again under the name has the same path."""
    running: set[str] = set()

    async def delete(_controller: JobController, one: Job) -> None:
        running.add(one.uid)
        try:
            await asyncio.Event().wait()
        finally:
            running.discard(one.uid)

    monkeypatch.setattr(JobController, "_delete_checkpoint", delete)

    async def scenario() -> None:
        jobs = controller()
        jobs.deletions.start(("n", "j"), dataclasses.replace(job(), uid="old"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert running == {"old"}
        if created_again:
            await jobs.deletions.end_of_another(("n", "j"), "old")
            assert running == {"old"}
            await jobs.deletions.end_of_another(("n", "j"), "new")
        else:
            jobs._forget(("n", "j"))
            for _ in range(5):
                await asyncio.sleep(0)
        assert not running
        await jobs.close()

    asyncio.run(scenario())
