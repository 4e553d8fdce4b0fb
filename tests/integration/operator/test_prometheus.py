"""The alerts and dashboards of the operator, in a real Prometheus that scrapes a running operator.

The operator serves jobs on a real API server; their drivers are scripted. Each fault is staged for real,
and fires its alert. tests/integration/charts/test_alerts_fire.py has what an alert must not fire at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from infra import manifests
from sluicegate_operator.reconcile.streaming_job import status
from tests.integration.charts.rendering import only_of_kind, vendored_charts
from tests.integration.charts.test_dashboards import DASHBOARDS
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import NO_NODE, RUNS, Behavior, ends
from tests.integration.operator.job_fixtures import REPORTS, job_when, running
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator, spec_of
from tests.integration.operator.rest_client import Object
from tests.integration.prometheus import (
    Prometheus,
    empty_panels,
    in_seconds,
    running_prometheus,
)

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]

VALUES: Final[dict[str, Any]] = {
    "watch": {"all": True},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "alerts": {
            "enabled": True,
            "restartsPerHour": 1,
            "stalledSeconds": 10,
            "notRunningMinutes": 50,
        },
    },
}

_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"

NO_DATA: Final = {"Failures by kind", "Restarts after failures", "Failed reconciliations"}
"""Panels that have no data before the first fault."""

RESTART: Final[Object] = {"strategy": "FixedDelay", "delaySeconds": 0.1, "attempts": 20}


@dataclass
class Scene:
    """An operator with its Prometheus, and a kubelet for the jobs of a namespace."""

    api: Api
    namespace: str
    kubelet: Kubelet
    operator: RunningOperator
    prometheus: Prometheus

    def create(
        self, job: str, *behaviors: Behavior, then: Behavior, restart: Object = RESTART
    ) -> None:
        """Create a job whose drivers behave like this."""
        self.kubelet.plan(job, *behaviors, then=then)
        self.api.create(self.namespace, job, spec_of(restart=restart))

    def fires(self, name: str, job: str) -> AbstractContextManager[None]:
        """See `Prometheus.fires`; the alert is about a job."""
        return self.prometheus.fires(name, namespace=self.namespace, job=job)


@pytest.fixture
def scene(
    api: Api,
    namespace: str,
    kubelet: Kubelet,
    operator: RunningOperator,
    volume: str,
    tmp_path: Path,
) -> Iterator[Scene]:
    """Yield a scene with a job whose driver reports epochs."""
    charts = vendored_charts(tmp_path / "charts")
    documents = charts.render(
        "operator", VALUES, release=manifests.NAME, namespace=manifests.NAMESPACE
    )
    monitor = only_of_kind(documents, "ServiceMonitor")
    with running_prometheus(tmp_path / "prometheus", monitor) as prometheus:
        prometheus.scrape(manifests.NAME, operator.port)
        prometheus.evaluate(in_seconds(only_of_kind(documents, "PrometheusRule")["spec"]))
        scene = Scene(api, namespace, kubelet, operator, prometheus)
        assert volume == "store"
        scene.create("clicks", then=REPORTS)
        job_when(api, namespace, running(1))
        yield scene


@contextmanager
def refused_status(api: Api, namespace: str, job: str) -> Iterator[None]:
    """Refuse all writes of a job's status, as an admission policy with a mistake does."""
    name = f"refuse-{namespace}"
    rule = {
        "apiGroups": ["sluicegate.dev"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["streamingjobs/status"],
    }
    expression = f"object.metadata.namespace != '{namespace}' || object.metadata.name != '{job}'"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    bodies = {
        "validatingadmissionpolicies": policy,
        "validatingadmissionpolicybindings": binding,
    }
    for plural, spec in bodies.items():
        api.request("POST", f"{_POLICIES}/{plural}", {"metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        for plural in bodies:
            api.request("DELETE", f"{_POLICIES}/{plural}/{name}")


def test_each_panel_of_a_running_operator_has_data(scene: Scene) -> None:
    dashboard = DASHBOARDS["sluicegate-operator.json"]
    eventually(lambda: empty_panels(scene.prometheus, dashboard) <= NO_DATA)


def test_each_alert_of_the_operator_fires_at_its_fault_and_not_before(
    scene: Scene, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SluicegateWatchErrors and SluicegateUnreadableObjects have rule tests only."""
    monkeypatch.setattr(status, "PROGRESS_S", 1.0)
    api, namespace, prometheus = scene.api, scene.namespace, scene.prometheus
    assert prometheus.fired() == set()

    with scene.fires("SluicegateJobStalled", "clicks"):
        scene.kubelet.disconnect(f"{namespace}-1")
    scene.kubelet.reconnect(f"{namespace}-1")

    with scene.fires("SluicegateJobFailed", "fails"):
        scene.create("fails", then=ends(1, "boom"), restart={"strategy": "None"})

    with scene.fires("SluicegateJobRestarts", "restarts"):
        failures = [ends(1, "boom", after_s=2.0)] * 4  # each is running when it is scraped
        scene.create("restarts", *failures, then=RUNS)
    job_when(api, namespace, running(5), "restarts")

    with scene.fires("SluicegateJobNotRunning", "waits"):
        scene.create("waits", then=NO_NODE)

    with (
        refused_status(api, namespace, "clicks"),  # while its progress is written there
        prometheus.fires("SluicegateReconcileErrors", kind="StreamingJob", error="ApiError"),
    ):
        pass

    with prometheus.fires("SluicegateNoLeader", namespace=manifests.NAMESPACE):
        scene.operator.stop()

    # by force, while no operator runs
    api.change(namespace, "clicks", {"metadata": {"finalizers": None}})
    api.delete(namespace, "clicks")
    with (
        RunningOperator(kubeconfig, namespace) as next_operator,
        prometheus.fires("SluicegateHeldPods", namespace=namespace),
    ):
        prometheus.scrape(manifests.NAME, next_operator.port)
    assert len(prometheus.fired()) == 7
    assert set(prometheus.rule_health().values()) == {"ok"}
