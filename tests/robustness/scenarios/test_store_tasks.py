"""The operator's storage tasks when the store is down, denies or hangs, and when workers are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from infra.local_services import S3Endpoint
from sluicegate.failpoints import VARIABLE
from sluicegate.savepoints.catalog import list_savepoints
from sluicegate.storage.object_store import open_store
from sluicegate_operator.reconcile.storage_tasks import (
    SEAL,
    CheckVolume,
    Delete,
    Deleted,
    Measure,
    Measured,
    Result,
    TakeSavepoint,
    Task,
)
from sluicegate_operator.storage_tasks.runner import TaskFailed, run
from tests.robustness.failpoints.s3_proxy import Fault, S3Proxy, proxied
from tests.unit.savepoints.builders import checkpoint

pytestmark = pytest.mark.faults

TIMEOUT_S = 120.0


@pytest.fixture
def proxy(bucket: S3Endpoint) -> Iterator[S3Proxy]:
    """Yield a proxy in front of the store."""
    with proxied(bucket) as running:
        yield running


@pytest.fixture
def volume(bucket: S3Endpoint) -> str:
    """Return the address of a new volume."""
    return f"{bucket.url}/{uuid.uuid4().hex}"


def run_task(task: Task, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> Result:
    return asyncio.run(run(task, environment, timeout_s))


def failure_of(
    task: Task, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> TaskFailed:
    with pytest.raises(TaskFailed) as error_info:
        run_task(task, environment, timeout_s)
    return error_info.value


def check_task(volume: str) -> CheckVolume:
    return CheckVolume(volume, make_bucket=True, region="us-east-1", access="a")


def test_wrong_keys_are_reported_and_never_shown(bucket: S3Endpoint, volume: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    error = failure_of(check_task(volume), {**bucket.environment(), **keys})
    assert error.kind == "AccessDenied"
    assert "not-the-secret" not in str(error)


def test_a_bucket_that_cannot_be_created_is_reported(bucket: S3Endpoint) -> None:
    with proxied(bucket) as proxy:
        proxy.faults.append(Fault("PUT", "^$", "refuse", times=99))
        error = failure_of(
            check_task(f"s3://new-{uuid.uuid4().hex}/p"), proxy.endpoint.environment()
        )
    assert error.kind == "AccessDenied"
    assert "create the bucket by hand" in error.do


def test_a_store_that_is_down_is_unavailable(bucket: S3Endpoint, volume: str) -> None:
    unreachable = {**bucket.environment(), "AWS_ENDPOINT": "http://127.0.0.1:9"}
    assert failure_of(check_task(volume), unreachable).kind == "StoreUnavailable"


def test_a_task_on_a_hanging_store_times_out_and_its_worker_is_killed(
    proxy: S3Proxy, volume: str
) -> None:
    proxy.faults.append(Fault("LIST", "", "hang", times=99))
    error = failure_of(Measure(volume), proxy.endpoint.environment(), timeout_s=5.0)
    assert error.kind == "TaskTimeout"
    assert not workers()


def test_a_cancelled_caller_leaves_no_worker(proxy: S3Proxy, volume: str) -> None:
    proxy.faults.append(Fault("LIST", "", "hang", times=99))

    async def cancelled() -> None:
        pending = asyncio.create_task(run(Measure(volume), proxy.endpoint.environment(), TIMEOUT_S))
        await asyncio.to_thread(proxy.hanging.wait, TIMEOUT_S)
        assert workers()
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending

    asyncio.run(cancelled())
    assert not workers()


def workers() -> list[psutil.Process]:
    """Return the running workers of this process."""
    children = psutil.Process().children()
    return [p for p in children if "sluicegate_operator.storage_tasks" in p.cmdline()]


def test_a_worker_exits_with_its_caller(proxy: S3Proxy, volume: str) -> None:
    """The caller runs in a separate process and is killed."""
    proxy.faults.append(Fault("LIST", "", "hang", times=99))
    code = (
        "import asyncio, os; from sluicegate_operator.storage_tasks.runner import run; "
        "from sluicegate_operator.reconcile.storage_tasks import Measure; "
        f"asyncio.run(run(Measure({volume!r}), dict(os.environ), 600.0))"
    )
    environment = os.environ | dict(proxy.endpoint.environment())
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as caller:
        assert proxy.hanging.wait(TIMEOUT_S)
        (child,) = psutil.Process(caller.pid).children()
        caller.kill()
    assert child.pid not in {p.pid for p in psutil.wait_procs([child], TIMEOUT_S)[1]}


def test_a_worker_that_dies_is_reported_with_its_signal(
    bucket: S3Endpoint, volume: str, tmp_path: Path
) -> None:
    job = create_checkpoint(tmp_path, f"{volume}/clicks/1")
    environment = {**bucket.environment(), VARIABLE: "before-manifest=kill-self"}
    error = failure_of(TakeSavepoint(job, f"{volume}/savepoints/clicks/s/u"), environment)
    assert error.kind == "TaskDied"
    assert str(-signal.SIGKILL) in error.what


@pytest.mark.parametrize(
    "point", ["savepoint-copying", "before-seal", "after-seal", "before-manifest"]
)
def test_a_savepoint_whose_worker_was_killed_is_taken_by_the_next(
    bucket: S3Endpoint, volume: str, tmp_path: Path, point: str
) -> None:
    job = create_checkpoint(tmp_path, f"{volume}/clicks/1")
    task = TakeSavepoint(job, f"{volume}/savepoints/clicks/s/u", SEAL)
    failure_of(task, {**bucket.environment(), VARIABLE: f"{point}=kill-self"})
    taken = run_task(task, bucket.environment())
    assert [s.url for s in list_savepoints(task.folder) if s.manifest] == [taken.location]  # type: ignore[union-attr]


def test_an_interrupted_deletion_is_completed_by_the_next(
    proxy: S3Proxy, bucket: S3Endpoint, volume: str, tmp_path: Path
) -> None:
    create_checkpoint(tmp_path, f"{volume}/clicks/1")
    proxy.faults.append(Fault("DELETE", "", "hang"))
    task = Delete(f"{volume}/clicks")
    assert failure_of(task, proxy.endpoint.environment(), timeout_s=5.0).kind == "TaskTimeout"
    assert isinstance(run_task(task, bucket.environment()), Deleted)
    assert not list(open_store(f"{volume}/clicks").names(""))


def test_the_operators_own_keys_are_not_passed_on(
    bucket: S3Endpoint, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-operators")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-operators")
    assert run_task(Measure(volume), bucket.environment()) == Measured(0, 0, None)


def create_checkpoint(folder: Path, url: str) -> str:
    """Copy a checkpoint of three epochs into the store."""
    source, target = open_store(checkpoint(folder / "source", 3)), open_store(url)
    for name in source.names(""):
        target.put(name, source.stream(name) or ())
    return url
