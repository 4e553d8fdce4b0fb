"""ip_count and two_sinks stay exact when the API server is killed, and the only node with all its pods."""

from __future__ import annotations

import pytest

from tests.e2e import node
from tests.e2e.cluster import Cluster, CommandFailed, eventually
from tests.e2e.conftest import Feed, wait_both_exact
from tests.e2e.platform import CLIENT_POD, RELEASE, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_BACK_S = 240.0

_KEPT_PODS = (
    CLIENT_POD,
    *(f"{RELEASE}-{server}-0" for server in ("kafka", "mysql", "object-store")),
)
"""Pods that keep their names when their containers are started again."""


def _attempts(jobs: Platform) -> list[int]:
    return [
        jobs.job_when(name, lambda status: status.get("phase") == "Running", "to run")["attempt"]
        for name in ("ip-count", "two-sinks")
    ]


def _answers(jobs: Platform) -> bool:
    try:
        return jobs.cluster.run("get", "--raw", "/readyz", timeout_s=20.0) == "ok"
    except CommandFailed:
        return False


def _ready_containers(cluster: Cluster, pod: str) -> set[str]:
    """Return the ids of a pod's containers, or nothing unless all of them are ready."""
    found = cluster.get("pod", pod)
    assert found is not None, f"there is no pod {pod}"
    containers = found["status"]["containerStatuses"]
    if not all(container["ready"] for container in containers):
        return set()
    return {container["containerID"] for container in containers}


def _wait_started_again(cluster: Cluster, pod: str, killed: set[str]) -> None:
    """Wait until a pod has new containers that are ready.

    Until the kubelet has looked, the pod has the status of before the kill.
    """
    eventually(
        lambda: _ready_containers(cluster, pod) - killed,
        f"new containers of {pod}",
        within_s=_BACK_S,
    )


def test_a_killed_api_server_leaves_the_drivers_running_and_exact(
    jobs: Platform, feed: Feed
) -> None:
    before = _attempts(jobs)
    feed()
    node.on_node("pkill -KILL -x kube-apiserver")
    eventually(lambda: _answers(jobs), "an API server that answers", within_s=_BACK_S)
    feed()
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")
    assert _attempts(jobs) == before


def test_a_killed_node_leaves_the_jobs_exact(jobs: Platform, feed: Feed) -> None:
    """Kafka, MySQL, the store, the operator and all drivers are killed at once, and start again."""
    before = _attempts(jobs)
    feed()
    killed = {pod: _ready_containers(jobs.cluster, pod) for pod in _KEPT_PODS}
    node.restart()
    for pod in _KEPT_PODS:
        _wait_started_again(jobs.cluster, pod, killed[pod])
    feed()
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")
    assert all(new > old for new, old in zip(_attempts(jobs), before, strict=True))
