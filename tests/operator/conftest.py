"""A real API server for the operator's tests. Called by pytest only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import kubernetes
from infra.embedded import S3Endpoint
from infra.embedded.kubernetes import KubernetesServer
from tests.operator import rights
from tests.operator.api import Api, eventually
from tests.operator.kubelet import Kubelet
from tests.operator.running import RunningOperator
from tests.operator.scenes import make_volume, volume_ready


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


@pytest.fixture
def operator(kubeconfig: Path, namespace: str) -> Iterator[RunningOperator]:
    """Give an operator that serves the test's namespace."""
    with RunningOperator(kubeconfig, namespace) as running:
        yield running


@pytest.fixture
def volume(api: Api, namespace: str, bucket: S3Endpoint) -> str:
    """Give a CheckpointVolume of the test's own."""
    return make_volume(api, namespace, bucket)


@pytest.fixture
def ready_volume(api: Api, namespace: str, kubeconfig: Path, volume: str) -> str:
    """Give a volume that is ready: an operator has been here."""
    with RunningOperator(kubeconfig, namespace) as operator:
        eventually(lambda: volume_ready(api, namespace), within_s=60.0)
        operator.stop()
    return volume


def started(folder: Path) -> KubernetesServer:
    """Return a server to start with users for tests of RBAC, or skip with the reason."""
    gap = kubernetes.gap()
    if gap:
        pytest.skip(gap)
    return KubernetesServer(folder, {"nobody": (), "reader": ("readers",), rights.OPERATOR: ()})
