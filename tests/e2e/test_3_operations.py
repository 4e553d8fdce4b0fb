"""Operations on a running job: upgrade, suspend, savepoint, move, failure and deletion."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.e2e.cluster import Object, eventually
from tests.e2e.manifests import ip_count
from tests.e2e.platform import START_TIMEOUT_S, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LINES = 300


def savepoint(name: str, job: str, **spec: object) -> Object:
    """Return a Savepoint."""
    return {
        "apiVersion": "sluicegate.dev/v1alpha1",
        "kind": "Savepoint",
        "metadata": {"name": name},
        "spec": {"job": job, **spec},
    }


def wait_taken(platform: Platform, name: str) -> Object:
    """Wait until a Savepoint has been taken; return the newest."""

    def poll() -> Object | None:
        resource = platform.cluster.get("savepoint", name) or {}
        savepoints = resource.get("status", {}).get("taken") or []
        return savepoints[-1] if savepoints else None

    return eventually(poll, f"Savepoint {name} taken", within_s=START_TIMEOUT_S)


def test_an_upgrade_by_savepoint_continues_from_it(
    platform: Platform, lines: Iterator[bytes]
) -> None:
    # a job that has not run yet has no state to save
    platform.job_when("ip-count", lambda status: status["phase"] == "Running", "to run")
    change = {"upgradeMode": "Savepoint", "epochs": {"interval": "1 second"}}
    platform.cluster.patch("streamingjob", "ip-count", {"spec": change})
    status = platform.job_when(
        "ip-count",
        lambda status: (
            status.get("checkpoint", {}).get("number") == 2 and status["phase"] == "Running"
        ),
        "a driver on the next checkpoint",
    )
    assert status["checkpoint"]["restoredFrom"].startswith("ip-count-upgrade-")
    platform.feed(list(islice(lines, LINES)))
    platform.wait_exact("ip_count", "ip-count")
    platform.wait_ladder("ip-count")


def test_a_suspended_job_has_no_pod_and_continues_where_it_stopped(
    platform: Platform, lines: Iterator[bytes]
) -> None:
    cluster = platform.cluster
    cluster.patch("streamingjob", "ip-count", {"spec": {"suspend": True}})
    platform.job_when("ip-count", lambda status: status["phase"] == "Suspended", "to be suspended")
    alive = cluster.run(
        "get", "pods", "-l", "sluicegate.dev/job=ip-count", "--field-selector=status.phase=Running"
    )
    assert "ip-count" not in alive
    platform.feed(list(islice(lines, LINES)))
    cluster.patch("streamingjob", "ip-count", {"spec": {"suspend": False}})
    platform.wait_exact("ip_count", "ip-count")


def test_savepoints_are_taken_by_schedule_and_by_hand(platform: Platform) -> None:
    every_minute = {"cron": "* * * * *"}
    platform.cluster.apply(
        savepoint("minutely", "ip-count", schedule=every_minute, history=1),
        savepoint("by-hand", "ip-count"),
    )
    assert wait_taken(platform, "by-hand")["location"].startswith("s3://sluicegate/savepoints/")
    assert not wait_taken(platform, "minutely").get("sealed")
    platform.cluster.run("delete", "savepoint", "minutely", "--timeout=60s")


def test_a_job_moves_to_another_by_savepoint_and_is_exact(
    platform: Platform, lines: Iterator[bytes]
) -> None:
    cluster = platform.cluster
    cluster.patch("streamingjob", "ip-count", {"spec": {"suspend": True}})
    cluster.apply(savepoint("move", "ip-count", stop=True))
    assert wait_taken(platform, "move")["sealed"]
    checkpoint = {"volume": "checkpoints", "restoreFrom": "move"}
    cluster.apply(ip_count(platform, "ip-count-2", checkpoint=checkpoint))
    platform.job_when("ip-count-2", lambda status: status.get("phase") == "Running", "to run")
    platform.feed(list(islice(lines, LINES)))
    platform.wait_exact("ip_count", "ip-count-2")
    platform.wait_ladder("ip-count-2")
    path = platform.checkpoint("ip-count").removeprefix("s3://sluicegate/")
    assert "Sealed before epoch" in platform.page(f"job/{path}")


def test_job_whose_topic_is_missing_reports_it_and_is_retried(platform: Platform) -> None:
    options = ["--topic", "no_such_topic", "--table", "ip_count"]
    platform.cluster.apply(ip_count(platform, "hopeless", options=options))
    status = platform.job_when("hopeless", lambda s: s.get("phase") == "Restarting", "to fail")
    assert "no_such_topic" in str(status["lastError"])
    (ready,) = (condition for condition in status["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "BackingOff")
    description = platform.cluster.run("describe", "streamingjob", "hopeless")
    assert "TargetMissing" in description
    platform.cluster.run("delete", "streamingjob", "hopeless", "--timeout=120s", timeout_s=130.0)


def test_job_whose_pod_a_quota_refuses_reports_it(platform: Platform) -> None:
    cluster = platform.cluster
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-more-pods"},
        "spec": {"hard": {"pods": "1"}},
    }
    cluster.apply(quota)
    cluster.run("wait", "resourcequota/no-more-pods", "--for=jsonpath={.status.used.pods}")
    cluster.apply(ip_count(platform, "over-quota"))
    status = platform.job_when("over-quota", lambda s: s.get("startup"), "to be refused")
    assert status["startup"]["reason"] == "QuotaExceeded"
    assert "no-more-pods" in status["startup"]["message"]
    cluster.run("delete", "resourcequota", "no-more-pods")
    cluster.run("delete", "streamingjob", "over-quota", "--timeout=120s", timeout_s=130.0)


def test_a_deleted_job_leaves_its_checkpoint(platform: Platform) -> None:
    address = platform.checkpoint("ip-count-2")
    for name in ("ip-count-2", "ip-count"):
        platform.cluster.run("delete", "streamingjob", name, "--timeout=240s", timeout_s=250.0)
    assert any(name.startswith("epochs/") for name in platform.objects(address))


def test_a_job_deleted_with_its_checkpoint_leaves_nothing(platform: Platform) -> None:
    address = platform.checkpoint("two-sinks")
    assert any(name.startswith("epochs/") for name in platform.objects(address))
    change = {"spec": {"epochs": {"onCancel": "Delete"}}}
    before = platform.job_when("two-sinks", bool, "a status")
    platform.cluster.patch("streamingjob", "two-sinks", change)
    platform.job_when(
        "two-sinks",
        lambda s: s["attempt"] > before["attempt"] and s["phase"] == "Running",
        "the changed driver",
    )
    platform.cluster.run("delete", "streamingjob", "two-sinks", "--timeout=240s", timeout_s=250.0)
    assert platform.objects(address) == []
