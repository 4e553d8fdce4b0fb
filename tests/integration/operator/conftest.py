"""Fixtures of the operator's integration tests: a real API server, kubelets, operators and volumes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint
from infra.local_services.kube_apiserver import KubernetesServer
from infra.toolchain import go_programs
from sluicegate_operator.controllers import observer
from sluicegate_operator.reconcile import checkpoint_volume, context
from sluicegate_operator.reconcile.streaming_job import context as job_context
from sluicegate_operator.reconcile.streaming_job import driver_lifecycle
from tests.integration.operator import rbac
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.job_fixtures import make_volume, volume_ready
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.operator_thread import RunningOperator


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Start one API server with our CRDs for all tests; each test works in a `namespace` of its own."""
    with server_or_skip(tmp_path_factory.mktemp("kubernetes")) as server:
        api = Api(server)
        api.install_crds()
        rbac.grant_everywhere(api)
        yield api


@pytest.fixture
def own_api(tmp_path: Path) -> Iterator[Api]:
    """Start an API server without our CRDs that a test may stop and kill."""
    with server_or_skip(tmp_path) as server:
        yield Api(server)


@pytest.fixture
def namespace(api: Api) -> str:
    """Create a namespace that no other test uses."""
    return api.namespace()


@pytest.fixture
def kubeconfig(api: Api, namespace: str) -> Path:
    """Return a kubeconfig with the permissions of an installed operator and no others."""
    rbac.grant_lease(api, namespace)
    return api.server.kubeconfig(rbac.OPERATOR)


@pytest.fixture
def kubelet(api: Api, namespace: str) -> Iterator[Kubelet]:
    """Run a scripted kubelet for the test's namespace, with one node named after it."""
    with Kubelet(api.server, nodes=[f"{namespace}-1"], namespace=namespace) as running:
        yield running


@pytest.fixture
def operator(kubeconfig: Path, namespace: str) -> Iterator[RunningOperator]:
    """Run an operator that serves the test's namespace."""
    with RunningOperator(kubeconfig, namespace) as running:
        yield running


@pytest.fixture
def volume(api: Api, namespace: str, bucket: S3Endpoint) -> str:
    """Create a CheckpointVolume for the test."""
    return make_volume(api, namespace, bucket)


@pytest.fixture
def ready_volume(api: Api, namespace: str, kubeconfig: Path, volume: str) -> str:
    """Create a CheckpointVolume and wait until an operator has reported it ready."""
    with RunningOperator(kubeconfig, namespace) as operator:
        eventually(lambda: volume_ready(api, namespace), within_s=60.0)
        operator.stop()
    return volume


@pytest.fixture
def short_delete_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete a volume's data 3 s after the volume was deleted, not 30; unit tests have the 30 s."""
    monkeypatch.setattr(checkpoint_volume, "DELETE_DELAY_S", 3.0)


@pytest.fixture
def short_request_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Request an absent pod again, and give its request up, in a fifth of the time."""
    monkeypatch.setattr(context, "_FIRST_BACKOFF_S", context._FIRST_BACKOFF_S / 5)
    for module in (observer, job_context, driver_lifecycle):
        for name in ("RETRY_REQUEST_S", "REQUEST_DEADLINE_S"):
            monkeypatch.setattr(module, name, getattr(module, name) / 5)


def server_or_skip(folder: Path) -> KubernetesServer:
    """Return a server to start, with users for tests of RBAC, or skip with the reason."""
    reason = go_programs.api_server_missing_reason()
    if reason:
        pytest.skip(reason)
    return KubernetesServer(folder, {"nobody": (), "reader": ("readers",), rbac.OPERATOR: ()})
