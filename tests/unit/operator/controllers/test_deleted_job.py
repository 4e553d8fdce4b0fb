"""Deleted jobs whose spec is refused: which spec their drivers run, and that none is run without one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.controllers.driver_checks import DriverChecks
from sluicegate_operator.reconcile.observed import Job
from tests.unit.operator.builders import ended, spec
from tests.unit.operator.controllers.test_streaming_job import KEY, Shop

DELETED = {"deletionTimestamp": "2027-01-15T08:00:00Z"}
HOST_PATH = {
    "driver": {
        "template": {
            "spec": {
                "hostPID": True,
                "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
                "containers": [{"name": "driver", "securityContext": {"privileged": True}}],
            }
        }
    }
}
"""A template that reaches the node: it is refused."""


async def accepted_job() -> Shop:
    """Return a suspended job with an accepted spec, whose driver has left a decided epoch."""
    suspended = spec(suspend=True)
    shop = Shop(suspended, ended(suspended))
    await shop.reconcile()
    return shop


def finalizers(shop: Shop) -> list[str]:
    """Return the finalizers of the job."""
    found: list[str] = shop.api.objects[STREAMING_JOB.resource.path(*KEY)]["metadata"]["finalizers"]
    return found


@pytest.mark.parametrize(
    "refused",
    [HOST_PATH, {"schedule": {"cron": "0 3 * * *", "timeZone": "Mars/Olympus"}, "trigger": "Once"}],
    ids=["a template with rights on the node", "a time zone"],
)
def test_a_job_that_is_deleted_after_a_refused_edit_applies_with_the_accepted_spec(
    refused: dict[str, Any],
) -> None:
    async def scenario() -> None:
        shop = await accepted_job()
        shop.edit({**refused, "image": "jobs:2"})
        await shop.reconcile()
        # a deletion raises the generation
        shop.annotate({}, generation=3, **DELETED)
        for _ in range(5):
            await shop.reconcile(after_s=60)
        assert shop.status["accepted"]["generation"] == 1
        (created,) = shop.api.created_pods
        assert created["metadata"]["labels"]["sluicegate.dev/mode"] == "ApplyOnly"
        assert created["spec"]["containers"][0]["image"] == "jobs:1"
        assert "hostPID" not in created["spec"]
        assert not any("hostPath" in volume for volume in created["spec"]["volumes"])

    asyncio.run(scenario())


def test_a_deleted_job_that_never_had_a_valid_spec_gets_no_driver_and_can_be_released() -> None:
    """Its status was lost, for example, so a decided epoch may be left."""

    async def scenario() -> None:
        shop = Shop(spec(), ended(phase="Deleting"))
        shop.edit(HOST_PATH)
        shop.annotate({}, **DELETED)
        await shop.reconcile()
        assert shop.condition("Ready")["reason"] == "ApplyFailed"
        assert shop.condition("Accepted")["reason"] == "SpecInvalid"
        shop.annotate({"sluicegate.dev/skip-apply": "true"})
        await shop.reconcile(after_s=60)
        assert not shop.api.created_pods
        assert finalizers(shop) == []

    asyncio.run(scenario())


def test_a_deleted_job_whose_driver_is_refused_says_how_to_delete_it_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as by an operator with other rules than the one that accepted the spec."""

    async def problem(_checks: DriverChecks, _job: Job, _spec: StreamingJobSpec) -> SettingsInvalid:
        return SettingsInvalid("the account lost its label", data="", do="")

    async def scenario() -> None:
        shop = await accepted_job()
        attempt = shop.status["attempt"]
        monkeypatch.setattr(DriverChecks, "problem", problem)
        shop.annotate({}, generation=2, **DELETED)
        for _ in range(5):
            await shop.reconcile(after_s=60)
        assert shop.status["phase"] == "Deleting"
        assert shop.status["attempt"] == attempt
        assert "sluicegate.dev/skip-apply" in shop.condition("Ready")["message"]
        assert not shop.api.pods_requested()
        shop.annotate({"sluicegate.dev/skip-apply": "true"})
        await shop.reconcile(after_s=60)
        assert finalizers(shop) == []

    asyncio.run(scenario())


def test_a_spec_in_the_status_that_is_refused_starts_no_driver_of_a_deleted_job() -> None:
    """Such as one that was edited in the status."""

    async def scenario() -> None:
        shop = await accepted_job()
        accepted = shop.status["accepted"]
        changed = {**accepted, "spec": {**accepted["spec"], **HOST_PATH}}
        shop.edit(HOST_PATH, {"accepted": changed})
        shop.annotate({}, **DELETED)
        for _ in range(5):
            await shop.reconcile(after_s=60)
        assert not shop.api.pods_requested()
        assert shop.condition("Ready")["reason"] == "ApplyFailed"

    asyncio.run(scenario())
