"""The operator's chart: permissions, flags, probes and CustomResourceDefinitions."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from infra import manifests
from infra.chart_docs import helm
from sluicegate_operator.api.crds import KINDS
from sluicegate_operator.pods.names import DEFAULT_SERVICE_ACCOUNT
from tests.integration.charts.rendering import (
    Charts,
    Document,
    hooks_of,
    of_kind,
    only_of_kind,
    selects,
)

ALL: dict[str, Any] = {"watch": {"all": True}}
NAMESPACED = {"watch": {"namespaces": ["shop"], "secrets": ["checkpoint-store"]}}


def render_operator(charts: Charts, values: dict[str, Any] | None = None) -> list[Document]:
    """Return the chart's manifests under the names of the plain manifests; by default for all namespaces."""
    values = {**ALL, **(values or {})}
    return charts.render("operator", values, release=manifests.NAME, namespace=manifests.NAMESPACE)


def rules(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield each rule of each role, with the role's name."""
    for document in documents:
        for rule in document.get("rules", ()):
            yield document["metadata"]["name"], rule


def container_of(documents: list[Document]) -> Document:
    (container,) = only_of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


# --- permissions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [ALL, NAMESPACED], ids=["all namespaces", "one namespace"])
def test_no_permission_is_a_wildcard(charts: Charts, values: dict[str, Any]) -> None:
    for name, rule in rules(render_operator(charts, values)):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], name


@pytest.mark.parametrize(
    "template", ["operator/templates/rights.yaml", "common/templates/_driver.tpl"]
)
def test_each_rule_has_a_comment_with_its_purpose(template: str) -> None:
    lines = (helm.FOLDER / template).read_text().splitlines()
    rule_lines = [
        (before, line) for before, line in itertools.pairwise(lines) if "- apiGroups" in line
    ]
    assert rule_lines
    assert all(before.startswith("# ") for before, _ in rule_lines), rule_lines


@pytest.mark.parametrize("values", [ALL, NAMESPACED], ids=["all namespaces", "one namespace"])
def test_secrets_can_be_read_but_not_listed(charts: Charts, values: dict[str, Any]) -> None:
    secret_rules = [
        rule for _, rule in rules(render_operator(charts, values)) if "secrets" in rule["resources"]
    ]
    assert secret_rules
    assert all(
        rule["verbs"] == ["get"] and rule["resources"] == ["secrets"] for rule in secret_rules
    )


def test_a_namespaced_operator_reads_only_named_secrets(charts: Charts) -> None:
    secret_rules = [
        rule
        for _, rule in rules(render_operator(charts, NAMESPACED))
        if "secrets" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in secret_rules] == [["checkpoint-store"]]


def test_a_namespaced_operator_has_cluster_wide_access_to_nodes_only(charts: Charts) -> None:
    """Apart from the hook that upgrades the CRDs, whose rights end with it."""
    documents = render_operator(charts, {**NAMESPACED, "crds": {"install": False}})
    bindings = of_kind(documents, "ClusterRoleBinding")
    name = f"sluicegate-operator.{manifests.NAMESPACE}-nodes"
    assert [binding["roleRef"]["name"] for binding in bindings] == [name]


def test_releases_of_one_name_in_two_namespaces_share_no_object(charts: Charts) -> None:
    def names(namespace: str) -> set[tuple[str, str, str]]:
        values = {"watch": {"namespaces": [f"{namespace}-jobs"]}, "crds": {"install": False}}
        documents = charts.render("operator", values, release="ops", namespace=namespace)
        return {
            (d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"])
            for d in documents
        }

    assert names("one") & names("two") == set()


def test_a_namespaced_operator_is_bound_in_the_namespaces_of_jobs(charts: Charts) -> None:
    bindings = [
        binding
        for binding in of_kind(render_operator(charts, NAMESPACED), "RoleBinding")
        if binding["metadata"]["namespace"] == "shop"
    ]
    assert len(bindings) == 2
    assert {binding["subjects"][0]["namespace"] for binding in bindings} == {manifests.NAMESPACE}


def test_the_operator_may_write_only_its_own_lease(charts: Charts) -> None:
    lease_rules = [
        rule
        for _, rule in rules(render_operator(charts))
        if "leases" in rule["resources"] and rule["verbs"] != ["create"]
    ]
    assert [rule["resourceNames"] for rule in lease_rules] == [["sluicegate-operator"]]


def test_the_operator_may_do_what_its_actions_need(charts: Charts) -> None:
    """One pair per action; that the API server agrees is tested with the operator."""
    allowed = {
        (resource, verb)
        for name, rule in rules(render_operator(charts))
        if name == f"sluicegate-operator.{manifests.NAMESPACE}"
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        ("streamingjobs", "patch"),  # AddFinalizer, RemoveFinalizer
        ("streamingjobs", "delete"),  # DeleteJob
        ("streamingjobs/status", "update"),
        ("pods", "create"),  # CreateDriver
        ("pods", "delete"),  # StopDriver, DeletePod
        ("pods", "patch"),  # RemovePodFinalizer, DeletePod
        ("savepoints", "create"),  # CreateSavepoint
        ("savepoints", "delete"),  # DeleteSavepoint
        ("events", "create"),  # EmitEvent
    }
    watched = {
        (resource, verb)
        for resource in ("streamingjobs", "checkpointvolumes", "savepoints", "pods")
        for verb in ("get", "list", "watch")
    }
    assert needed | watched <= allowed


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("sluicegate", {}),
        ("job", {"account": {"create": True}}),
        ("operator", {**ALL, "driverAccounts": ["shop"]}),
    ],
)
def test_drivers_may_access_pods_only(charts: Charts, chart: str, values: dict[str, Any]) -> None:
    documents = charts.render(chart, values, release="ip-count")
    (role,) = (
        role for role in of_kind(documents, "Role") if role["metadata"]["name"].endswith("-driver")
    )
    assert [(rule["apiGroups"], rule["resources"]) for rule in role["rules"]] == [([""], ["pods"])]


def test_driver_accounts_are_created_in_the_given_namespaces(charts: Charts) -> None:
    documents = render_operator(charts, {"driverAccounts": ["shop", "bank"]})
    accounts = of_kind(documents, "ServiceAccount", DEFAULT_SERVICE_ACCOUNT)
    assert [account["metadata"]["namespace"] for account in accounts] == ["shop", "bank"]
    for binding in of_kind(documents, "RoleBinding", DEFAULT_SERVICE_ACCOUNT):
        (subject,) = binding["subjects"]
        assert subject["name"] == DEFAULT_SERVICE_ACCOUNT
        assert subject["namespace"] == binding["metadata"]["namespace"]


# --- the operator's pods --------------------------------------------------------------------------


def test_the_operator_complies_with_the_restricted_standard(charts: Charts) -> None:
    pod = only_of_kind(render_operator(charts), "Deployment")["spec"]["template"]["spec"]
    expected = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert expected.items() <= pod["securityContext"].items()
    assert container_of(render_operator(charts))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_two_replicas_compete_for_the_lease_that_they_may_write(charts: Charts) -> None:
    documents = render_operator(charts)
    assert only_of_kind(documents, "Deployment")["spec"]["replicas"] == 2
    assert "--lease-name=sluicegate-operator" in container_of(documents)["args"]
    assert f"--lease-namespace={manifests.NAMESPACE}" in container_of(documents)["args"]


def test_a_restarted_container_has_the_identity_of_its_pod(charts: Charts) -> None:
    container = container_of(render_operator(charts))
    assert "--identity=$(POD_NAME)_$(POD_UID)" in container["args"]
    paths = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container["env"]
    }
    assert paths == {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_each_probe_uses_the_served_port(charts: Charts, probe: str, path: str) -> None:
    container = container_of(render_operator(charts))
    (port,) = container["ports"]
    assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert f"--port={port['containerPort']}" in container["args"]


@pytest.mark.parametrize(
    ("values", "argument"),
    [(ALL, "--all-namespaces"), (NAMESPACED, "--namespace=shop")],
    ids=["all namespaces", "one namespace"],
)
def test_the_operator_serves_the_configured_namespaces(
    charts: Charts, values: dict[str, Any], argument: str
) -> None:
    arguments = container_of(render_operator(charts, values))["args"]
    options = [option for option in arguments if re.match("--(all-)?namespaces?", option)]
    assert options == [argument]


@pytest.mark.parametrize(
    "values",
    [
        {"consoleURL": "https://console.example.com"},
        {"metrics": {"alerts": {"consoleURL": "https://console.example.com"}}},
    ],
    ids=["for Events and alerts", "of alerts"],
)
def test_events_link_to_the_console_whose_address_is_given(
    charts: Charts, values: dict[str, Any]
) -> None:
    arguments = container_of(render_operator(charts, values))["args"]
    assert "--console-url=https://console.example.com" in arguments
    without = container_of(render_operator(charts))["args"]
    assert not [option for option in without if "console" in option]


# --- network ----------------------------------------------------------------------------------------


def policy_of(documents: list[Document], name: str = "sluicegate-operator") -> Document:
    spec: Document = only_of_kind(documents, "NetworkPolicy", name)["spec"]
    return spec


def test_the_operator_may_reach_the_ports_of_the_endpoints_that_volumes_may_name(
    charts: Charts,
) -> None:
    values = {"storeEndpoints": ["http://minio.shop:9000", "http://store", "https://s3.example"]}
    rules = policy_of(render_operator(charts, values))["egress"]
    assert [port["port"] for port in rules[-1]["ports"]] == [9000, 80, 443, 6443, 7070]


def test_the_operator_may_reach_the_external_store_of_the_platform(charts: Charts) -> None:
    store = {"endpoint": "http://minio:9000", "existingSecret": "s"}
    values = {"object-store": {"enabled": False}, "external": {"objectStore": store}}
    documents = charts.render("sluicegate", values)
    policy = policy_of(documents, "sluicegate-operator-store")
    assert policy["egress"] == [{"ports": [{"port": 9000}]}]
    pod = only_of_kind(documents, "Deployment", "sluicegate-operator")["spec"]["template"]
    assert selects({"spec": policy}, pod)


def test_metrics_are_served_to_monitoring_and_the_own_namespaces_only(charts: Charts) -> None:
    """The API server and the kubelet connect from the node, which a policy does not restrict."""
    (rule,) = policy_of(render_operator(charts))["ingress"]
    assert {} not in [source.get("namespaceSelector") for source in rule["from"]]
    namespaces = {
        source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for source in rule["from"]
        if "namespaceSelector" in source
    }
    assert namespaces == {"monitoring", manifests.NAMESPACE}


# --- plain manifests ------------------------------------------------------------------------------


def test_plain_manifests_are_a_complete_install(charts: Charts) -> None:
    """All manifests except hooks, which only Helm runs; the Namespace comes first."""
    text = manifests.render(manifests.values_of(()), charts.folder)
    documents = [document for document in yaml.safe_load_all(text) if document]
    assert documents[0]["kind"] == "Namespace"
    assert documents[0]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not [document for document in documents if hooks_of(document)]
    assert of_kind(documents, "ServiceAccount", DEFAULT_SERVICE_ACCOUNT)
    rest = {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
    rendered = [document for document in render_operator(charts) if not hooks_of(document)]
    rest.add("CustomResourceDefinition")
    assert names_of(documents, without=rest) == names_of(rendered, without=rest)


def test_plain_manifests_serve_one_namespace_unless_told_otherwise(charts: Charts) -> None:
    """As the chart: in all namespaces the operator may create pods and read any Secret."""
    text = manifests.render(manifests.values_of(), charts.folder)
    documents = [document for document in yaml.safe_load_all(text) if document]
    assert "--namespace=default" in container_of(documents)["args"]
    assert "--all-namespaces" not in container_of(documents)["args"]


def names_of(documents: list[Document], without: set[str]) -> set[tuple[str, str]]:
    return {
        (document["kind"], document["metadata"]["name"])
        for document in documents
        if document["kind"] not in without
    }


# --- CRDs -----------------------------------------------------------------------------------------


def test_no_release_contains_the_crds(charts: Charts) -> None:
    """A rollback would apply those of an older release, and drop fields of stored objects."""
    assert of_kind(render_operator(charts), "CustomResourceDefinition") == []


def test_plain_manifests_contain_the_crds(charts: Charts) -> None:
    text = manifests.render(manifests.values_of(), charts.folder)
    documents = [document for document in yaml.safe_load_all(text) if document]
    expected = {kind.definition()["metadata"]["name"] for kind in KINDS}
    crds = of_kind(documents, "CustomResourceDefinition")
    assert {crd["metadata"]["name"] for crd in crds} == expected


def test_security_h10_a_namespaced_platform_may_read_the_volumes_keys_and_not_roots(
    charts: Charts,
) -> None:
    values = {"object-store": {"tls": {"enabled": True}}}
    roles = of_kind(charts.render("sluicegate", values), "Role")
    readable = [
        name
        for role in roles
        if not hooks_of(role)  # hooks create the Secrets
        for rule in role["rules"]
        if "secrets" in rule["resources"]
        for name in rule["resourceNames"]
    ]
    store = "sluicegate-object-store"
    assert readable == [f"{store}-user-checkpoints", f"{store}-tls"]


def test_the_monitor_is_rendered_only_if_enabled(charts: Charts) -> None:
    assert of_kind(render_operator(charts), "ServiceMonitor") == []
    documents = render_operator(charts, {"metrics": {"serviceMonitor": {"enabled": True}}})
    (endpoint,) = only_of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
