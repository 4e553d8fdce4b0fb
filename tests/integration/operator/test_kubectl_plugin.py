"""`kubectl sluicegate` with kubectl on a real API server; no operator runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.toolchain import go_programs
from infra.workspace import CHECKOUT
from sluicegate_operator.api.crds import SAVEPOINT
from tests.integration.operator.api import Api
from tests.integration.operator.operator_thread import spec_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kubectl(api: Api, tmp_path: Path) -> Run:
    """Return a function that runs kubectl, with the plugin on its PATH."""
    reason = go_programs.KUBECTL.missing_reason()
    if reason:
        pytest.skip(reason)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(go_programs.KUBECTL.binary)
    plugin = programs / "kubectl-sluicegate"
    plugin.write_text(
        f"#!{sys.executable}\nfrom sluicegate.cli.kubectl_plugin import main\nmain()\n"
    )
    plugin.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(api.server.kubeconfig())}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(programs / "kubectl"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


@pytest.fixture
def sluicegate(kubectl: Run, namespace: str) -> Callable[..., str]:
    """Return a function that runs `kubectl sluicegate`, which must succeed, and returns its output."""

    def run(*arguments: str) -> str:
        result = kubectl("sluicegate", "-n", namespace, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr

    return run


def test_status_and_why_tell_what_the_status_has(
    api: Api, namespace: str, sluicegate: Callable[..., str]
) -> None:
    api.create(namespace, "clicks", spec_of())
    refused = {
        "type": "Ready",
        "status": "False",
        "reason": "QuotaExceeded",
        "message": "exceeded quota: cpu",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    api.change_status(namespace, "clicks", {"phase": "Starting", "conditions": [refused]})
    assert "QuotaExceeded: exceeded quota: cpu" in sluicegate("status")
    assert "clicks is Starting" in sluicegate("why", "clicks")


def test_sparks_ui_that_is_off_is_refused_with_how_to_turn_it_on(
    api: Api, namespace: str, kubectl: Run
) -> None:
    api.create(namespace, "clicks", spec_of())
    refused = kubectl("sluicegate", "-n", namespace, "spark-ui", "clicks")
    assert refused.returncode == 1
    assert 'set spark.ui.enabled in spec.sparkConf to "true"' in refused.stderr


def test_a_console_that_is_missing_is_refused_with_how_to_install_it(
    kubectl: Run, namespace: str
) -> None:
    refused = kubectl("sluicegate", "-n", namespace, "ui")
    assert refused.returncode == 1
    assert "helm install console charts/console" in refused.stderr


def test_the_console_is_found_by_its_labels_and_a_jobs_page_is_named(
    api: Api, namespace: str, kubectl: Run
) -> None:
    labels = {
        "app.kubernetes.io/part-of": "sluicegate",
        "app.kubernetes.io/component": "console",
    }
    service = {  # without pods, to which kubectl would wait for a connection
        "metadata": {"name": "board", "labels": labels},
        "spec": {"ports": [{"name": "http", "port": 8321}]},
    }
    api.create_core(namespace, "services", service)
    shown = kubectl("sluicegate", "-n", namespace, "ui", "clicks")
    assert f"http://127.0.0.1:8321/find?job={namespace}/clicks" in shown.stderr
    assert "Service is defined without a selector" in shown.stderr


def test_actions_change_the_job_and_show_their_command(
    api: Api, namespace: str, sluicegate: Callable[..., str]
) -> None:
    api.create(namespace, "clicks", spec_of())
    shown = sluicegate("suspend", "clicks")
    assert f"$ kubectl --namespace={namespace} patch streamingjobs.sluicegate.dev clicks" in shown
    assert api.get(namespace, "clicks")["spec"]["suspend"] is True
    sluicegate("resume", "clicks")
    assert api.get(namespace, "clicks")["spec"]["suspend"] is False
    sluicegate("restart", "clicks")
    sluicegate("restart", "clicks")
    assert api.get(namespace, "clicks")["spec"]["restartNonce"] == 2


def test_a_savepoint_that_stops_the_job_suspends_it_first(
    api: Api, namespace: str, sluicegate: Callable[..., str]
) -> None:
    api.create(namespace, "clicks", spec_of())
    sluicegate("savepoint", "clicks", "--name=move", "--stop", "--timeout-s=0")
    assert api.get(namespace, "move", SAVEPOINT)["spec"]["stop"] is True
    assert api.get(namespace, "clicks")["spec"]["suspend"] is True


def test_an_unknown_job_is_kubectls_own_error(kubectl: Run, namespace: str) -> None:
    result = kubectl("sluicegate", "-n", namespace, "why", "absent")
    assert result.returncode == 1
    assert '"absent" not found' in result.stderr


def test_argo_cds_config_map_takes_the_health_checks(
    api: Api, namespace: str, kubectl: Run
) -> None:
    api.create_core(namespace, "configmaps", {"metadata": {"name": "argocd-cm"}})
    patch = CHECKOUT / "operators" / "argocd" / "health.yaml"
    result = kubectl("patch", "configmap", "argocd-cm", "-n", namespace, f"--patch-file={patch}")
    assert result.returncode == 0, result.stderr
    path = f"/api/v1/namespaces/{namespace}/configmaps/argocd-cm"
    data = api.request("GET", path)["data"]
    checks = {name.rpartition("_")[2] for name in data}
    assert checks == {"StreamingJob", "CheckpointVolume", "Savepoint"}
