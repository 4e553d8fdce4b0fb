"""A real Prometheus on this machine: it scrapes programs of a test, and evaluates rules of the charts.

It scrapes and evaluates once a second, so that a test of an alert takes seconds. It listens on the
loopback address only.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import yaml

from infra.local_services.process import Server, answers_ok, free_ports
from infra.toolchain import go_programs
from tests.integration.operator.api import eventually

Document = dict[str, Any]

_ONE_SECOND: Final = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
_NOT_COMPARED: Final = {"__name__", "alertname", "alertstate", "severity", "instance"}
"""Labels of a firing alert that are the same for all, or an address of the test."""


class Prometheus(Server):
    """One Prometheus with its data in one folder.

    Args:
        folder: of its data, its rules and the addresses of what it scrapes.
        monitor: the PodMonitor or ServiceMonitor whose endpoint says how programs are scraped.
    """

    NAME = "Prometheus"
    LOG = "prometheus.log"
    START_TIMEOUT_S = 60.0

    def __init__(self, folder: Path, monitor: Document) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self._monitor = monitor

    def scrape(self, pod: str, port: int) -> None:
        """Scrape a program on this machine from now on, as a pod of the monitor's namespace."""
        labels = {"namespace": self._monitor["metadata"]["namespace"], "pod": pod}
        targets = [{"targets": [f"127.0.0.1:{port}"], "labels": labels}]
        file = self._targets / f"{pod}.json"
        file.with_suffix(".new").write_text(json.dumps(targets), encoding="utf-8")
        file.with_suffix(".new").replace(file)  # it is read as soon as it changes
        eventually(lambda: self.query(f'up{{pod="{pod}"}} == 1'))

    def evaluate(self, rules: Document) -> None:
        """Evaluate the spec of a PrometheusRule from now on."""
        (self._folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
        assert self.pid is not None
        os.kill(self.pid, signal.SIGHUP)  # it reads its configuration again
        expected = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
        eventually(lambda: self.rule_health() == dict.fromkeys(expected, "ok"))

    def query(self, expression: str) -> list[Document]:
        """Return the samples that an expression has now; an error of Prometheus fails the test."""
        answer = self._get(f"query?{urlencode({'query': expression})}")
        assert answer["status"] == "success", f"{expression}: {answer['error']}"
        samples: list[Document] = answer["data"]["result"]
        return samples

    def fired(self) -> set[str]:
        """Return the alerts that have fired since the start, each as in `alert`."""
        samples = self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')
        return {alert(s["metric"]["alertname"], **s["metric"]) for s in samples}

    @contextmanager
    def fires(self, name: str, **labels: str) -> Iterator[None]:
        """Wait until the fault that the block stages has fired this alert, and no other one.

        The alert must not have fired before.
        """
        before, expected = self.fired(), alert(name, **labels)
        assert expected not in before, before
        yield
        fired = eventually(lambda: self.fired() - before, within_s=120.0)
        assert fired == {expected}, fired

    def rule_health(self) -> dict[str, str]:
        """Return by the name of each rule: `ok`, the error of its last evaluation, or `unknown` before it."""
        rules = [rule for group in self._get("rules")["data"]["groups"] for rule in group["rules"]]
        return {rule["name"]: rule.get("lastError") or rule["health"] for rule in rules}

    @property
    def _targets(self) -> Path:
        return self._folder / "targets"

    def _get(self, path: str) -> Document:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30.0)
        try:
            connection.request("GET", f"/api/v1/{path}")
            answer: Document = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2.0)
        return answers_ok(connection, "/-/ready")

    def _prepare(self) -> list[str]:
        binary = go_programs.PROMETHEUS.binary
        self._targets.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yaml"
        files = [{"files": [str(self._targets / "*.json")]}]
        content = {
            "global": _ONE_SECOND,
            "rule_files": [str(self._folder / "rules*.yaml")],
            "scrape_configs": [_scrape_config(self._monitor) | {"file_sd_configs": files}],
        }
        config.write_text(yaml.safe_dump(content), encoding="utf-8")
        listen = f"--web.listen-address=127.0.0.1:{self._port}"
        data = f"--storage.tsdb.path={self._folder / 'data'}"
        soon = "--scrape.discovery-reload-interval=1s"  # it applies new addresses
        return [str(binary), f"--config.file={config}", data, listen, soon, "--log.level=warn"]

    def _environment(self) -> Mapping[str, str]:
        return os.environ | {"GOMAXPROCS": "1"}  # the cores are for what it scrapes


@contextmanager
def running_prometheus(folder: Path, monitor: Document) -> Iterator[Prometheus]:
    """Run a Prometheus, or skip the test with the reason."""
    if reason := go_programs.PROMETHEUS.missing_reason():
        pytest.skip(reason)
    server = Prometheus(folder, monitor)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def alert(name: str, **labels: str) -> str:
    """Return an alert with the labels by which a person finds what it is about."""
    kept = (f'{key}="{labels[key]}"' for key in sorted(labels.keys() - _NOT_COMPARED))
    return f"{name}{{{', '.join(kept)}}}"


def in_seconds(rules: Document) -> Document:
    """Return the spec of a PrometheusRule for a test that lasts seconds and not an hour.

    A minute of a range or an offset becomes a second, and a minute of `for` a fifth of a second. The
    metrics, comparisons and thresholds are those of the chart.
    """
    text = re.sub(r"(\[|offset )(\d+)m\b", r"\1\2s", json.dumps(rules))
    found: Document = json.loads(
        re.sub(r'"for": "(\d+)m"', lambda m: f'"for": "{200 * int(m[1])}ms"', text)
    )
    return found


def filled(query: str, **variables: str) -> str:
    """Return a query of a dashboard with the values of Grafana's variables.

    The range of rates, which Grafana chooses by the zoom, is a minute.
    """
    values = {"__rate_interval": "1m", **variables}
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], query)


def empty_panels(prometheus: Prometheus, dashboard: Document, **variables: str) -> set[str]:
    """Return the titles of the panels of a dashboard with a query that has no number now."""
    return {
        panel["title"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
        if not any(map(_is_number, prometheus.query(filled(target["expr"], **variables))))
    }


def _is_number(sample: Document) -> bool:
    """Return whether a sample is a number, which a rate of nothing by nothing is not."""
    return not math.isnan(float(sample["value"][1]))


def _scrape_config(monitor: Document) -> Document:
    """Return what Prometheus' operator makes of a monitor with one endpoint, except for discovery."""
    spec, metadata = monitor["spec"], monitor["metadata"]
    (endpoint,) = spec.get("podMetricsEndpoints") or spec["endpoints"]
    assert endpoint.keys() == {"port", "path", "interval", "honorLabels"}
    return {
        "job_name": f"{metadata['namespace']}/{metadata['name']}",
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint["honorLabels"],
    }
