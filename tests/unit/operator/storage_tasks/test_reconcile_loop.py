"""Reconcilers and storage tasks together on a real store, without Kubernetes.

The loop below does the minimum of an operator: it writes the status, performs the actions, and
reconciles again when a task has ended. In one variant it crashes between any two reconciliations.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.local_services import S3Endpoint
from sluicegate.storage.object_store import open_store
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import environment
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.reconcile.actions import AddFinalizer, ForgetTask, RemoveFinalizer, RunTask
from sluicegate_operator.reconcile.checkpoint_volume import reconcile_volume
from sluicegate_operator.reconcile.observed import Job, SavepointObserved, VolumeObserved
from sluicegate_operator.reconcile.readiness import restore_address
from sluicegate_operator.reconcile.savepoint.reconciler import reconcile_savepoint
from sluicegate_operator.storage_tasks.queue import TaskQueue
from tests.unit.operator import builders, savepoint_builders, volume_builders
from tests.unit.savepoints.builders import checkpoint, restore

TIMEOUT_S = 120.0


class World:
    """A volume, a suspended job, a savepoint of it, and an operator that may crash."""

    def __init__(self, bucket: S3Endpoint, name: str = "") -> None:
        spec = CheckpointVolumeSpec(
            endpoint=bucket.endpoint,
            bucket=name or bucket.bucket,
            prefix=bucket.prefix(uuid.uuid4().hex),
            reclaim_policy="Delete",
        )
        self.keys = environment(spec, bucket.access_key, bucket.secret_key)
        self.volume = volume_builders.volume(spec)
        self.savepoint = savepoint_builders.savepoint(
            SavepointSpec(job="clicks", stop=True, reclaim_policy="Delete"),
            SavepointStatus(),
            created_at=time.time(),
        )
        self.job: Job | None = builders.job(status=builders.ended())
        self.gone: set[str] = set()
        self.ended = asyncio.Event()
        self.tasks = self.operator()

    def operator(self) -> TaskQueue:
        return TaskQueue(lambda _: self.ended.set())

    async def crash(self) -> None:
        """Kill the operator in the middle of its tasks and start another."""
        await self.tasks.close()
        self.tasks = self.operator()

    async def environment(self) -> Mapping[str, str]:
        return self.keys

    def reconcile_both(self) -> None:
        """Reconcile the volume and the savepoint."""
        now = time.time()
        jobs = () if self.job is None else ("clicks",)
        savepoints = () if "u-savepoint" in self.gone else ("move",)
        view = VolumeObserved(
            now, jobs=jobs, savepoints=savepoints, tasks=self.tasks.states("u-vol")
        )
        if "u-vol" not in self.gone:
            outcome = reconcile_volume(self.volume, view, now)
            self.volume = dataclasses.replace(self.volume, status=outcome.status)
            self.volume = self.perform(self.volume, outcome.actions)
        seen = SavepointObserved(
            self.job, {"store": self.volume}, tasks=self.tasks.states("u-savepoint")
        )
        if "u-savepoint" not in self.gone:
            found = reconcile_savepoint(self.savepoint, seen, now)
            self.savepoint = dataclasses.replace(self.savepoint, status=found.status)
            self.savepoint = self.perform(self.savepoint, found.actions)

    def perform(self, resource: Any, actions: tuple[object, ...]) -> Any:
        for action in actions:
            match action:
                case AddFinalizer():
                    resource = dataclasses.replace(resource, has_finalizer=True)
                case RemoveFinalizer():
                    resource = dataclasses.replace(resource, has_finalizer=False)
                    if getattr(resource, "deleted_at", None) or getattr(resource, "deleted", False):
                        self.gone.add(resource.uid)
                case RunTask():
                    self.tasks.start(resource.uid, action.task, self.environment, action.timeout_s)
                case ForgetTask():
                    self.tasks.forget(resource.uid, action.task)
        return resource

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                self.ended.clear()
                self.reconcile_both()
                if condition():
                    return
                await self.ended.wait()


@pytest.mark.parametrize("crashes", [False, True], ids=["running", "crashing"])
def test_life_of_a_volume_and_a_savepoint(
    bucket: S3Endpoint, tmp_path: Path, crashes: object
) -> None:
    async def scenario() -> None:
        world = World(bucket)
        spec = world.volume.spec
        root = f"s3://{spec.bucket}/{spec.prefix}"

        async def run_until(condition: Callable[[], bool]) -> None:
            if crashes:
                world.reconcile_both()
                await asyncio.sleep(0)
                await world.crash()
            await world.until(condition)

        environment, target = open_store(checkpoint(tmp_path, 3)), open_store(f"{root}/clicks/1")
        for name in environment.names(""):
            target.put(name, environment.stream(name) or ())

        await run_until(lambda: world.volume.status.phase == "Ready")
        await run_until(lambda: world.savepoint.status.phase == "Ready")
        await run_until(lambda: world.volume.status.measured_time is not None)
        assert world.volume.status.objects > 0
        address, _ = restore_address(world.savepoint.status)
        assert restore(address, f"{root}/clicks/2").moved

        world.savepoint = dataclasses.replace(world.savepoint, deleted=True)
        await run_until(lambda: "u-savepoint" in world.gone)
        assert not list(open_store(f"{root}/savepoints").names(""))

        world.volume = dataclasses.replace(world.volume, deleted_at=time.time() - 60)
        world.reconcile_both()
        assert "u-vol" not in world.gone, "although the job still uses it"
        world.job = None
        await run_until(lambda: "u-vol" in world.gone)
        assert not list(open_store(root).names(""))
        await world.tasks.close()

    asyncio.run(scenario())


def test_bucket_that_disappeared_is_not_replaced_by_an_empty_one(
    store_root: S3Endpoint,
) -> None:
    async def scenario() -> None:
        world = World(store_root, f"lost-{uuid.uuid4().hex}")
        await world.until(lambda: world.volume.status.phase == "Ready")
        gone = dataclasses.replace(world.volume.spec, bucket=f"gone-{uuid.uuid4().hex}")
        checked = dataclasses.replace(world.volume.status, checked_time=time.time() - 601)
        world.volume = dataclasses.replace(world.volume, spec=gone, status=checked)
        await world.until(lambda: world.volume.status.phase == "Failed")
        assert world.volume.status.failure_reason == "TargetMissing"
        await world.tasks.close()

    asyncio.run(scenario())
