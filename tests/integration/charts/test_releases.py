"""Releases on a real API server: what an upgrade retains, and what an uninstall leaves.

There is no kubelet and no controller, so pods stay pending. Hooks are disabled, except the Jobs that create
Secrets: tests run these with their permissions.
"""

import re
from typing import Any

import pytest

from infra.chart_docs import helm
from infra.images.catalog import VERSION
from tests.integration.charts.hook_jobs import job_controller, run_hook_jobs
from tests.integration.charts.release import CRDS_OFF, Release
from tests.integration.charts.rendering import VALUES, Charts, Document
from tests.integration.operator.api import Api
from tests.integration.operator.rest_client import MERGE

pytestmark = pytest.mark.integration


def test_passwords_keys_and_certificates_survive_an_upgrade(release: Release) -> None:
    suffixes = (
        *("mysql", "mysql-admin", "mysql-tls"),
        *("object-store", "object-store-user-checkpoints"),
        *("kafka-scram", "kafka-tls", "kafka-client"),
    )
    file = VALUES["everything on"]
    release.upgrade("sluicegate", CRDS_OFF, file)
    before = {suffix: release.secret(suffix) for suffix in suffixes}
    release.upgrade("sluicegate", CRDS_OFF | {"commonLabels": {"a": "b"}}, file)
    assert {suffix: release.secret(suffix) for suffix in suffixes} == before
    assert all(len(text) >= 20 for secret in before.values() for text in secret.values())


def test_a_second_install_has_the_passwords_of_the_retained_volumes(
    release: Release,
) -> None:
    suffixes = ("mysql", "mysql-admin", "object-store", "kafka-scram")
    file = VALUES["everything on"]
    release.upgrade("sluicegate", CRDS_OFF, file)
    before = {suffix: release.secret(suffix) for suffix in suffixes}
    release.uninstall()
    release.upgrade("sluicegate", CRDS_OFF, file)
    assert {suffix: release.secret(suffix) for suffix in suffixes} == before


def test_an_upgrade_restarts_no_pod(release: Release) -> None:
    """No template contains a value that is generated again or depends on the time."""
    file = VALUES["everything on"]
    release.upgrade("sluicegate", CRDS_OFF, file)
    parts = ("kafka", "mysql", "object-store")

    def generations() -> list[int]:
        stateful_sets = [
            release.get("statefulsets", f"{release.namespace}-{part}", "/apis/apps/v1")
            for part in parts
        ]
        return [stateful_set["metadata"]["generation"] for stateful_set in stateful_sets]

    before = generations()
    release.upgrade("sluicegate", CRDS_OFF, file)
    assert generations() == before


@pytest.mark.parametrize(("installed", "other"), [(3, 1), (1, 3)])
def test_an_upgrade_with_another_number_of_kafka_nodes_touches_no_pod(
    release: Release, installed: int, other: int
) -> None:
    """Nodes that are removed or added at once would cost the quorum."""
    release.upgrade("kafka", {"replicas": installed})
    with pytest.raises(helm.HelmError, match="volumeClaimTemplates"):
        release.upgrade("kafka", {"replicas": other})
    kafka = release.get("statefulsets", f"{release.namespace}-kafka", "/apis/apps/v1")
    assert (kafka["spec"]["replicas"], kafka["metadata"]["generation"]) == (installed, 1)
    # what a node reads when it restarts
    (config,) = (
        volume["configMap"]["name"]
        for volume in kafka["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "config"
    )
    settings = release.get("configmaps", config)["data"]["server.properties"]
    (voters,) = re.findall("(?m)^controller.quorum.voters=(.*)$", settings)
    assert len(voters.split(",")) == installed


def test_one_command_installs_and_upgrades_with_generated_secrets(release: Release) -> None:
    """Helm itself runs the hooks; afterwards nothing of them is left, their rights least of all."""
    values = {"tls": {"enabled": True}}
    arguments = release.charts.arguments("mysql", values)
    command = ["upgrade", release.namespace, *arguments, "--namespace", release.namespace]
    passwords = []
    with job_controller(release.api, release.namespace) as ran:
        for _ in range(2):
            helm.run([*command, "--install", "--timeout=60s"], kubeconfig=release.config)
            passwords.append(release.secret("mysql"))
    assert ran == 2 * [f"{release.namespace}-mysql-secrets"]
    assert passwords[0] == passwords[1]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert release.names("roles", rbac) | release.names("rolebindings", rbac) == set()
    assert release.names("jobs", "/apis/batch/v1") == set()
    assert release.names("serviceaccounts") == {"default", f"{release.namespace}-mysql"}
    policies = release.names("networkpolicies", "/apis/networking.k8s.io/v1")
    assert policies == {f"{release.namespace}-mysql"}


def test_a_secret_of_a_release_that_generated_it_in_a_template_is_adopted(release: Release) -> None:
    """The upgrade, which no longer renders it, would have deleted it."""
    name = f"{release.namespace}-mysql"
    secret: Document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    secret["data"] = {"password": "b2xk"}
    given = {"auth": {"existingSecret": "none"}, "extraObjects": [secret]}
    release.upgrade("mysql", given)
    release.upgrade("mysql")
    assert release.secret("mysql")["password"] == "old"
    assert release.secret("mysql")["url"].startswith("mysql://sluicegate:old@")


def test_kafkas_clients_get_the_password_and_the_authority_of_your_secrets(
    release: Release,
) -> None:
    def create(name: str, data: dict[str, str]) -> None:
        body = {"metadata": {"name": name}, "stringData": data}
        release.api.create_core(release.namespace, "secrets", body)

    create("logins", {"broker": "b", "sluicegate": "s3cret"})
    create("certificate", {"tls.crt": "c", "tls.key": "k", "ca.crt": "authority"})
    scram = {"enabled": True, "existingSecret": "logins"}
    release.upgrade(
        "kafka", {"scram": scram, "tls": {"enabled": True, "existingSecret": "certificate"}}
    )
    client = release.secret("kafka-client")
    assert client["ca.crt"] == "authority"
    assert "sasl.password=s3cret\n" in client["kafka.properties"]


def test_a_job_without_its_secret_fails_and_names_it(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    scram = {"enabled": True, "existingSecret": "logins"}
    documents = release.render("kafka", {"scram": scram, "tls": {"enabled": True}})
    with pytest.raises(AssertionError, match="kafka-secrets"):
        run_hook_jobs(release.api, documents, timeout_s=1.0)
    assert "the Secret logins lacks sluicegate" in caplog.text


def test_a_new_user_gets_a_password_and_others_keep_theirs(release: Release) -> None:
    tls = {"tls": {"enabled": True}}
    release.upgrade("kafka", {"scram": {"enabled": True, "users": ["a"]}, **tls})
    before = release.secret("kafka-scram")
    release.upgrade("kafka", {"scram": {"enabled": True, "users": ["a", "b"]}, **tls})
    after = release.secret("kafka-scram")
    assert set(after) == {"broker", "a", "b"}
    assert {key: after[key] for key in before} == before


def test_the_url_of_mysql_has_the_password_of_the_server(release: Release) -> None:
    release.upgrade("mysql")
    secret = release.secret("mysql")
    host = f"{release.namespace}-mysql.{release.namespace}.svc"
    assert secret["url"] == f"mysql://sluicegate:{secret['password']}@{host}:3306/sluicegate"


def test_an_upgrade_moves_the_password_of_root_out_of_the_secret_of_jobs(release: Release) -> None:
    """A release with both in one Secret; jobs read a URL of it."""
    release.upgrade("mysql")
    name = f"{release.namespace}-mysql"
    root = release.secret("mysql-admin")["root-password"]
    secrets = f"/api/v1/namespaces/{release.namespace}/secrets"
    release.api.request("DELETE", f"{secrets}/{name}-admin")
    earlier = {"stringData": {"root-password": "of-old"}}
    release.api.request("PATCH", f"{secrets}/{name}", earlier, content=MERGE)
    release.upgrade("mysql")
    assert root != "of-old"
    assert release.secret("mysql-admin")["root-password"] == "of-old"


def test_changed_settings_of_a_server_restart_its_pods(release: Release) -> None:
    def config_checksum() -> str:
        stateful_set = release.get("statefulsets", f"{release.namespace}-mysql", "/apis/apps/v1")
        checksum = stateful_set["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        assert isinstance(checksum, str)
        return checksum

    release.upgrade("mysql")
    before = config_checksum()
    release.upgrade("mysql", {"maxConnections": 300})
    assert config_checksum() != before


@pytest.mark.parametrize("watch", [{"all": True}, {"namespaces": ["default"]}])
def test_a_second_operator_for_the_same_jobs_is_refused(
    charts: Charts, cluster: Api, watch: dict[str, Any]
) -> None:
    """Each has a lease of its own, so both would start the drivers of each job."""
    values = {"watch": watch, "crds": {"install": False}}
    first, second = Release(charts, cluster), Release(charts, cluster)
    first.upgrade("operator", values)
    try:
        with pytest.raises(helm.HelmError, match="sluicegate-operator-jobs"):
            second.upgrade("operator", values)
    finally:
        first.uninstall()


# --- an uninstall ---------------------------------------------------------------------------------


def test_an_uninstall_leaves_only_crds_claims_and_generated_secrets(
    charts: Charts, bare_cluster: Api
) -> None:
    release = Release(charts, bare_cluster)
    release.upgrade("sluicegate", file=VALUES["everything on"])
    # as the StatefulSet's controller does it
    stateful_set = release.get("statefulsets", f"{release.namespace}-kafka", "/apis/apps/v1")
    claim = stateful_set["spec"]["volumeClaimTemplates"][0]
    metadata = {**claim["metadata"], "name": f"data-{release.namespace}-kafka-0"}
    bare_cluster.create_core(
        release.namespace, "persistentvolumeclaims", {**claim, "metadata": metadata}
    )
    release.uninstall()

    crds = bare_cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert {item["spec"]["names"]["kind"] for item in crds["items"]} == {
        "StreamingJob",
        "CheckpointVolume",
        "Savepoint",
    }
    assert release.names("persistentvolumeclaims") == {metadata["name"]}
    servers = ("kafka", "mysql", "object-store")
    certificates = {f"{part}-{suffix}" for part in servers for suffix in ("tls", "tls-ca")}
    generated = {
        *certificates,
        "kafka-scram",
        "kafka-client",
        "mysql",
        "mysql-admin",
        "object-store",
        "object-store-user-backups",
        "object-store-user-checkpoints",
    }
    assert release.names("secrets") == {f"{release.namespace}-{name}" for name in generated}
    core = ("configmaps", "services", "pods")
    assert {plural: release.names(plural) for plural in core} == {plural: set() for plural in core}
    assert release.names("serviceaccounts") == {"default"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert release.names("roles", rbac) | release.names("rolebindings", rbac) == set()
    for plural in ("clusterroles", "clusterrolebindings"):
        roles = bare_cluster.request("GET", f"{rbac}/{plural}")["items"]
        assert not [
            role
            for role in roles
            if release.namespace in role["metadata"]["name"]
            or "sluicegate" in role["metadata"]["name"]
        ]
    assert release.names("statefulsets", "/apis/apps/v1") == set()
    assert release.names("networkpolicies", "/apis/networking.k8s.io/v1") == set()


CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/streamingjobs.sluicegate.dev"


def test_crds_are_created_upgraded_and_never_downgraded(charts: Charts, bare_cluster: Api) -> None:
    release = Release(charts, bare_cluster)

    def version() -> str:
        annotations = bare_cluster.request("GET", CRD)["metadata"]["annotations"]
        return str(annotations["sluicegate.dev/version"])

    def edit(text: str) -> None:
        body = {"metadata": {"annotations": {"sluicegate.dev/version": text}}}
        bare_cluster.request("PATCH", CRD, body, content="application/merge-patch+json")

    release.upgrade("operator", {"watch": {"all": True}})
    assert version() == VERSION
    edit("0.0.9")
    release.upgrade("operator", {"watch": {"all": True}})
    assert version() == VERSION
    edit("99.10.0")
    release.upgrade("operator", {"watch": {"all": True}})
    assert version() == "99.10.0"
    helm.run(
        ["rollback", release.namespace, "1", "--namespace", release.namespace, "--no-hooks"],
        kubeconfig=release.config,
    )
    assert version() == "99.10.0"
    release.uninstall()
    assert version() == "99.10.0"
