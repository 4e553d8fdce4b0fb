"""Upgrades of many jobs by one controller: only some at a time, whichever worker or operator decides."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.controllers.limits import Limits
from sluicegate_operator.kube.resource import Json
from sluicegate_operator.reconcile.upgrade_queue import UPGRADE_QUEUED
from tests.unit.operator.builders import alive, spec
from tests.unit.operator.controllers.test_streaming_job import Shop

LIMIT = 2
NAMES = [f"job-{n}" for n in range(6)]


def pod_of(name: str, version: int) -> Json:
    """Return the running pod of a job's attempt 1."""
    return {
        "metadata": {
            "namespace": "shop",
            "name": f"{name}-1-driver",
            "uid": f"u-{name}-1",
            "resourceVersion": str(version),
            "creationTimestamp": "2027-01-15T07:50:00Z",
            "labels": {labels.JOB: name, labels.JOB_UID: f"u-{name}", labels.ATTEMPT: "1"},
            "annotations": {labels.SPEC_HASH: spec().running_hash()},
            "finalizers": [labels.DRIVER_FINALIZER],
        },
        "spec": {},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "driver", "state": {"running": {"startedAt": "2027-01-15T07:51:00Z"}}}
            ],
        },
    }


class Fleet(Shop):
    """Six running jobs of which the spec has changed, and an operator."""

    def __init__(self, stored: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.controller.limits = Limits(upgrades=LIMIT)
        answer = self.api.request

        async def slow(*arguments: Any, **options: Any) -> Json:
            await asyncio.sleep(0)  # other workers decide before a write is answered
            return await answer(*arguments, **options)

        self.api.request = slow  # type: ignore[method-assign]
        self.controller.upgrades.limit = LIMIT
        for name in NAMES:
            self.put(STREAMING_JOB, name, spec(image="jobs:2"), alive())
            self.caches.pods.put(pod_of(name, self.api.version))
        if stored is not None:  # what an earlier operator has left
            self.api.objects = stored
            for name in NAMES:
                self.store(name)

    def body(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[STREAMING_JOB.resource.path("shop", name)]
        return found

    def store(self, name: str) -> None:
        """Let the cache see a job as it is stored."""
        self.api.version += 100
        self.body(name)["metadata"]["resourceVersion"] = str(self.api.version)
        self.caches.jobs.put(copy.deepcopy(self.body(name)))

    async def reconcile_all(self) -> None:
        """Reconcile all jobs at once, as the workers do."""
        await asyncio.gather(*(self.controller.reconcile(("shop", name)) for name in NAMES))

    def upgrading(self) -> list[str]:
        return [name for name in NAMES if "upgrade" in self.body(name)["status"]]

    def queued(self) -> list[str]:
        return [
            name
            for name in NAMES
            if {"type": UPGRADE_QUEUED, "status": "True"}.items()
            <= {
                key: value
                for one in self.body(name)["status"]["conditions"]
                if one["type"] == UPGRADE_QUEUED
                for key, value in one.items()
            }.items()
        ]


def test_no_more_jobs_than_the_limit_are_upgraded_at_a_time() -> None:
    async def scenario() -> None:
        fleet = Fleet()
        await fleet.reconcile_all()
        assert fleet.upgrading() == NAMES[:LIMIT]
        assert fleet.queued() == NAMES[LIMIT:]
        await fleet.reconcile_all()
        assert fleet.upgrading() == NAMES[:LIMIT]

    asyncio.run(scenario())


def test_the_limit_and_the_order_survive_a_restart_of_the_operator() -> None:
    async def scenario() -> None:
        before = Fleet()
        await before.reconcile_all()
        after = Fleet(before.api.objects)
        await after.reconcile_all()
        assert after.upgrading() == NAMES[:LIMIT]
        assert after.queued() == NAMES[LIMIT:]

    asyncio.run(scenario())


def test_the_next_job_is_reconciled_when_an_upgrade_ends() -> None:
    async def scenario() -> None:
        fleet = Fleet()
        await fleet.reconcile_all()
        worked: list[tuple[str, str]] = []

        async def work(key: tuple[str, str]) -> None:
            worked.append(key)

        queue = fleet.controller.queue
        queue.work = work
        running = asyncio.create_task(queue.run())
        await asyncio.sleep(0.05)  # what the creation of the jobs has queued
        worked.clear()
        del fleet.body(NAMES[0])["status"]["upgrade"]
        fleet.store(NAMES[0])
        await asyncio.sleep(0.05)
        running.cancel()
        assert set(worked) == {("shop", NAMES[0]), ("shop", NAMES[LIMIT])}

    asyncio.run(scenario())
