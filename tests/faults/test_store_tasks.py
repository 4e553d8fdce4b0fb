"""The operator's tasks on a store that is down, refuses, hangs; and children that are killed."""

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

from infra.embedded import S3Endpoint
from sluicegate.checkpoint.savepoints import listed
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate.storage.objects import open_objects
from sluicegate_operator.store.running import TaskFailed, run
from sluicegate_operator.volumes.tasks import (
    SEAL,
    Delete,
    Deleted,
    Measure,
    Measured,
    Prepare,
    Result,
    Take,
    Task,
)
from tests.unit.checkpoint.made import checkpoint

from .s3_proxy import Fault, S3Proxy, proxied

pytestmark = pytest.mark.faults

PATIENCE_S = 120.0


@pytest.fixture
def proxy(bucket: S3Endpoint) -> Iterator[S3Proxy]:
    """Give the store behind a proxy."""
    with proxied(bucket) as made:
        yield made


@pytest.fixture
def volume(bucket: S3Endpoint) -> str:
    """Give the address of a volume that nobody else uses."""
    return f"{bucket.url}/{uuid.uuid4().hex}"


def do(task: Task, environment: Mapping[str, str], timeout_s: float = PATIENCE_S) -> Result:
    return asyncio.run(run(task, environment, timeout_s))


def failure(
    task: Task, environment: Mapping[str, str], timeout_s: float = PATIENCE_S
) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        do(task, environment, timeout_s)
    return caught.value


def check(volume: str) -> Prepare:
    return Prepare(volume, make_bucket=True, region="us-east-1", access="a")


def test_wrong_keys_are_told_as_such_and_never_shown(bucket: S3Endpoint, volume: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    error = failure(check(volume), {**bucket.environment(), **keys})
    assert error.kind == "AccessDenied"
    assert "not-the-secret" not in str(error)


def test_a_bucket_that_may_not_be_made_is_told_as_such(bucket: S3Endpoint) -> None:
    with proxied(bucket) as proxy:
        proxy.faults.append(Fault("PUT", "^$", "refuse", times=99))
        error = failure(check(f"s3://new-{uuid.uuid4().hex}/p"), proxy.endpoint.environment())
    assert error.kind == "AccessDenied"
    assert "make the bucket by hand" in error.do


def test_a_store_that_is_down_does_not_answer(bucket: S3Endpoint, volume: str) -> None:
    nowhere = {**bucket.environment(), "AWS_ENDPOINT": "http://127.0.0.1:9"}
    assert failure(check(volume), nowhere).kind == "StoreUnavailable"


def test_a_store_that_hangs_is_given_up_and_its_child_is_dead(proxy: S3Proxy, volume: str) -> None:
    proxy.faults.append(Fault("LIST", "", "hang", times=99))
    error = failure(Measure(volume), proxy.endpoint.environment(), timeout_s=5.0)
    assert error.kind == "TaskTimeout"
    assert not children()


def test_a_caller_that_is_cancelled_leaves_no_child(proxy: S3Proxy, volume: str) -> None:
    proxy.faults.append(Fault("LIST", "", "hang", times=99))

    async def cancelled() -> None:
        work = asyncio.create_task(run(Measure(volume), proxy.endpoint.environment(), PATIENCE_S))
        await asyncio.to_thread(proxy.hanging.wait, PATIENCE_S)
        assert children()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelled())
    assert not children()


def children() -> list[psutil.Process]:
    """Return the tasks of this process that live."""
    found = psutil.Process().children()
    return [p for p in found if "sluicegate_operator.store" in p.cmdline()]


def test_a_child_ends_with_its_caller(proxy: S3Proxy, volume: str) -> None:
    """The caller is a process of its own, and killed."""
    proxy.faults.append(Fault("LIST", "", "hang", times=99))
    code = (
        "import asyncio, os; from sluicegate_operator.store.running import run; "
        "from sluicegate_operator.volumes.tasks import Measure; "
        f"asyncio.run(run(Measure({volume!r}), dict(os.environ), 600.0))"
    )
    environment = os.environ | dict(proxy.endpoint.environment())
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as caller:
        assert proxy.hanging.wait(PATIENCE_S)
        (child,) = psutil.Process(caller.pid).children()
        caller.kill()
    assert child.pid not in {p.pid for p in psutil.wait_procs([child], PATIENCE_S)[1]}


def test_a_child_that_dies_is_told_with_its_last_words(
    bucket: S3Endpoint, volume: str, tmp_path: Path
) -> None:
    job = on_store(tmp_path, f"{volume}/clicks/1")
    environment = {**bucket.environment(), VARIABLE: "before-manifest=kill-self"}
    error = failure(Take(job, f"{volume}/savepoints/clicks/s/u"), environment)
    assert error.kind == "TaskDied"
    assert str(-signal.SIGKILL) in error.what


@pytest.mark.parametrize(
    "point", ["savepoint-copying", "before-seal", "after-seal", "before-manifest"]
)
def test_a_savepoint_whose_taker_was_killed_is_taken_by_the_next(
    bucket: S3Endpoint, volume: str, tmp_path: Path, point: str
) -> None:
    job = on_store(tmp_path, f"{volume}/clicks/1")
    task = Take(job, f"{volume}/savepoints/clicks/s/u", SEAL)
    failure(task, {**bucket.environment(), VARIABLE: f"{point}=kill-self"})
    made = do(task, bucket.environment())
    assert [s.url for s in listed(task.folder) if s.manifest] == [made.location]  # type: ignore[union-attr]


def test_a_deletion_that_was_cut_is_finished_by_the_next(
    proxy: S3Proxy, bucket: S3Endpoint, volume: str, tmp_path: Path
) -> None:
    on_store(tmp_path, f"{volume}/clicks/1")
    proxy.faults.append(Fault("POST", "", "hang"))
    task = Delete(f"{volume}/clicks")
    assert failure(task, proxy.endpoint.environment(), timeout_s=5.0).kind == "TaskTimeout"
    assert isinstance(do(task, bucket.environment()), Deleted)
    assert not list(open_objects(f"{volume}/clicks").names(""))


def test_the_operators_own_keys_are_not_handed_on(
    bucket: S3Endpoint, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-operators")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-operators")
    assert do(Measure(volume), bucket.environment()) == Measured(0, 0, None)


def on_store(folder: Path, url: str) -> str:
    """Put a checkpoint of three epochs onto the store."""
    given, target = open_objects(checkpoint(folder / "made", 3)), open_objects(url)
    for name in given.names(""):
        target.put(name, given.chunks(name) or ())
    return url
