"""Metrics of what fails or waits, for alerts."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import itertools
import sys
import threading
import time
from typing import Any, cast
from unittest.mock import Mock

import pytest
from prometheus_client import generate_latest

from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB, Kind
from sluicegate_operator.controllers.caches import Caches
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.resource import Json, Key
from sluicegate_operator.kube.work_queue import WorkQueue
from sluicegate_operator.reconcile.upgrade_queue import UPGRADE_QUEUED
from tests.integration.operator.examples import MINIMAL_JOB, MINIMAL_SAVEPOINT, MINIMAL_VOLUME


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


def test_metrics_can_be_read_while_keys_wait_and_objects_come_and_go() -> None:
    """They are read in another thread; with 10,000 jobs, one scrape of three failed at times."""
    metrics, caches = Metrics(), Caches(cast("Api", None))
    queue = WorkQueue[Key]("StreamingJob", cast("Any", None))
    metrics.watch_queue(queue)
    metrics.watch_caches(caches)
    metrics.set_leader(True)
    (pods,) = caches.pods.informers.values()
    ended = threading.Event()

    def change() -> None:
        for number in itertools.count():
            old, key = ("team", f"job-{number - 100}"), ("team", f"job-{number}")
            for changed in (queue._waiting, queue._busy, pods.entries):
                cast("dict[Key, object]", changed).pop(old, None)
            queue.errors.pop(str(number - 100), None)
            queue.add(key)
            queue._busy[key] = queue.errors[str(number)] = 1
            pods.entries[key] = cast("Any", Mock(value=None))
            if ended.is_set():
                return

    def switch(_phase: str, _info: dict[str, int]) -> None:
        """Let the other thread run in the middle of a garbage collection, as a finalizer may."""
        time.sleep(1e-5)

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(switch)
    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(50):
            assert generate_latest(metrics.registry)
    finally:
        ended.set()
        changing.join()
        gc.callbacks.remove(switch)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)


def body(kind: Kind, name: str, spec: Json, status: Json) -> Json:
    """Return a resource of the namespace `shop`, as the API server returns it."""
    meta = {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return {**kind.resource.type_meta, "metadata": meta, "spec": spec, "status": status}


def taken(time: str) -> Json:
    return {"location": "s3://b/s", "epoch": 1, "completionTime": time}


def caches_of_a_shop() -> Caches:
    """Return a failed volume, a job whose upgrade waits, and savepoints of the job."""
    caches = Caches(cast("Api", None))
    volume = MINIMAL_VOLUME | {"prefix": "p"}
    caches.volumes.put(body(CHECKPOINT_VOLUME, "main", volume, {"phase": "Failed"}))
    waits = {"type": UPGRADE_QUEUED, "status": "True", "reason": "LimitReached"}
    waits["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    caches.jobs.put(body(STREAMING_JOB, "orders", MINIMAL_JOB, {"conditions": [waits]}))
    times = ("2026-01-01T02:00:00Z", "2026-01-01T01:00:00Z")
    statuses: dict[str, Json] = {
        "hourly": {"phase": "Ready", "taken": [taken(time) for time in times]},
        "first": {"phase": "Ready", "taken": [taken("2026-01-01T00:00:00Z")]},
        "broken": {"phase": "Failed"},
    }
    for name, status in statuses.items():
        caches.savepoints.put(body(SAVEPOINT, name, MINIMAL_SAVEPOINT, status))
    return caches


def exported(caches: Caches, *, leader: bool) -> set[str]:
    metrics = Metrics()
    metrics.watch_caches(caches)
    metrics.set_leader(leader)
    return set(generate_latest(metrics.registry).decode().splitlines())


@pytest.mark.parametrize(
    "series",
    [
        'sluicegate_savepoint_newest_timestamp_seconds{job="orders",namespace="shop"} 1.7672328e+09',
        'sluicegate_savepoints{namespace="shop",phase="Failed"} 1.0',
        'sluicegate_savepoints{namespace="shop",phase="Ready"} 2.0',
        'sluicegate_checkpoint_volume_phase{namespace="shop",phase="Failed",volume="main"} 1.0',
        'sluicegate_queued_upgrades{namespace="shop"} 1.0',
    ],
    ids=lambda series: series.partition("{")[0],
)
def test_the_leader_exports_savepoints_volumes_and_waiting_upgrades(series: str) -> None:
    """Only the leader: a sum over replicas would count them twice."""
    caches = caches_of_a_shop()
    assert series in exported(caches, leader=True)
    assert series not in exported(caches, leader=False)


DAY_S = 86_400.0
LAST_PROGRESS = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()


def age_after(monkeypatch: pytest.MonkeyPatch, *phases: str) -> float | None:
    """Return the exported age of a job that passed through some phases, a minute each, since yesterday."""
    metrics = Metrics()
    metrics.set_leader(True)
    progress = {
        "checkpoint": {"number": 1, "lastEpoch": 4, "lastEpochTime": "2026-01-01T00:00:00Z"}
    }
    for minute, phase in enumerate(phases):
        monkeypatch.setattr(time, "time", lambda at=minute: LAST_PROGRESS + DAY_S + 60 * at)
        jobs = Caches(cast("Api", None)).jobs
        jobs.put(body(STREAMING_JOB, "clicks", MINIMAL_JOB, {**progress, "phase": phase}))
        metrics.job_observed(("shop", "clicks"), jobs.get(("shop", "clicks")))
    labels = {"namespace": "shop", "job": "clicks"}
    return metrics.registry.get_sample_value("sluicegate_job_epoch_age_seconds", labels)


@pytest.mark.parametrize("idle", ["Suspended", "Waiting", "Finished", "Failed"])
def test_a_job_that_was_resumed_has_no_age_of_its_last_run(
    monkeypatch: pytest.MonkeyPatch, idle: str
) -> None:
    """SluicegateJobStalled would otherwise fire for a healthy job whose start takes some minutes."""
    assert age_after(monkeypatch, idle, "Starting", "Running", "Running") == 120


def test_a_job_whose_drivers_are_restarted_ages_since_its_last_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert age_after(monkeypatch, "Running", "Restarting", "Starting", "Running") == DAY_S + 180
