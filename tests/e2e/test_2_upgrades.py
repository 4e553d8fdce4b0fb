"""Upgrades of the operator and of every server while jobs run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice

import pytest

from tests.e2e.cluster import Object
from tests.e2e.conftest import CHART, Feed, wait_both_exact
from tests.e2e.platform import RELEASE, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

DRIVERS = "sluicegate.dev/role=driver"
SERVERS = ("kafka", "mysql", "object-store", "collector")
OPERATORS = "app.kubernetes.io/name=operator"
DEFAULT = (
    "import sluicegate_operator.api.streaming_job as m; "
    "print(m.StreamingJobSpec.__dataclass_fields__['image_pull_policy'].default)"
)
LOCATE = "import sluicegate_operator.api.streaming_job as module; print(module.__file__)"


def drivers(platform: Platform) -> set[str]:
    """Return the UIDs of all drivers."""
    return {pod["metadata"]["uid"] for pod in platform.cluster.list_objects("pods", DRIVERS)}


def upgrade(platform: Platform, *options: str) -> None:
    """Run `helm upgrade` with changes of the values and wait for its rollouts."""
    platform.cluster.helm(
        *("upgrade", RELEASE, str(CHART), "--reuse-values", "--wait", "--timeout", "8m"), *options
    )


def another_release(platform: Platform) -> list[str]:
    """Return values with which the operator has another default for a field that drivers see."""
    operators = platform.operators
    pod = operators.list_objects("pods", OPERATORS)[0]["metadata"]["name"]
    path = operators.execute(pod, "python", "-c", LOCATE).strip()
    before = operators.execute(pod, "cat", path)
    after = before.replace(
        '"IfNotPresent",\n        "Pull policy', '"Always",\n        "Pull policy'
    )
    assert after != before
    release: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "another-release"},
        "data": {"streaming_job.py": after},
    }
    operators.apply(release)
    volume = {"name": "release", "configMap": {"name": "another-release"}}
    mount = {"name": "release", "mountPath": path, "subPath": "streaming_job.py"}
    return [
        *("--set-json", f"operator.extraVolumes={json.dumps([volume])}"),
        *("--set-json", f"operator.extraVolumeMounts={json.dumps([mount])}"),
    ]


@contextmanager
def repeated(action: Callable[[], None]) -> Iterator[None]:
    """Repeat an action in another thread until the end of the block; it runs at least once."""
    ended = threading.Event()

    def repeat() -> None:
        action()
        while not ended.wait(1.0):
            action()

    with ThreadPoolExecutor(max_workers=1) as threads:
        repetitions = threads.submit(repeat)
        try:
            yield
        finally:
            ended.set()
        repetitions.result()


def test_an_upgrade_of_the_operator_restarts_no_driver(jobs: Platform, feed: Feed) -> None:
    """Its new release has another default for a field of which jobs store the earlier default."""
    for name in ("ip-count", "two-sinks"):
        jobs.job_when(name, lambda status: status.get("phase") == "Running", "to run")
    before = drivers(jobs)
    upgrade(jobs, *another_release(jobs))
    for pod in jobs.operators.list_objects("pods", OPERATORS):
        if "deletionTimestamp" in pod["metadata"]:
            continue
        name = pod["metadata"]["name"]
        assert jobs.operators.execute(name, "python", "-c", DEFAULT).strip() == "Always"
    feed()
    wait_both_exact(jobs)
    assert len(before) == 2
    assert drivers(jobs) == before


def test_an_upgrade_of_everything_under_load_leaves_the_jobs_exact(
    jobs: Platform, feed: Feed, lines: Iterator[bytes]
) -> None:
    """Every server and the operator are restarted while records arrive."""
    selector = (
        f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/name in ({','.join(SERVERS)})"
    )

    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in jobs.cluster.list_objects("pods", selector)}

    before = uids()
    parts = (*SERVERS, "operator")
    annotations = [f"{part}.podAnnotations.upgraded=again" for part in parts]
    feed()
    with repeated(lambda: jobs.feed(list(islice(lines, 20)))):
        upgrade(
            jobs,
            *("--set", ",".join(annotations)),
            *("--set-json", "operator.extraVolumes=[]"),
            *("--set-json", "operator.extraVolumeMounts=[]"),
        )
    assert len(before) >= len(SERVERS)
    assert not before & uids()
    feed()
    wait_both_exact(jobs)
