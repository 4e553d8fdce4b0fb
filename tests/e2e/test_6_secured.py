"""Three Kafka nodes with TLS and SCRAM, MySQL and the store with TLS. A job is installed by its chart.

The store's volume is a disk whose power can be cut. After each kill the console's ladder is right.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from infra.workspace import CHECKOUT
from tests.e2e import disk
from tests.e2e.conftest import log_lines
from tests.e2e.platform import CLIENT_POD, RELEASE, STORE, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHARTS = CHECKOUT / "charts"
LINES = 700
"""Number of lines that each test feeds."""

JOB = {
    "targets": "ip_count",
    "connections": {
        "kafkaConfig": f"{RELEASE}-kafka-client",
        "mysql": {"authority": f"{RELEASE}-mysql-tls"},
    },
    "spec": {
        "driver": {"cores": 1, "memory": "800m", "memoryOverhead": "600m"},
        # with an executor, so that Spark's state is written to the store by another pod's JVM
        "executor": {"instances": 1, "memory": "600m", "memoryOverhead": "500m"},
        "sparkConf": {"spark.kubernetes.executor.request.cores": "100m"},
        "epochs": {"interval": "2 seconds", "timeoutSeconds": 180},
    },
    "env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}],
}


_REPLICATION = """
from confluent_kafka.admin import AdminClient
from sluicegate.sinks.kafka.connection import client_settings
topics = AdminClient(client_settings("")).list_topics(timeout=30).topics
for name, topic in sorted(topics.items()):
    print(name, *{len(part.replicas) for part in topic.partitions.values()})
"""


def test_helm_test_checks_each_component_over_tls(secured: Platform) -> None:
    output = secured.cluster.helm("test", RELEASE, "--timeout", "5m")
    assert output.count("Succeeded") >= 4, output


def test_a_job_is_exact_through_a_killed_driver(secured: Platform, tmp_path: Path) -> None:
    values = tmp_path / "values.json"
    values.write_text(json.dumps(JOB), encoding="utf-8")
    cluster, chart = secured.cluster, str(CHARTS / "job")
    options = ["--values", str(CHARTS / "job" / "values-small.yaml"), "--values", str(values)]
    lines = log_lines()
    cluster.helm("install", "ip-count", chart, *options, "--timeout", "5m")
    secured.feed(list(itertools.islice(lines, LINES)))
    before = secured.job_when(
        "ip-count", lambda status: "lastEpoch" in status.get("checkpoint", {}), "an epoch"
    )
    secured.feed(list(itertools.islice(lines, LINES)))
    cluster.kill(secured.driver("ip-count"))
    secured.job_when(
        "ip-count",
        lambda status: status["attempt"] > before["attempt"] and status["phase"] == "Running",
        "a replacement driver",
    )
    secured.wait_exact("ip_count", "ip-count")
    secured.wait_ladder("ip-count")


def test_a_broker_of_three_killed_leaves_the_job_exact(secured: Platform) -> None:
    """The job's topics and Kafka's own have three replicas, so no client waits for the lost one."""
    replications = secured.cluster.execute(CLIENT_POD, "python", "-c", _REPLICATION).splitlines()
    assert {"ip_count_sink 3", "sluicegate.markers 3", "__transaction_state 3"} <= set(replications)
    lines = list(itertools.islice(log_lines(), 2 * LINES, 3 * LINES))
    before = secured.job_when("ip-count", bool, "a status")
    secured.cluster.kill(f"{RELEASE}-kafka-2")
    secured.cluster.run("scale", f"statefulset/{RELEASE}-kafka", "--replicas=2")  # it stays away
    secured.feed(lines)
    secured.wait_exact("ip_count", "ip-count")
    secured.wait_ladder("ip-count")
    assert secured.job_when("ip-count", bool, "a status")["attempt"] == before["attempt"]


def test_a_power_cut_of_the_store_leaves_the_job_exact(secured: Platform) -> None:
    """All that the store has acknowledged is on its disk, or verify would miss decided epochs."""
    lines = list(itertools.islice(log_lines(), 3 * LINES, 4 * LINES))
    secured.feed(lines[: LINES // 2])
    before = secured.job_when("ip-count", bool, "a status")["checkpoint"]["lastEpoch"]
    secured.job_when(
        "ip-count", lambda status: status["checkpoint"]["lastEpoch"] > before, "another epoch"
    )
    disk.cut_power("versitygw")
    secured.cluster.kill(f"{STORE}-0")
    secured.feed(lines[LINES // 2 :])
    secured.wait_exact("ip_count", "ip-count")
    secured.wait_ladder("ip-count")
