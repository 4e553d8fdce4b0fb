"""Upgrades of many jobs by one controller: only some at a time, whichever worker or operator decides."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.controllers.limits import Limits
from sluicegate_operator.kube import work_queue
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

    def change(self, name: str, **changes: Any) -> None:
        """Let the cache see a job with another spec, or as it is being deleted."""
        meta = self.body(name)["metadata"]
        meta["generation"] += 1
        (meta if "deletionTimestamp" in changes else self.body(name)["spec"]).update(changes)
        self.store(name)

    async def reconcile_all(self) -> None:
        """Reconcile all jobs at once, as the workers do."""
        await asyncio.gather(*(self.controller.reconcile(("shop", name)) for name in NAMES))

    async def reconciled_after(self, change: Callable[[], None]) -> list[str]:
        """Return the jobs that one worker processes after a change, in order."""
        worked: list[str] = []

        async def work(key: tuple[str, str]) -> None:
            worked.append(key[1])

        queue = self.controller.queue
        queue.work, queue.workers = work, 1
        running = asyncio.create_task(queue.run())
        await asyncio.sleep(0.05)  # what the creation of the jobs has queued
        worked.clear()
        change()
        await asyncio.sleep(0.05)
        running.cancel()
        return worked

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

        def end_upgrade() -> None:
            del fleet.body(NAMES[0])["status"]["upgrade"]
            fleet.store(NAMES[0])

        assert set(await fleet.reconciled_after(end_upgrade)) == {NAMES[0], NAMES[LIMIT]}

    asyncio.run(scenario())


@pytest.mark.parametrize("person", ["creates", "suspends", "restarts", "deletes"])
@pytest.mark.parametrize("bulk", ["an edit of the fleet", "a change of the leader"])
def test_what_a_person_does_to_one_job_goes_before_bulk_work(
    person: str, bulk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places are so far apart that the time that a busy machine needs for the edits does not count."""
    monkeypatch.setattr(work_queue, "BULK_EVERY_S", 60.0)
    fleet = Fleet()

    def change() -> None:
        if bulk == "an edit of the fleet":
            for name in NAMES:
                fleet.change(name, image="jobs:3")
        else:
            fleet.controller.enqueue_all()
        if person == "creates":
            fleet.put(STREAMING_JOB, "new", spec(), alive())
        elif person == "deletes":
            fleet.change(NAMES[-1], deletionTimestamp="2027-01-15T08:00:00Z")
        else:
            changed = {"suspend": True} if person == "suspends" else {"restartNonce": 1}
            fleet.change(NAMES[-1], **changed)

    worked = asyncio.run(fleet.reconciled_after(change))
    assert worked[0] == ("new" if person == "creates" else NAMES[-1])
    assert set(NAMES) <= set(worked)


@pytest.mark.parametrize("step", ["the driver's pod changes", "its status changes", "its turn"])
def test_a_new_job_goes_before_the_steps_of_upgrades(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet always has as many upgrades under way as are allowed."""
    monkeypatch.setattr(work_queue, "LOW_S", 60.0)  # a busy machine may need some of it

    async def scenario() -> list[str]:
        fleet = Fleet()
        await fleet.reconcile_all()
        assert fleet.upgrading() == NAMES[:LIMIT]

        def change() -> None:
            if step == "the driver's pod changes":
                pod = pod_of(NAMES[0], fleet.api.version + 1000)
                pod["status"]["phase"] = "Failed"
                fleet.caches.pods.put(pod)
            elif step == "its status changes":
                fleet.store(NAMES[0])
            else:
                fleet.controller.upgrades.enqueue(("shop", NAMES[0]))
            fleet.put(STREAMING_JOB, "new", spec(), alive())

        return await fleet.reconciled_after(change)

    assert asyncio.run(scenario())[:2] == ["new", NAMES[0]]
