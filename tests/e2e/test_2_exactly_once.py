"""ip_count and two_sinks stay exact when pods are killed with grace period 0."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.e2e.cluster import eventually
from tests.e2e.conftest import Feed, wait_both_exact
from tests.e2e.manifests import FAILPOINTS, REACHED, hang_at
from tests.e2e.platform import CONSOLE_URL, RELEASE, START_TIMEOUT_S, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_both_jobs_run_and_are_exact(jobs: Platform) -> None:
    for name in ("ip-count", "two-sinks"):
        jobs.job_when(name, lambda status: "lastEpoch" in status.get("checkpoint", {}), "an epoch")
    wait_both_exact(jobs)
    executors = {"running": 1, "wanted": 1}
    jobs.job_when(
        "two-sinks",
        lambda status: executors.items() <= status.get("executors", {}).items(),
        "its executor",
    )
    jobs.wait_ladder("ip-count")
    start_page = jobs.page("")
    assert {"job-ip-count/1", "job-two-sinks/1"} <= set(re.findall(r'id="(job-[^"]+)"', start_page))


def test_the_jvms_have_the_class_archive_of_their_image(jobs: Platform) -> None:
    """One that refuses it starts without a word, and more slowly."""
    pods = jobs.cluster.list_objects("pods", "sluicegate.dev/role in (driver,executor)")
    names = [pod["metadata"]["name"] for pod in pods]
    assert len(names) > 2
    mapped = "cat /proc/[0-9]*/maps | grep -q driver.jsa"
    assert not [name for name in names if not jobs.cluster.succeeds(name, "sh", "-c", mapped)]


@pytest.mark.parametrize(
    "point", ["before-decide", "after-decide", "after-apply:kafka.ip_count_sink"]
)
def test_a_driver_killed_at_a_failpoint_is_replaced_and_exact(
    jobs: Platform, feed: Feed, point: str
) -> None:
    """Before and after the decision and between the sinks; status, Events, metrics and console report it."""
    cluster, before = jobs.cluster, jobs.job_when("ip-count", bool, "a status")
    cluster.apply(hang_at("ip-count", point))
    nonce = {"spec": {"restartNonce": before["attempt"]}}
    cluster.patch("streamingjob", "ip-count", nonce)
    attempt = before["attempt"] + 1
    jobs.job_when("ip-count", lambda status: status["attempt"] == attempt, "the next driver")
    feed()
    hanging = f"ip-count-{attempt}-driver"
    eventually(
        lambda: cluster.succeeds(hanging, "test", "-e", REACHED),
        f"{point} reached",
        within_s=START_TIMEOUT_S,
    )
    cluster.run("delete", "configmap", FAILPOINTS)
    decided = jobs.decided("ip-count")
    cluster.kill(hanging)
    # the replacement needs longer to start than the console to refresh its page
    jobs.wait_ladder("ip-count", decided, in_doubt=point != "before-decide")
    jobs.job_when(
        "ip-count",
        lambda status: status["attempt"] == attempt + 1 and status["phase"] == "Running",
        "a replacement driver",
    )
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")
    restarts = jobs.job_when("ip-count", bool, "a status")["restarts"]
    assert restarts == before.get("restarts", 0) + 1
    assert jobs.metric("sluicegate_job_restarts_total", job="ip-count") == restarts
    events = [
        e for e in cluster.list_objects("events") if e["involvedObject"]["name"] == "ip-count"
    ]
    disrupted = [event["message"] for event in events if event["reason"] == "Disrupted"]
    assert disrupted
    assert all(f"console: {CONSOLE_URL}/find?checkpoint=" in message for message in disrupted)


def test_a_standby_goes_on_when_its_driver_is_killed(
    jobs: Platform, feed: Feed, record_property: Callable[[str, object], None]
) -> None:
    """The pod that waited has the next epoch, and no other pod is started in its place."""
    cluster = jobs.cluster
    cluster.patch("streamingjob", "ip-count", {"spec": {"standby": 1}})
    before = jobs.job_when(
        "ip-count", lambda status: status.get("standby", {}).get("state") == "Ready", "a standby"
    )
    waiting = f"ip-count-{before['standby']['attempt']}-driver"
    feed()
    killed = time.monotonic()
    cluster.kill(f"ip-count-{before['attempt']}-driver")

    def progress() -> str:
        annotations = (cluster.get("pod", waiting) or {})["metadata"]["annotations"]
        return str(annotations.get("sluicegate.dev/progress", ""))

    eventually(progress, "the first epoch of the standby", within_s=START_TIMEOUT_S)
    record_property("takeover_s", round(time.monotonic() - killed, 1))
    status = jobs.job_when("ip-count", lambda status: status["phase"] == "Running", "to run")
    assert status["attempt"] == before["standby"]["attempt"]
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")
    cluster.patch("streamingjob", "ip-count", {"spec": {"standby": 0}})


def test_an_executor_killed_while_it_stages_is_replaced_and_exact(
    jobs: Platform, feed: Feed
) -> None:
    cluster, before = jobs.cluster, jobs.job_when("two-sinks", bool, "a status")
    cluster.apply(hang_at("two-sinks", "stage-part"))
    cluster.patch("streamingjob", "two-sinks", {"spec": {"restartNonce": before["attempt"]}})
    attempt = before["attempt"] + 1
    jobs.job_when("two-sinks", lambda status: status["attempt"] == attempt, "the next driver")
    feed()

    def hanging() -> str:
        selector = f"sluicegate.dev/job=two-sinks,sluicegate.dev/attempt={attempt},sluicegate.dev/role=executor"
        for pod in cluster.list_objects("pods", selector):
            if cluster.succeeds(pod["metadata"]["name"], "test", "-e", REACHED):
                return str(pod["metadata"]["name"])
        return ""

    executor = eventually(hanging, "an executor at stage-part", within_s=START_TIMEOUT_S)
    cluster.run("delete", "configmap", FAILPOINTS)
    cluster.kill(executor)
    wait_both_exact(jobs)
    jobs.wait_ladder("two-sinks")
    assert jobs.job_when("two-sinks", bool, "a status")["attempt"] == attempt, "the driver stayed"


@pytest.mark.parametrize("pod", ["kafka-0", "mysql-0", "object-store-0"])
def test_a_killed_server_leaves_the_jobs_exact(jobs: Platform, feed: Feed, pod: str) -> None:
    feed()
    jobs.cluster.kill(f"{RELEASE}-{pod}")
    server = pod.removesuffix("-0")
    jobs.cluster.wait_rollout(f"statefulset/{RELEASE}-{server}", within_s=240.0)
    feed()
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")


def test_a_killed_operator_leaves_the_jobs_running_and_resumes(jobs: Platform, feed: Feed) -> None:
    cluster = jobs.cluster
    before = jobs.job_when("ip-count", lambda status: status["phase"] == "Running", "to run")
    for pod in jobs.operator_pods():
        jobs.operators.kill(pod["metadata"]["name"])
    feed()
    wait_both_exact(jobs)
    jobs.wait_ladder("ip-count")
    jobs.operators.wait_rollout(f"deployment/{RELEASE}-operator", within_s=180.0)
    assert jobs.job_when("ip-count", bool, "a status")["attempt"] == before["attempt"]
    cluster.patch("streamingjob", "ip-count", {"spec": {"restartNonce": 1000}})
    jobs.job_when(  # a standby that was removed had the next number
        "ip-count", lambda status: status["attempt"] > before["attempt"], "the next driver"
    )
