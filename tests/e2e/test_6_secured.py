"""Everything secured: Kafka by TLS and SCRAM, MySQL and the store by TLS. A job comes by its own chart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.work import CHECKOUT
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import clear, install, log_lines
from tests.e2e.platform import RELEASE, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHARTS = CHECKOUT / "charts"

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
        "epochs": {"interval": "2 seconds", "timeoutS": 180},
    },
    "env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}],
}


@pytest.fixture(scope="module")
def secured(cluster: Cluster) -> Iterator[Platform]:
    values = CHARTS / "sluicegate" / "ci" / "tls-scram-values.yaml"
    yield install(cluster, "--values", str(values), secured=True)
    clear(cluster)


def test_helm_test_asks_each_part_over_tls(secured: Platform) -> None:
    said = secured.cluster.helm("test", RELEASE, "--timeout", "5m")
    assert said.count("Succeeded") >= 4, said


def test_a_job_is_exact_through_a_killed_driver(secured: Platform, tmp_path: Path) -> None:
    values = tmp_path / "values.json"
    values.write_text(json.dumps(JOB), encoding="utf-8")
    cluster, chart = secured.cluster, str(CHARTS / "job")
    given = ["--values", str(CHARTS / "job" / "values-small.yaml"), "--values", str(values)]
    lines = log_lines()
    cluster.helm("install", "ip-count", chart, *given, "--timeout", "5m")
    secured.feed("ip_count_source", list(itertools.islice(lines, 700)))
    before = secured.job_when("ip-count", lambda status: "lastEpoch" in status, "an epoch")
    secured.feed("ip_count_source", list(itertools.islice(lines, 700)))
    cluster.kill(secured.driver("ip-count"))
    secured.job_when(
        "ip-count",
        lambda status: status["attempt"] > before["attempt"] and status["phase"] == "Running",
        "a driver in its place",
    )
    secured.exact("ip_count", "ip-count")
