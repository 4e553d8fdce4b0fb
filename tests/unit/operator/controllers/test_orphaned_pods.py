"""A driver's pod whose job is gone: nobody else would remove the finalizer, and its namespace would stay."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest
from prometheus_client import generate_latest

from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.controllers.caches import Caches
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.streaming_job import JobController
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.events import EventRecorder
from sluicegate_operator.kube.resource import Json


class JobServer:
    """An API server with at most one job, which records patches."""

    def __init__(self, job_uid: str) -> None:
        self.job_uid = job_uid
        self.patched: list[str] = []

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> Json:  # noqa: ARG002
        if method == "PATCH":
            self.patched.append(path.rsplit("/", 1)[1])
            return pod_body(terminating=True, finalizers=[], version="2")
        if not self.job_uid:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "no such job")
        return {"metadata": {"uid": self.job_uid}}


def pod_body(*, terminating: bool, finalizers: list[str], version: str = "1") -> Json:
    """Return a driver's pod of the job u-job."""
    meta: Json = {
        "namespace": "n",
        "name": "clicks-1-driver",
        "uid": "u-pod",
        "resourceVersion": version,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {labels.JOB: "clicks", labels.JOB_UID: "u-job"},
        "finalizers": finalizers,
    }
    if terminating:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("job_uid", "terminating", "released"),
    [("", True, True), ("u-other", True, True), ("u-job", True, False), ("", False, False)],
    ids=["its job is gone", "its job was replaced", "its job exists", "it is not terminating"],
)
def test_a_pod_is_released_if_it_ends_and_its_job_is_gone(
    job_uid: str, *, terminating: bool, released: bool
) -> None:
    async def scenario() -> list[str]:
        api: Any = JobServer(job_uid)
        caches = Caches(api)
        recorder = EventRecorder(api, "c", "c/o", "i")
        resolver = CheckpointResolver(caches)
        jobs = JobController(api, caches, lambda: True, recorder, resolver, Metrics())
        caches.pods.put(pod_body(terminating=terminating, finalizers=[labels.DRIVER_FINALIZER]))
        assert jobs.queue.depth == 1
        await jobs.reconcile(("n", "clicks"))
        patched: list[str] = api.patched
        return patched

    assert asyncio.run(scenario()) == (["clicks-1-driver"] if released else [])


@pytest.mark.parametrize(
    ("job_uid", "finalizers", "held"),
    [
        ("", [labels.DRIVER_FINALIZER], 1),
        ("u-other", [labels.DRIVER_FINALIZER], 1),
        ("u-job", [labels.DRIVER_FINALIZER], 0),
        ("", [], 0),
    ],
    ids=["its job is gone", "its job was replaced", "its job exists", "it is not held"],
)
def test_held_pods_without_a_job_are_counted(
    job_uid: str, finalizers: list[str], held: int
) -> None:
    """They block the deletion of their namespace, and no resource reports them."""
    caches, metrics = Caches(JobServer(job_uid)), Metrics()  # type: ignore[arg-type]
    metrics.watch_caches(caches)
    if job_uid:
        meta = {"namespace": "n", "name": "clicks", "uid": job_uid, "resourceVersion": "1"}
        meta |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
        caches.jobs.put({**STREAMING_JOB.resource.type_meta, "metadata": meta, "spec": {}})
    caches.pods.put(pod_body(terminating=True, finalizers=finalizers))
    exported = generate_latest(metrics.registry).decode()
    line = 'sluicegate_held_pods_without_job{namespace="n"} 1.0'
    assert (line in exported.splitlines()) == bool(held)
