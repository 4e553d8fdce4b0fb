"""Deletion of expired jobs by the controller: with the version that was read, and by any operator."""

from __future__ import annotations

import asyncio

from sluicegate_operator.api.crds import STREAMING_JOB
from tests.unit.operator.builders import ended, spec
from tests.unit.operator.controllers.test_streaming_job import KEY, Shop

EXPIRING = spec(trigger="Once", ttl_seconds_after_finished=60)


def test_expired_job_is_deleted_by_any_operator_that_reads_its_status() -> None:
    async def scenario() -> None:
        first = Shop(EXPIRING, ended(EXPIRING, finished=True))
        await first.reconcile()
        assert first.status["finishTime"] == "2027-01-15T08:00:00.000Z"
        await first.reconcile(after_s=59)
        assert not first.api.preconditions
        second = Shop()
        stored = first.api.objects[STREAMING_JOB.resource.path(*KEY)]
        second.put(STREAMING_JOB, "clicks", stored["spec"], uid="u-job")
        second.edit({}, stored["status"])
        await second.reconcile(after_s=60)
        await second.reconcile()
        stored = second.api.objects[STREAMING_JOB.resource.path(*KEY)]
        version = stored["metadata"]["resourceVersion"]
        assert second.api.preconditions == [{"uid": "u-job", "resourceVersion": version}]
        assert second.api.events == ["Expired"]

    asyncio.run(scenario())


def test_job_that_was_edited_after_it_was_read_is_not_deleted() -> None:
    async def scenario() -> None:
        shop = Shop(EXPIRING, ended(EXPIRING, finished=True))
        await shop.reconcile()
        stored = shop.api.objects[STREAMING_JOB.resource.path(*KEY)]
        stored["metadata"]["resourceVersion"] = "1000"  # an edit that the cache lacks
        await shop.reconcile(after_s=60)
        assert shop.api.preconditions[0]["resourceVersion"] != "1000"
        assert not shop.api.events

    asyncio.run(scenario())
