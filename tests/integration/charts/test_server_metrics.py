"""The metrics of the bundled Kafka and MySQL: who may scrape them, and what the charts start for that.

What the servers answer is compared with the page in test_kafka_runs.py and, for the image mysql, in
tests/integration/images/test_mysql_metrics.py.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.integration.charts.promql import SERVERS_PAGE
from tests.integration.charts.rendering import (
    Charts,
    Document,
    of_kind,
    only_of_kind,
    pods,
    selects,
)

PORTS: Final = {"kafka": 9404, "mysql": 9104}
SCRAPED: Final[dict[str, Any]] = {"metrics": {"enabled": True, "podMonitor": {"enabled": True}}}

every_server = pytest.mark.parametrize("chart", PORTS)


def server_of(documents: list[Document]) -> Document:
    """Return the server's pod."""
    name = only_of_kind(documents, "StatefulSet")["metadata"]["name"]
    (pod,) = (pod for pod in pods(documents) if pod["metadata"]["name"] == f"{name}-pod")
    return pod


def ingress_of(documents: list[Document]) -> list[Document]:
    """Return the rules of the policy of the server's pod."""
    server = server_of(documents)
    (policy,) = (p for p in of_kind(documents, "NetworkPolicy") if selects(p, server))
    rules: list[Document] = policy["spec"]["ingress"]
    return rules


@every_server
def test_metrics_are_off_unless_enabled(charts: Charts, chart: str) -> None:
    documents = charts.render(chart)
    assert not of_kind(documents, "PodMonitor")
    assert not re.findall("metrics", json.dumps(documents), re.IGNORECASE)
    assert str(PORTS[chart]) not in json.dumps([server_of(documents), ingress_of(documents)])


@every_server
def test_the_pod_monitor_selects_the_servers_port(charts: Charts, chart: str) -> None:
    documents = charts.render(chart, SCRAPED)
    server = server_of(documents)
    monitor = only_of_kind(documents, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= server["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    ports = [port for each in server["spec"]["containers"] for port in each["ports"]]
    (port,) = (port["containerPort"] for port in ports if port["name"] == endpoint["port"])
    assert port == PORTS[chart]


@every_server
def test_the_monitoring_namespace_may_scrape_and_no_job(charts: Charts, chart: str) -> None:
    scrapes = [
        rule
        for rule in ingress_of(charts.render(chart, SCRAPED))
        if {"port": PORTS[chart]} in rule["ports"]
    ]
    label = {"kubernetes.io/metadata.name": "monitoring"}
    assert scrapes == [
        {
            "ports": [{"port": PORTS[chart]}],
            "from": [{"namespaceSelector": {"matchLabels": label}}],
        }
    ]


@every_server
def test_an_empty_list_of_scrapers_admits_nobody(charts: Charts, chart: str) -> None:
    values = {**SCRAPED, "networkPolicy": {"metricsFrom": []}}
    rules = ingress_of(charts.render(chart, values))
    assert {"port": PORTS[chart]} not in [port for rule in rules for port in rule["ports"]]
    assert all(rule["from"] for rule in rules)


def test_the_exporter_has_the_password_that_the_server_gives_its_account(charts: Charts) -> None:
    documents = charts.render("mysql", SCRAPED)
    server, exporter = server_of(documents)["spec"]["containers"]
    reference = exporter["env"][0]["valueFrom"]["secretKeyRef"]
    (passwords,) = (v for v in server_of(documents)["spec"]["volumes"] if v["name"] == "passwords")
    mounted = [
        {"name": source["secret"]["name"], "key": item["key"]}
        for source in passwords["projected"]["sources"]
        for item in source["secret"]["items"]
    ]
    assert reference in mounted
    named = {variable["name"]: variable.get("value", "") for variable in server["env"]}
    assert named["MYSQL_METRICS_PASSWORD_FILE"].rpartition("/")[2] == reference["key"]
    assert "--tls.insecure-skip-verify" not in exporter["args"]


def test_the_exporter_uses_tls_where_the_server_requires_it(charts: Charts) -> None:
    documents = charts.render("mysql", {**SCRAPED, "tls": {"enabled": True}})
    _, exporter = server_of(documents)["spec"]["containers"]
    assert "--tls.insecure-skip-verify" in exporter["args"]


def test_the_secrets_job_creates_the_password_of_the_exporter(charts: Charts) -> None:
    job = json.dumps(
        only_of_kind(charts.render("mysql", SCRAPED), "Job", "sluicegate-mysql-secrets")
    )
    assert "metrics-password" in job


def test_the_command_of_the_page_switches_on_what_it_says(charts: Charts) -> None:
    (line,) = re.findall(r"^helm upgrade .*$", SERVERS_PAGE.read_text(), re.MULTILINE)
    names = charts.names_after(line)
    assert {"PodMonitor sluicegate-kafka", "PodMonitor sluicegate-mysql"} <= names
