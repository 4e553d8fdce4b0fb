"""Decisions and tasks together, on a real store: what a wired operator does, without Kubernetes.

The loop below is the least that an operator does: it writes the status, performs the actions, and
decides again when a task has ended. It is killed and begun anew between any two passes.
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

from infra.embedded import S3Endpoint
from sluicegate.checkpoint.restoring import restore
from sluicegate.storage.objects import open_objects
from sluicegate.storage.s3 import bucket_of
from sluicegate_operator.reconcile.actions import AddFinalizer, RemoveFinalizer
from sluicegate_operator.resources.addresses import environment
from sluicegate_operator.resources.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.resources.volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.store.desk import TaskDesk
from sluicegate_operator.volumes.actions import ForgetTask, RunTask
from sluicegate_operator.volumes.observed import (
    JobView,
    Savepoint,
    SavepointObserved,
    Volume,
    VolumeObserved,
    VolumeView,
)
from sluicegate_operator.volumes.reading import readiness, restore_address
from sluicegate_operator.volumes.savepoint import reconcile_savepoint
from sluicegate_operator.volumes.volume import reconcile_volume
from tests.unit.checkpoint.made import checkpoint

from . import made

PATIENCE_S = 120.0


class World:
    """A volume, a job that is suspended, and a savepoint of it; and an operator that may die."""

    def __init__(self, bucket: S3Endpoint, name: str = "") -> None:
        spec = CheckpointVolumeSpec(
            endpoint=bucket.endpoint,
            bucket=name or bucket_of(bucket.url),
            prefix=uuid.uuid4().hex,
            reclaim_policy="Delete",
        )
        self.keys = environment(spec, bucket.access_key, bucket.secret_key)
        self.volume = Volume("shop", "store", "u-vol", 1, spec, CheckpointVolumeStatus())
        self.savepoint = Savepoint(
            "shop",
            "move",
            "u-savepoint",
            1,
            time.time(),
            SavepointSpec(job="clicks", stop=True, reclaim_policy="Delete"),
            SavepointStatus(),
        )
        self.job: JobView | None = JobView("clicks", "u-job", made.spec(), made.ended())
        self.gone: set[str] = set()
        self.ended = asyncio.Event()
        self.desk = self.operator()

    def operator(self) -> TaskDesk:
        return TaskDesk(lambda _: self.ended.set())

    async def die(self) -> None:
        """End the operator amid its tasks; another begins."""
        await self.desk.close()
        self.desk = self.operator()

    async def given(self) -> Mapping[str, str]:
        return self.keys

    def pass_over_both(self) -> None:
        """Decide about both, and do it."""
        now = time.time()
        jobs = () if self.job is None else ("clicks",)
        savepoints = () if "u-savepoint" in self.gone else ("move",)
        view = VolumeObserved(now, jobs=jobs, savepoints=savepoints, tasks=self.desk.of("u-vol"))
        if "u-vol" not in self.gone:
            outcome = reconcile_volume(self.volume, view, now)
            self.volume = dataclasses.replace(self.volume, status=outcome.status)
            self.volume = self.perform(self.volume, outcome.actions)
        spec = self.volume.spec
        seen = SavepointObserved(
            self.job,
            {"store": VolumeView("store", spec, *readiness(spec, self.volume.status))},
            tasks=self.desk.of("u-savepoint"),
        )
        if "u-savepoint" not in self.gone:
            found = reconcile_savepoint(self.savepoint, seen, now)
            self.savepoint = dataclasses.replace(self.savepoint, status=found.status)
            self.savepoint = self.perform(self.savepoint, found.actions)

    def perform(self, resource: Any, actions: tuple[object, ...]) -> Any:
        for action in actions:
            match action:
                case AddFinalizer():
                    resource = dataclasses.replace(resource, held=True)
                case RemoveFinalizer():
                    resource = dataclasses.replace(resource, held=False)
                    if getattr(resource, "deleted_at", None) or getattr(resource, "deleted", False):
                        self.gone.add(resource.uid)
                case RunTask():
                    self.desk.begin(resource.uid, action.task, self.given, action.timeout_s)
                case ForgetTask():
                    self.desk.forget(resource.uid, action.task)
        return resource

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.ended.clear()
                self.pass_over_both()
                if there():
                    return
                await self.ended.wait()


@pytest.mark.parametrize("dies", [False, True], ids=["alive", "dying"])
def test_a_volume_and_a_savepoint_from_their_beginning_to_their_end(
    bucket: S3Endpoint, tmp_path: Path, dies: object
) -> None:
    async def scene() -> None:
        world = World(bucket)
        spec = world.volume.spec
        root = f"s3://{spec.bucket}/{spec.prefix}"

        async def reach(there: Callable[[], bool]) -> None:
            if dies:
                world.pass_over_both()
                await asyncio.sleep(0)
                await world.die()
            await world.until(there)

        given, target = open_objects(checkpoint(tmp_path, 3)), open_objects(f"{root}/clicks/1")
        for name in given.names(""):
            target.put(name, given.chunks(name) or ())

        await reach(lambda: world.volume.status.phase == "Ready")
        await reach(lambda: world.savepoint.status.phase == "Ready")
        await reach(lambda: world.volume.status.measured_time is not None)
        assert world.volume.status.objects > 0
        address, _ = restore_address(world.savepoint.status)
        assert restore(address, f"{root}/clicks/2").moved

        world.savepoint = dataclasses.replace(world.savepoint, deleted=True)
        await reach(lambda: "u-savepoint" in world.gone)
        assert not list(open_objects(f"{root}/savepoints").names(""))

        world.volume = dataclasses.replace(world.volume, deleted_at=time.time() - 60)
        world.pass_over_both()
        assert "u-vol" not in world.gone, "the job still uses it"
        world.job = None
        await reach(lambda: "u-vol" in world.gone)
        assert not list(open_objects(root).names(""))
        await world.desk.close()

    asyncio.run(scene())


def test_a_bucket_that_was_removed_is_not_replaced_by_an_empty_one(bucket: S3Endpoint) -> None:
    async def scene() -> None:
        world = World(bucket, f"lost-{uuid.uuid4().hex}")
        await world.until(lambda: world.volume.status.phase == "Ready")
        gone = dataclasses.replace(world.volume.spec, bucket=f"gone-{uuid.uuid4().hex}")
        checked = dataclasses.replace(world.volume.status, checked_time=time.time() - 601)
        world.volume = dataclasses.replace(world.volume, spec=gone, status=checked)
        await world.until(lambda: world.volume.status.phase == "Failed")
        assert world.volume.status.failed == "TargetMissing"
        await world.desk.close()

    asyncio.run(scene())
