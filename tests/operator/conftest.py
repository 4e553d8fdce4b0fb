"""A real API server for the operator's tests. Called by pytest only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import kubernetes
from infra.embedded.kubernetes import KubernetesServer
from tests.operator import rights
from tests.operator.api import Api
from tests.operator.kubelet import Kubelet


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give one API server with our kinds to all tests: each works in a `namespace` of its own."""
    with started(tmp_path_factory.mktemp("kubernetes")) as server:
        found = Api(server)
        found.define()
        rights.grant_everywhere(found)
        yield found


@pytest.fixture
def own_api(tmp_path: Path) -> Iterator[Api]:
    """Give an API server, without our kinds, that a test may stop and kill."""
    with started(tmp_path) as server:
        yield Api(server)


@pytest.fixture
def namespace(api: Api) -> str:
    """Give a namespace that no other test uses."""
    return api.namespace()


@pytest.fixture
def kubeconfig(api: Api, namespace: str) -> Path:
    """Give the operator's way to the API server, with the rights of an install and no other."""
    rights.grant_lease(api, namespace)
    return api.server.kubeconfig(rights.OPERATOR)


@pytest.fixture
def kubelet(api: Api, namespace: str) -> Iterator[Kubelet]:
    """Give a scripted kubelet for the test's namespace, with one node named after it."""
    with Kubelet(api.server, nodes=[f"{namespace}-1"], namespace=namespace) as running:
        yield running


def started(folder: Path) -> KubernetesServer:
    """Return a server to start with users for tests of RBAC, or skip with the reason."""
    gap = kubernetes.gap()
    if gap:
        pytest.skip(gap)
    return KubernetesServer(folder, {"nobody": (), "reader": ("readers",), rights.OPERATOR: ()})
