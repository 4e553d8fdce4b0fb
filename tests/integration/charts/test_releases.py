"""Releases on a real API server: what an upgrade keeps, and what an uninstall leaves.

There is no kubelet and no controller: pods stay pending, so hooks are left out, and none is waited for.
"""

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.chart_docs import helm
from tests.integration.charts.rendering import VALUES, Charts, Document, the
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.rest_client import ApiRejection, Object

pytestmark = pytest.mark.integration

CRDS_OFF: dict[str, Any] = {"operator": {"crds": {"install": False}}}


class Release:
    """A release named after its namespace."""

    def __init__(self, charts: Charts, api: Api) -> None:
        self.api, self.charts, self.namespace = api, charts, api.namespace()
        self.config = api.server.kubeconfig()

    def upgrade(
        self, chart: str, values: dict[str, Any] | None = None, file: Path | None = None
    ) -> None:
        """Install or upgrade."""
        said = self.charts.arguments(chart, values, file)
        where = ["--namespace", self.namespace, "--install", "--no-hooks"]
        helm.run(["upgrade", self.namespace, *said, *where], kubeconfig=self.config)

    def uninstall(self) -> None:
        where = ["--namespace", self.namespace, "--no-hooks"]
        helm.run(["uninstall", self.namespace, *where], kubeconfig=self.config)

    def get(self, plural: str, name: str, api: str = "/api/v1") -> Object:
        return self.api.request("GET", f"{api}/namespaces/{self.namespace}/{plural}/{name}")

    def secret(self, ending: str) -> dict[str, str]:
        found = self.get("secrets", f"{self.namespace}-{ending}")["data"]
        return {key: base64.b64decode(text).decode() for key, text in found.items()}

    def names(self, plural: str, api: str = "/api/v1") -> set[str]:
        found = self.api.request("GET", f"{api}/namespaces/{self.namespace}/{plural}")
        return {item["metadata"]["name"] for item in found["items"]}


@pytest.fixture
def release(charts: Charts, cluster: Api) -> Release:
    return Release(charts, cluster)


# --- upgrades -------------------------------------------------------------------------------------


def test_passwords_keys_and_certificates_survive_an_upgrade(release: Release) -> None:
    endings = ("mysql", "object-store", "kafka-scram", "kafka-tls", "kafka-client", "mysql-tls")
    file = VALUES["everything on"]
    release.upgrade("sluicegate", CRDS_OFF, file)
    before = {ending: release.secret(ending) for ending in endings}
    release.upgrade("sluicegate", CRDS_OFF | {"commonLabels": {"a": "b"}}, file)
    assert {ending: release.secret(ending) for ending in endings} == before
    assert all(len(text) >= 20 for found in before.values() for text in found.values())


def test_what_is_installed_again_has_the_passwords_that_are_in_the_volumes(
    release: Release,
) -> None:
    endings = ("mysql", "object-store", "kafka-scram")
    file = VALUES["everything on"]
    release.upgrade("sluicegate", CRDS_OFF, file)
    before = {ending: release.secret(ending) for ending in endings}
    release.uninstall()
    release.upgrade("sluicegate", CRDS_OFF, file)
    assert {ending: release.secret(ending) for ending in endings} == before


def test_an_upgrade_starts_no_pod_again(release: Release) -> None:
    """Nothing that is drawn anew, or that time changes, is in a template."""
    file = VALUES["everything on"]
    release.upgrade("sluicegate", CRDS_OFF, file)
    sets = ("kafka", "mysql", "object-store")

    def generations() -> list[int]:
        found = [
            release.get("statefulsets", f"{release.namespace}-{n}", "/apis/apps/v1") for n in sets
        ]
        return [each["metadata"]["generation"] for each in found]

    before = generations()
    release.upgrade("sluicegate", CRDS_OFF, file)
    assert generations() == before


def test_a_user_that_is_added_gets_a_password_and_others_keep_theirs(release: Release) -> None:
    release.upgrade("kafka", {"scram": {"enabled": True, "users": ["a"]}})
    before = release.secret("kafka-scram")
    release.upgrade("kafka", {"scram": {"enabled": True, "users": ["a", "b"]}})
    after = release.secret("kafka-scram")
    assert set(after) == {"broker", "a", "b"}
    assert {key: after[key] for key in before} == before


def test_the_url_of_mysql_has_the_password_that_the_server_was_made_with(release: Release) -> None:
    release.upgrade("mysql")
    found = release.secret("mysql")
    host = f"{release.namespace}-mysql.{release.namespace}.svc"
    assert found["url"] == f"mysql://sluicegate:{found['password']}@{host}:3306/sluicegate"


def test_another_number_of_kafkas_nodes_is_refused_with_the_way_out(release: Release) -> None:
    release.upgrade("kafka")
    with pytest.raises(helm.HelmError, match="1 nodes are installed but replicas is 3"):
        release.upgrade("kafka", {"replicas": 3})


def test_settings_of_a_server_start_its_pods_anew(release: Release) -> None:
    def mark() -> str:
        found = release.get("statefulsets", f"{release.namespace}-mysql", "/apis/apps/v1")
        text = found["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        assert isinstance(text, str)
        return text

    release.upgrade("mysql")
    before = mark()
    release.upgrade("mysql", {"maxConnections": 300})
    assert mark() != before


# --- an uninstall ---------------------------------------------------------------------------------


def test_an_uninstall_leaves_the_kinds_claims_and_their_passwords_and_nothing_else(
    charts: Charts, bare_cluster: Api
) -> None:
    release = Release(charts, bare_cluster)
    release.upgrade("sluicegate", file=VALUES["everything on"])
    # as the StatefulSet's controller does it
    made = release.get("statefulsets", f"{release.namespace}-kafka", "/apis/apps/v1")
    claim = made["spec"]["volumeClaimTemplates"][0]
    named = {**claim["metadata"], "name": f"data-{release.namespace}-kafka-0"}
    bare_cluster.create_core(release.namespace, "persistentvolumeclaims", {**claim, "metadata": named})
    release.uninstall()

    left = bare_cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert {item["spec"]["names"]["kind"] for item in left["items"]} == {
        "StreamingJob",
        "CheckpointVolume",
        "Savepoint",
    }
    assert release.names("persistentvolumeclaims") == {named["name"]}
    passwords = {f"{release.namespace}-{part}" for part in ("kafka-scram", "mysql", "object-store")}
    assert release.names("secrets") == passwords
    core = ("configmaps", "services", "pods")
    assert {plural: release.names(plural) for plural in core} == {plural: set() for plural in core}
    assert release.names("serviceaccounts") == {"default"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert release.names("roles", rbac) | release.names("rolebindings", rbac) == set()
    for plural in ("clusterroles", "clusterrolebindings"):
        found = bare_cluster.request("GET", f"{rbac}/{plural}")["items"]
        assert not [o for o in found if o["metadata"]["name"].startswith(release.namespace)]
    assert release.names("statefulsets", "/apis/apps/v1") == set()
    assert release.names("networkpolicies", "/apis/networking.k8s.io/v1") == set()


def test_a_second_install_takes_up_the_kinds_that_the_first_left(
    charts: Charts, bare_cluster: Api
) -> None:
    first = Release(charts, bare_cluster)
    first.upgrade("operator")
    first.uninstall()
    first.upgrade("operator")
    found = bare_cluster.request(
        "GET",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/streamingjobs.sluicegate.dev",
    )
    assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


# --- the Jobs that make the volume, and take it away ----------------------------------------------


class VolumeJob:
    """What files/volume.py does as the account of its Job, with that account's rights and no other."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release, self.folder = release, folder
        release.upgrade("sluicegate", CRDS_OFF)
        account = f"{release.namespace}-volume"
        self.path = f"/api/v1/namespaces/{release.namespace}/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = release.api.request("POST", self.path, asked)["status"]["token"]
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_bytes(release.api.server.certificate.read_bytes())

    def run(
        self, verb: str, values: dict[str, Any] | None = None, timeout_s: int = 10
    ) -> subprocess.CompletedProcess[str]:
        """Run the Job's own command with the Job's own variables."""
        job = self._job(verb, values)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        server = self.release.api.server
        where = {
            "KUBERNETES_SERVICE_HOST": server.host,
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        mine = {"NAMESPACE": self.release.namespace, "ACCOUNT": str(self.folder)}
        script = self.release.charts.folder / "sluicegate" / "files" / "volume.py"
        return subprocess.run(
            [sys.executable, str(script), verb],
            env=os.environ | given | where | mine | {"TIMEOUT_S": str(timeout_s)},
            capture_output=True,
            text=True,
            check=False,
        )

    def _job(self, verb: str, values: dict[str, Any] | None) -> Document:
        name = self.release.namespace
        found = self.release.charts.render("sluicegate", values, release=name, namespace=name)
        return the(found, "Job", f"{name}-{verb}-volume")

    def volume(self) -> Object:
        return self.release.get("checkpointvolumes", "checkpoints", "/apis/sluicegate.dev/v1alpha1")


@pytest.fixture
def volume_job(release: Release, tmp_path: Path) -> VolumeJob:
    return VolumeJob(release, tmp_path)


def test_the_volume_is_made_with_the_rights_of_its_job(volume_job: VolumeJob) -> None:
    done = volume_job.run("make")
    assert done.returncode == 0, done.stderr
    name = volume_job.release.namespace
    spec = volume_job.volume()["spec"]
    assert spec["endpoint"] == f"http://{name}-object-store.{name}.svc:7070"
    assert spec["credentialsSecret"] == f"{name}-object-store"


def test_an_upgrade_changes_the_volume_and_a_bucket_cannot_change(volume_job: VolumeJob) -> None:
    assert volume_job.run("make").returncode == 0
    assert volume_job.run("make", {"checkpointVolume": {"quotaBytes": 20000000000}}).returncode == 0
    assert volume_job.volume()["spec"]["quotaBytes"] == 20000000000
    done = volume_job.run("make", {"checkpointVolume": {"bucket": "other"}})
    assert done.returncode == 1
    assert "bucket and prefix cannot change" in done.stderr


def test_the_volume_goes_before_its_operator_does(volume_job: VolumeJob) -> None:
    volume_job.run("make")
    done = volume_job.run("remove")
    assert done.returncode == 0, done.stderr
    with pytest.raises(ApiRejection):
        volume_job.volume()


def test_an_uninstall_stops_while_jobs_are_left_and_names_them(volume_job: VolumeJob) -> None:
    volume_job.run("make")
    spec = {"image": "none", "mainModule": "m", "checkpoint": {"volume": "checkpoints"}}
    volume_job.release.api.create(volume_job.release.namespace, "orders", spec)
    done = volume_job.run("remove")
    assert done.returncode == 1
    assert "streamingjobs" in done.stderr
    assert "orders" in done.stderr
    assert volume_job.volume()["metadata"]["name"] == "checkpoints"


def test_a_volume_that_the_operator_does_not_let_go_is_waited_for_and_then_told(
    volume_job: VolumeJob,
) -> None:
    volume_job.run("make")
    held = {"metadata": {"finalizers": ["sluicegate.dev/volume"]}}
    where = (
        f"/apis/sluicegate.dev/v1alpha1/namespaces/{volume_job.release.namespace}/checkpointvolumes"
    )
    volume_job.release.api.request(
        "PATCH", f"{where}/checkpoints", held, content="application/merge-patch+json"
    )
    done = volume_job.run("remove", timeout_s=3)
    assert done.returncode == 1
    assert "waits for the operator" in done.stderr


def test_the_kind_is_waited_for_when_the_release_has_just_defined_it(
    charts: Charts, bare_cluster: Api, tmp_path: Path
) -> None:
    release = Release(charts, bare_cluster)
    job = VolumeJob(release, tmp_path)
    done = job.run("make", timeout_s=1)
    assert done.returncode == 1
    assert "not served yet" in done.stdout
    bare_cluster.install_crds()
    eventually(lambda: job.run("make", timeout_s=20).returncode == 0)
