"""The manifests of the umbrella chart: names that others rely on, external servers, safe defaults."""

import json
import re
from typing import Any

import pytest

from infra.images.catalog import VERSION
from sluicegate_operator.hooks.secrets import SecretSpec, spec_of
from tests.integration.charts.rendering import (
    PARTS,
    VALUES,
    Charts,
    Document,
    hooks_of,
    of_kind,
    only_of_kind,
    pods,
    selects,
)

IMAGES = {"kafka", "mysql", "store", "collector", "operator"}


@pytest.fixture(scope="module", params=VALUES)
def platform(request: pytest.FixtureRequest, charts: Charts) -> list[Document]:
    return charts.render("sluicegate", file=VALUES[request.param])


@pytest.fixture(scope="module")
def default(charts: Charts) -> list[Document]:
    return charts.render("sluicegate")


@pytest.fixture(scope="module")
def external(charts: Charts) -> list[Document]:
    return charts.render("sluicegate", file=VALUES["external"])


# --- names that others rely on --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("sluicegate-kafka", {9092}),
        ("sluicegate-mysql", {3306}),
        ("sluicegate-object-store", {7070}),
        ("sluicegate-collector", {4317, 4318, 13133}),
    ],
)
def test_a_service_has_the_name_and_ports_that_jobs_expect(
    default: list[Document], name: str, ports: set[int]
) -> None:
    service_ports = only_of_kind(default, "Service", name)["spec"]["ports"]
    assert {port["port"] for port in service_ports} == ports


def test_secrets_have_the_keys_that_jobs_and_volumes_read(default: list[Document]) -> None:
    keys = {name: {*spec.random, *spec.text} for name, spec in generated(default).items()}
    assert keys == {
        "sluicegate-mysql": {"password", "url"},
        "sluicegate-mysql-admin": {"root-password"},
        "sluicegate-object-store": {"accessKeyId", "secretAccessKey"},
        "sluicegate-object-store-user-checkpoints": {"accessKeyId", "secretAccessKey"},
    }


def generated(documents: list[Document]) -> dict[str, SecretSpec]:
    """Return the Secrets that the Jobs of a release create."""
    specs = {}
    for job in of_kind(documents, "Job"):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        for values in json.loads(variables.get("SECRETS", "[]")):
            specs[values["name"]] = spec_of(values)
    return specs


def test_security_h10_only_the_store_and_its_set_up_have_roots_keys(
    default: list[Document],
) -> None:
    root = "sluicegate-object-store"
    assert volume_spec(default)["credentialsSecret"] == f"{root}-user-checkpoints"
    holders = {
        pod["metadata"]["name"]
        for pod in pods(default)
        if f'"{root}"'
        in json.dumps(
            [
                container.get("env", [])
                for kind in ("containers", "initContainers")
                for container in pod["spec"].get(kind, [])
            ]
        )
    }
    assert holders == {f"{root}-pod", f"{root}-buckets-pod", f"{root}-test"}


def test_security_h10_a_tenants_namespace_gets_the_keys_of_its_user_only(charts: Charts) -> None:
    users = [
        {"name": name, "bucket": "shared", "prefix": name, "namespace": name}
        for name in ("shop", "bank")
    ]
    documents = charts.render("object-store", {"users": users})
    (job,) = (job for job in of_kind(documents, "Job") if "pre-install" in hooks_of(job))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    specs = [spec_of(values) for values in json.loads(variables["SECRETS"])]
    name = "sluicegate-object-store-user-shop"
    (copy,) = (spec for spec in specs if spec.namespace == "shop")
    assert (copy.name, copy.text["secretAccessKey"]) == (name, f"${{{name}/secretAccessKey}}")
    roles = {
        resource
        for role in of_kind(documents, "Role")
        if role["metadata"]["namespace"] == "shop"
        for rule in role["rules"]
        for resource in rule.get("resourceNames", ())
    }
    assert roles == {name}


def test_images_have_the_version_of_the_chart(default: list[Document]) -> None:
    images = {
        container["image"] for pod in pods(default) for container in pod["spec"]["containers"]
    }
    assert images == {f"localhost/sluicegate/{name}:{VERSION}" for name in IMAGES}


def test_one_value_sets_the_registry_of_all_images(charts: Charts) -> None:
    values = {"global": {"imageRegistry": "registry.example/team", "imagePullSecrets": ["r"]}}
    rendered_pods = list(pods(charts.render("sluicegate", values)))
    for pod in rendered_pods:
        assert pod["spec"]["imagePullSecrets"] == [{"name": "r"}]
        for container in pod["spec"]["containers"]:
            assert container["image"].startswith("registry.example/team/sluicegate/")


def test_an_image_can_be_pinned_by_its_digest(charts: Charts) -> None:
    digest = "sha256:" + "0" * 64
    documents = charts.render("mysql", {"image": {"digest": digest}})
    (container,) = only_of_kind(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"localhost/sluicegate/mysql@{digest}"


def test_connections_have_the_address_of_every_server(default: list[Document]) -> None:
    assert only_of_kind(default, "ConfigMap", "sluicegate-connections")["data"] == {
        "SLUICEGATE_KAFKA": "sluicegate-kafka.sluicegate.svc:9092",
        "kafka-protocol": "PLAINTEXT",
        "mysql-secret": "sluicegate-mysql",
        "mysql-secret-key": "url",
        "store-endpoint": "http://sluicegate-object-store.sluicegate.svc:7070",
        "store-secret": "sluicegate-object-store-user-checkpoints",
        "checkpoint-volume": "checkpoints",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://sluicegate-collector.sluicegate.svc:4318",
    }


@pytest.mark.parametrize("values", ["production", "everything on"])
def test_jobs_of_a_secured_platform_require_tls_of_mysql(charts: Charts, values: str) -> None:
    documents = charts.render("sluicegate", file=VALUES[values])
    data = only_of_kind(documents, "ConfigMap", "sluicegate-connections")["data"]
    assert data["SLUICEGATE_MYSQL_TLS"] == "required"


# --- external servers -----------------------------------------------------------------------------


def test_external_servers_are_not_installed(external: list[Document]) -> None:
    for document in external:
        name = document["metadata"].get("labels", {}).get("app.kubernetes.io/name")
        assert name not in PARTS, document["kind"]


@pytest.mark.parametrize("part", PARTS)
def test_each_server_can_be_external_on_its_own(charts: Charts, part: str) -> None:
    external_values: dict[str, Any] = {
        "kafka": {"bootstrapServers": "k:9092"},
        "mysql": {"existingSecret": "m"},
        "objectStore": {"endpoint": "https://s3.example", "existingSecret": "s"},
        "collector": {"endpoint": "http://c:4318"},
    }
    key = "objectStore" if part == "object-store" else part
    values = {part: {"enabled": False}, "external": {key: external_values[key]}}
    documents = charts.render("sluicegate", values)
    names = {
        document["metadata"].get("labels", {}).get("app.kubernetes.io/name")
        for document in documents
    }
    assert set(PARTS) - names == {part}


def test_connections_have_the_addresses_of_external_servers(external: list[Document]) -> None:
    data = only_of_kind(external, "ConfigMap", "sluicegate-connections")["data"]
    assert data["SLUICEGATE_KAFKA"] == "b-1.msk.example:9098,b-2.msk.example:9098"
    assert data["mysql-secret"] == "shop-mysql"
    assert "store-secret" not in data


def volume_spec(documents: list[Document]) -> dict[str, Any]:
    job = only_of_kind(documents, "Job", "sluicegate-make-volume")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (text,) = (variable["value"] for variable in container["env"] if variable["name"] == "VOLUME")
    spec: dict[str, Any] = json.loads(text)["spec"]
    return spec


@pytest.mark.parametrize(
    ("values", "authority"),
    [
        ({}, None),
        ({"object-store": {"tls": {"enabled": True}}}, "sluicegate-object-store-tls"),
        ({"object-store": {"tls": {"enabled": True, "existingSecret": "mine"}}}, "mine"),
        (
            {
                "object-store": {"enabled": False},
                "external": {
                    "objectStore": {
                        "endpoint": "https://s3.example",
                        "existingSecret": "s",
                        "authoritySecret": "ca",
                    }
                },
            },
            "ca",
        ),
    ],
)
def test_the_volume_names_the_ca_of_the_store(
    charts: Charts, values: dict[str, Any], authority: str | None
) -> None:
    assert volume_spec(charts.render("sluicegate", values)).get("authoritySecret") == authority


def test_a_volume_without_a_secret_uses_the_pods_identity(external: list[Document]) -> None:
    spec = volume_spec(external)
    assert {"credentialsSecret", "endpoint"}.isdisjoint(spec)
    assert (spec["bucket"], spec["prefix"]) == ("shop-checkpoints", "streams")


def test_jobs_may_reach_the_ports_of_external_servers(external: list[Document]) -> None:
    policy = only_of_kind(external, "NetworkPolicy", "sluicegate-jobs")
    rule = policy["spec"]["egress"][-1]
    assert {port["port"] for port in rule["ports"]} == {443, 6443, 9098, 3306}


# --- safe by default ------------------------------------------------------------------------------


def test_every_pod_has_a_policy_of_its_own(platform: list[Document]) -> None:
    policies = of_kind(platform, "NetworkPolicy")
    for pod in pods(platform):
        if "test" in hooks_of(pod):
            continue  # it only sends requests, as a client of its component
        matching = [policy for policy in policies if selects(policy, pod)]
        # another one may add a port
        assert len(matching) in (1, 2), pod["metadata"]["name"]
        assert all(policy["spec"]["policyTypes"] == ["Ingress", "Egress"] for policy in matching)


def test_no_policy_allows_all_sources(platform: list[Document]) -> None:
    for policy in of_kind(platform, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            assert rule["from"], policy["metadata"]["name"]
            assert rule["ports"], policy["metadata"]["name"]


def test_policies_can_be_disabled(charts: Charts) -> None:
    disabled = {"networkPolicy": {"enabled": False}}
    parts = dict.fromkeys((*PARTS, "operator"), disabled)
    documents = charts.render("sluicegate", {**parts, "jobs": disabled})
    assert of_kind(documents, "NetworkPolicy") == []


def test_only_clients_of_the_api_server_have_a_token(platform: list[Document]) -> None:
    for pod in pods(platform):
        component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
        needs_token = component in {"operator", "volume", "secrets", "crds"}
        assert pod["spec"]["automountServiceAccountToken"] is needs_token, pod["metadata"]["name"]


def test_every_container_has_requests_and_a_memory_limit(platform: list[Document]) -> None:
    for pod in pods(platform):
        for container in pod["spec"]["containers"]:
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys()
            assert "memory" in resources["limits"]


def test_every_server_has_three_probes(platform: list[Document]) -> None:
    for workload in (*of_kind(platform, "Deployment"), *of_kind(platform, "StatefulSet")):
        for container in workload["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_workloads_with_several_pods_have_a_disruption_budget(platform: list[Document]) -> None:
    budgets = of_kind(platform, "PodDisruptionBudget")
    for workload in (*of_kind(platform, "Deployment"), *of_kind(platform, "StatefulSet")):
        if workload["spec"]["replicas"] > 1:
            pod = workload["spec"]["template"]
            name = workload["metadata"]["name"]
            assert [budget for budget in budgets if selects(budget, pod)], name


def test_each_part_has_a_test_of_its_own(default: list[Document]) -> None:
    test_pods = {
        document["metadata"]["name"]
        for document in of_kind(default, "Pod")
        if "test" in hooks_of(document)
    }
    assert test_pods == {f"sluicegate-{part}-test" for part in (*PARTS, "operator")}


def test_claims_outlive_their_release(platform: list[Document]) -> None:
    for stateful_set in of_kind(platform, "StatefulSet"):
        assert stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }


def test_no_manifest_contains_a_secret(platform: list[Document]) -> None:
    assert of_kind(platform, "Secret") == []
    text = json.dumps(platform)
    assert "PRIVATE KEY" not in text
    assert not re.search(r"mysql://[^:]+:(?!\$\{password\})", text)
