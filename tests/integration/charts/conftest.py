"""Helm with vendored charts, and API servers to install into."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.toolchain import go_programs
from tests.integration.charts import strimzi_crds
from tests.integration.charts.release import Release
from tests.integration.charts.rendering import Charts, vendored_charts
from tests.integration.operator.api import Api
from tests.integration.operator.conftest import server_or_skip

_PROMETHEUS_KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


def _monitor(kind: str) -> dict[str, Any]:
    """Return a CRD of the Prometheus operator that accepts anything."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.monitoring.coreos.com",
            # without it the API server requires a review of the group
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stub for tests"},
        },
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Charts:
    """Return a copy of the charts with vendored dependencies; the checkout is not changed."""
    if reason := go_programs.tool_missing_reason("helm"):
        pytest.skip(reason)
    return vendored_charts(tmp_path_factory.mktemp("charts"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Yield an API server with our CRDs and those of Prometheus' and Strimzi's operators."""
    with server_or_skip(tmp_path_factory.mktemp("cluster")) as server:
        api = Api(server)
        api.install_crds()
        definitions = [yaml.safe_load(path.read_text("utf-8")) for path in strimzi_crds.crds()]
        for definition in (*map(_monitor, _PROMETHEUS_KINDS), *definitions):
            api.request(
                "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
            )
        yield api


@pytest.fixture
def bare_cluster(tmp_path: Path) -> Iterator[Api]:
    """Yield an API server without our CRDs, which a chart installs."""
    with server_or_skip(tmp_path) as server:
        yield Api(server)


@pytest.fixture
def release(charts: Charts, cluster: Api) -> Release:
    """Return a release in a namespace of its own; nothing is installed."""
    return Release(charts, cluster)
