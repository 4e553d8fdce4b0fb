"""The Jobs that create and remove the CheckpointVolume of a release, with their own permissions."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.charts.release import CRDS_OFF, Release
from tests.integration.charts.rendering import Charts, Document, only_of_kind
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.rest_client import ApiRejection, Object

pytestmark = pytest.mark.integration


class VolumeJob:
    """Runs files/volume.py with the service account of its Job and no other permissions."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release, self.folder = release, folder
        release.upgrade("sluicegate", CRDS_OFF)
        account = f"{release.namespace}-volume"
        self.path = f"/api/v1/namespaces/{release.namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = release.api.request("POST", self.path, request)["status"]["token"]
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_bytes(release.api.server.certificate.read_bytes())

    def run(
        self, verb: str, values: dict[str, Any] | None = None, timeout_s: int = 10
    ) -> subprocess.CompletedProcess[str]:
        """Run the Job's command with the Job's environment variables."""
        job = self._job(verb, values)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {
            variable["name"]: variable["value"]
            for variable in container["env"]
            if "value" in variable
        }
        server = self.release.api.server
        address = {
            "KUBERNETES_SERVICE_HOST": server.host,
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        settings = {"NAMESPACE": self.release.namespace, "ACCOUNT": str(self.folder)}
        script = self.release.charts.folder / "sluicegate" / "files" / "volume.py"
        return subprocess.run(
            [sys.executable, str(script), verb],
            env=os.environ | variables | address | settings | {"TIMEOUT_S": str(timeout_s)},
            capture_output=True,
            text=True,
            check=False,
        )

    def _job(self, verb: str, values: dict[str, Any] | None) -> Document:
        name = self.release.namespace
        documents = self.release.render("sluicegate", values)
        return only_of_kind(documents, "Job", f"{name}-{verb}-volume")

    def volume(self) -> Object:
        return self.release.get("checkpointvolumes", "checkpoints", "/apis/sluicegate.dev/v1alpha1")


@pytest.fixture
def volume_job(release: Release, tmp_path: Path) -> VolumeJob:
    return VolumeJob(release, tmp_path)


def test_the_volume_is_created_with_the_permissions_of_its_job(volume_job: VolumeJob) -> None:
    result = volume_job.run("make")
    assert result.returncode == 0, result.stderr
    name = volume_job.release.namespace
    spec = volume_job.volume()["spec"]
    assert spec["endpoint"] == f"http://{name}-object-store.{name}.svc:7070"
    assert spec["credentialsSecret"] == f"{name}-object-store-user-checkpoints"


def test_an_upgrade_changes_the_volume_but_never_its_bucket(volume_job: VolumeJob) -> None:
    assert volume_job.run("make").returncode == 0
    assert volume_job.run("make", {"checkpointVolume": {"quotaBytes": 20000000000}}).returncode == 0
    assert volume_job.volume()["spec"]["quotaBytes"] == 20000000000
    users = {"users": [{"name": "checkpoints", "bucket": "other"}]}
    values = {"checkpointVolume": {"bucket": "other"}, "object-store": users}
    result = volume_job.run("make", values)
    assert result.returncode == 1
    assert "bucket and prefix cannot change" in result.stderr


def test_the_volume_is_removed_before_its_operator(volume_job: VolumeJob) -> None:
    volume_job.run("make")
    result = volume_job.run("remove")
    assert result.returncode == 0, result.stderr
    with pytest.raises(ApiRejection):
        volume_job.volume()


def test_an_uninstall_fails_while_jobs_remain_and_names_them(volume_job: VolumeJob) -> None:
    volume_job.run("make")
    spec = {"image": "none", "mainModule": "m", "checkpoint": {"volume": "checkpoints"}}
    volume_job.release.api.create(volume_job.release.namespace, "orders", spec)
    result = volume_job.run("remove")
    assert result.returncode == 1
    assert "streamingjobs" in result.stderr
    assert "orders" in result.stderr
    assert volume_job.volume()["metadata"]["name"] == "checkpoints"


def test_a_volume_that_the_operator_does_not_release_is_reported_after_a_timeout(
    volume_job: VolumeJob,
) -> None:
    volume_job.run("make")
    finalizer = {"metadata": {"finalizers": ["sluicegate.dev/volume"]}}
    path = (
        f"/apis/sluicegate.dev/v1alpha1/namespaces/{volume_job.release.namespace}/checkpointvolumes"
    )
    volume_job.release.api.request(
        "PATCH", f"{path}/checkpoints", finalizer, content="application/merge-patch+json"
    )
    result = volume_job.run("remove", timeout_s=3)
    assert result.returncode == 1
    assert "waits for the operator" in result.stderr


def test_the_job_waits_until_the_crd_of_the_release_is_served(
    charts: Charts, bare_cluster: Api, tmp_path: Path
) -> None:
    release = Release(charts, bare_cluster)
    job = VolumeJob(release, tmp_path)
    result = job.run("make", timeout_s=1)
    assert result.returncode == 1
    assert "not served yet" in result.stdout
    bare_cluster.install_crds()
    eventually(lambda: job.run("make", timeout_s=20).returncode == 0)
