"""Helm with vendored charts, and API servers to install into."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.chart_docs import helm
from infra.toolchain import go_programs
from tests.integration.charts.rendering import Charts
from tests.integration.operator.api import Api
from tests.integration.operator.conftest import server_or_skip

_MONITOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "servicemonitors.monitoring.coreos.com",
        # or the API server wants a review of the group
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of tests"},
    },
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Charts:
    """Give the charts with what they include; the checkout's own folders stay as they are."""
    if gap := go_programs.tool_missing_reason("helm"):
        pytest.skip(gap)
    folder = tmp_path_factory.mktemp("charts")
    made = shutil.ignore_patterns("charts", "crds")
    shutil.copytree(helm.FOLDER, folder, ignore=made, dirs_exist_ok=True)
    helm.vendor(folder)
    return Charts(folder)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give an API server with our kinds, and with those that a chart may ask for."""
    with server_or_skip(tmp_path_factory.mktemp("cluster")) as server:
        api = Api(server)
        api.install_crds()
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _MONITOR)
        yield api


@pytest.fixture
def bare_cluster(tmp_path: Path) -> Iterator[Api]:
    """Give an API server with no kind of ours: a chart brings them."""
    with server_or_skip(tmp_path) as server:
        yield Api(server)
