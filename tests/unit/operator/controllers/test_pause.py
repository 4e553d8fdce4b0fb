"""Paused resources: their controllers do nothing with them, not even what is due or was requested."""

from __future__ import annotations

import asyncio
import copy

import pytest

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB, Kind
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.controllers.checkpoint_volume import VolumeController
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.savepoint import SavepointController
from sluicegate_operator.controllers.storage import StorageController
from tests.unit.operator.builders import ended, spec
from tests.unit.operator.controllers.test_streaming_job import KEY, Shop

PAUSE = {"sluicegate.dev/paused": "true"}
BATCH = spec(trigger="Once", ttl_seconds_after_finished=60)


def test_nothing_is_done_with_a_paused_job_until_it_is_resumed() -> None:
    """Neither its lost driver nor an edit, a restart, a suspension or a deletion is acted on."""

    async def scenario() -> None:
        shop = Shop()
        await shop.reconcile()
        await shop.reconcile()
        shop.annotate(PAUSE)
        shop.edit({"image": "jobs:2", "restartNonce": 1, "trigger": "Never"})
        shop.lose_driver()
        await shop.reconcile(after_s=60)
        before, requests = copy.deepcopy(shop.status), len(shop.api.requests)
        assert shop.condition("Paused")["reason"] == "Annotated"
        shop.edit({"suspend": True})
        for _ in range(5):
            await shop.reconcile(after_s=600)
        shop.annotate(PAUSE, deletionTimestamp="2027-01-15T09:00:00Z")
        for _ in range(5):
            await shop.reconcile(after_s=600)
        assert shop.api.events == ["Paused", "Paused"], "once, and once for the deletion"
        written = {path for method, path in shop.api.requests[requests:] if method != "POST"}
        assert written == {f"{STREAMING_JOB.resource.path(*KEY)}/status"}
        assert {**shop.status, "conditions": []} == {**before, "conditions": []}
        assert shop.condition("Paused")["reason"] == "DeletionPaused"
        shop.annotate({})
        for _ in range(5):
            await shop.reconcile(after_s=60)
        assert shop.condition("Paused")["status"] == "False"
        assert shop.status["phase"] == "Deleting"

    asyncio.run(scenario())


def test_expired_job_is_not_deleted_while_it_is_paused() -> None:
    async def scenario() -> None:
        shop = Shop(BATCH, ended(BATCH, finished=True))
        await shop.reconcile()
        shop.annotate(PAUSE)
        await shop.reconcile(after_s=3600)
        assert not shop.api.preconditions
        shop.annotate({"sluicegate.dev/paused": "false"})
        for _ in range(2):
            await shop.reconcile()
        assert len(shop.api.preconditions) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "controller", "its_spec"),
    [
        (CHECKPOINT_VOLUME, VolumeController, CheckpointVolumeSpec(bucket="b")),
        (SAVEPOINT, SavepointController, SavepointSpec(job="clicks")),
    ],
    ids=["CheckpointVolume", "Savepoint"],
)
def test_no_storage_task_of_a_paused_resource_is_started(
    kind: Kind, controller: type[StorageController], its_spec: object
) -> None:
    async def scenario() -> None:
        shop = Shop()
        key, path = ("shop", "other"), kind.resource.path("shop", "other")
        shop.put(kind, "other", its_spec, annotations=PAUSE)
        common = shop.controller
        tested = controller(
            common.api,
            common.caches,
            common.is_leader,
            common.recorder,
            common.checkpoints,
            Metrics(),
        )
        await tested.reconcile(key)
        await tested.reconcile(key)
        (paused,) = shop.api.objects[path]["status"]["conditions"]
        assert (paused["type"], paused["status"]) == ("Paused", "True")
        assert not tested.tasks.states("u-other")
        assert shop.api.events == ["Paused"]

    asyncio.run(scenario())
