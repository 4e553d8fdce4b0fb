"""ip_count and two_sinks stay exact when the API server is killed, and the only node with all its pods."""

from __future__ import annotations

import pytest

from tests.e2e import node
from tests.e2e.cluster import CommandFailed, eventually
from tests.e2e.conftest import Feed, wait_both_exact
from tests.e2e.platform import RELEASE, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_BACK_S = 240.0


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
    node.restart()
    for server in ("kafka", "mysql", "object-store"):
        name = f"statefulset/{RELEASE}-{server}"
        jobs.cluster.run(
            "rollout", "status", name, f"--timeout={_BACK_S:.0f}s", timeout_s=_BACK_S + 10
        )
    feed()
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")
    assert all(new > old for new, old in zip(_attempts(jobs), before, strict=True))
