"""The operator's chart: permissions, flags, probes, CustomResourceDefinitions and dashboard."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from infra import manifests
from infra.chart_docs import helm
from infra.workspace import CHECKOUT
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.pods.names import DEFAULT_SERVICE_ACCOUNT
from tests.integration.charts.rendering import Charts, Document, hooks_of, of_kind, the

NAMESPACED = {"watch": {"all": False, "namespaces": ["shop"], "secrets": ["checkpoint-store"]}}


def rendered(charts: Charts, values: dict[str, Any] | None = None) -> list[Document]:
    """Return the chart's manifests under the names of the plain manifests."""
    return charts.render("operator", values, release=manifests.NAME, namespace=manifests.NAMESPACE)


def rules(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield each rule of each role, with the role's name."""
    for found in documents:
        for rule in found.get("rules", ()):
            yield found["metadata"]["name"], rule


def container_of(documents: list[Document]) -> Document:
    (found,) = the(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


# --- permissions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["all namespaces", "one namespace"])
def test_no_permission_is_a_wildcard(charts: Charts, values: dict[str, Any]) -> None:
    for name, rule in rules(rendered(charts, values)):
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


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["all namespaces", "one namespace"])
def test_secrets_can_be_read_but_not_listed(charts: Charts, values: dict[str, Any]) -> None:
    found = [rule for _, rule in rules(rendered(charts, values)) if "secrets" in rule["resources"]]
    assert found
    assert all(rule["verbs"] == ["get"] and rule["resources"] == ["secrets"] for rule in found)


def test_a_namespaced_operator_reads_only_named_secrets(charts: Charts) -> None:
    found = [
        rule for _, rule in rules(rendered(charts, NAMESPACED)) if "secrets" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in found] == [["checkpoint-store"]]


def test_a_namespaced_operator_has_cluster_wide_access_to_nodes_only(charts: Charts) -> None:
    bindings = of_kind(rendered(charts, NAMESPACED), "ClusterRoleBinding")
    assert [each["roleRef"]["name"] for each in bindings] == ["sluicegate-operator-nodes"]


def test_a_namespaced_operator_is_bound_in_the_namespaces_of_jobs(charts: Charts) -> None:
    bindings = [
        each
        for each in of_kind(rendered(charts, NAMESPACED), "RoleBinding")
        if each["metadata"]["namespace"] == "shop"
    ]
    assert len(bindings) == 2
    assert {each["subjects"][0]["namespace"] for each in bindings} == {manifests.NAMESPACE}


def test_the_operator_may_write_only_its_own_lease(charts: Charts) -> None:
    found = [
        rule
        for _, rule in rules(rendered(charts))
        if "leases" in rule["resources"] and rule["verbs"] != ["create"]
    ]
    assert [rule["resourceNames"] for rule in found] == [["sluicegate-operator"]]


def test_the_operator_may_do_what_its_actions_need(charts: Charts) -> None:
    """One pair per action; that the API server agrees is tested with the operator."""
    allowed = {
        (resource, verb)
        for name, rule in rules(rendered(charts))
        if name == "sluicegate-operator"
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        ("streamingjobs", "patch"),  # AddFinalizer, RemoveFinalizer
        ("streamingjobs/status", "update"),
        ("pods", "create"),  # CreateDriver
        ("pods", "delete"),  # StopDriver, DeletePod
        ("pods", "patch"),  # RemovePodFinalizer, DeletePod
        ("savepoints", "create"),  # CreateSavepoint
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
        ("operator", {"driverAccounts": ["shop"]}),
    ],
)
def test_drivers_may_access_pods_only(charts: Charts, chart: str, values: dict[str, Any]) -> None:
    found = charts.render(chart, values, release="ip-count")
    (role,) = (r for r in of_kind(found, "Role") if r["metadata"]["name"].endswith("-driver"))
    assert [(rule["apiGroups"], rule["resources"]) for rule in role["rules"]] == [([""], ["pods"])]


def test_driver_accounts_are_created_in_the_given_namespaces(charts: Charts) -> None:
    found = rendered(charts, {"driverAccounts": ["shop", "bank"]})
    accounts = of_kind(found, "ServiceAccount", DEFAULT_SERVICE_ACCOUNT)
    assert [each["metadata"]["namespace"] for each in accounts] == ["shop", "bank"]
    for binding in of_kind(found, "RoleBinding", DEFAULT_SERVICE_ACCOUNT):
        (subject,) = binding["subjects"]
        assert subject["name"] == DEFAULT_SERVICE_ACCOUNT
        assert subject["namespace"] == binding["metadata"]["namespace"]


# --- the operator's pods --------------------------------------------------------------------------


def test_the_operator_complies_with_the_restricted_standard(charts: Charts) -> None:
    pod = the(rendered(charts), "Deployment")["spec"]["template"]["spec"]
    expected = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert expected.items() <= pod["securityContext"].items()
    assert container_of(rendered(charts))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_two_replicas_compete_for_the_lease_that_they_may_write(charts: Charts) -> None:
    found = rendered(charts)
    assert the(found, "Deployment")["spec"]["replicas"] == 2
    assert "--lease-name=sluicegate-operator" in container_of(found)["args"]
    assert f"--lease-namespace={manifests.NAMESPACE}" in container_of(found)["args"]


def test_a_restarted_container_has_the_identity_of_its_pod(charts: Charts) -> None:
    container = container_of(rendered(charts))
    assert "--identity=$(POD_NAME)_$(POD_UID)" in container["args"]
    paths = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert paths == {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_each_probe_uses_the_served_port(charts: Charts, probe: str, path: str) -> None:
    container = container_of(rendered(charts))
    (port,) = container["ports"]
    assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert f"--port={port['containerPort']}" in container["args"]


@pytest.mark.parametrize(
    ("values", "argument"),
    [({}, "--all-namespaces"), (NAMESPACED, "--namespace=shop")],
    ids=["all namespaces", "one namespace"],
)
def test_the_operator_serves_the_configured_namespaces(
    charts: Charts, values: dict[str, Any], argument: str
) -> None:
    found = container_of(rendered(charts, values))["args"]
    assert [each for each in found if re.match("--(all-)?namespaces?", each)] == [argument]


# --- plain manifests ------------------------------------------------------------------------------


def test_plain_manifests_are_a_complete_install(charts: Charts) -> None:
    """Everything but hooks, which only Helm runs, and the Namespace before what is in it."""
    text = manifests.render(manifests.values_of(), charts.folder)
    found = [each for each in yaml.safe_load_all(text) if each]
    assert found[0]["kind"] == "Namespace"
    assert found[0]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not [each for each in found if hooks_of(each)]
    assert of_kind(found, "ServiceAccount", DEFAULT_SERVICE_ACCOUNT)
    rest = {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
    assert names(found, without=rest) == names(rendered(charts), without=rest | {"Pod"})


def names(documents: list[Document], without: set[str]) -> set[tuple[str, str]]:
    return {
        (each["kind"], each["metadata"]["name"])
        for each in documents
        if each["kind"] not in without
    }


# --- definitions and dashboard --------------------------------------------------------------------


def test_the_definitions_are_those_of_the_operator(charts: Charts) -> None:
    wanted = {
        found["metadata"]["name"]: found["spec"]
        for path in sorted((CHECKOUT / "operators" / "crds").glob("*.yaml"))
        for found in [yaml.safe_load(path.read_text())]
    }
    found = of_kind(rendered(charts), "CustomResourceDefinition")
    assert {each["metadata"]["name"]: each["spec"] for each in found} == wanted


def test_a_chart_without_them_is_not_installed(charts: Charts, tmp_path: Path) -> None:
    """As in a checkout in which `make charts` has not run: the operator would watch nothing."""
    shutil.copytree(charts.folder / "operator", tmp_path / "operator")
    shutil.rmtree(tmp_path / "operator" / "files" / "crds")
    assert "Run `make charts`" in Charts(tmp_path).refusal("operator", {})


def test_an_uninstall_keeps_the_definitions(charts: Charts) -> None:
    for found in of_kind(rendered(charts), "CustomResourceDefinition"):
        assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_platform_reads_the_keys_of_its_own_store_where_it_may_read_few(charts: Charts) -> None:
    watch = {"all": False, "namespaces": ["sluicegate"]}
    found = charts.render("sluicegate", {"operator": {"watch": watch}})
    role = the(found, "Role", "sluicegate-operator-secrets")
    keys = "sluicegate-object-store"
    assert role["rules"][0]["resourceNames"] == [keys, f"{keys}-tls"]


def dashboard() -> Document:
    path = helm.FOLDER / "operator" / "files" / "dashboard.json"
    found: Document = json.loads(path.read_text())
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    table = Path(CHECKOUT / "docs" / "kubernetes" / "metrics.md").read_text()
    described = set(re.findall(r"`(sluicegate_[a-z_]+)`", table))
    asked = set().union(*(re.findall(r"sluicegate_[a-z_]+", text) for text in expressions()))
    assert {name.removesuffix("_bucket") for name in asked} <= described


def test_the_metrics_of_the_dashboard_are_those_of_a_process() -> None:
    text = generate_latest(Metrics().registry).decode()
    made = set(re.findall(r"# TYPE (sluicegate_[a-z_]+)", text))
    asked = set().union(*(re.findall(r"sluicegate_[a-z_]+", text) for text in expressions()))
    assert {name.removesuffix("_bucket") for name in asked} <= made


def test_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    cells = [
        (x, y)
        for panel in dashboard()["panels"]
        for place in [panel["gridPos"]]
        for x, y in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(cells) == len(set(cells))


def test_monitor_and_dashboard_are_there_when_they_are_asked_for(charts: Charts) -> None:
    assert of_kind(rendered(charts), "ServiceMonitor") == []
    on = {"serviceMonitor": {"enabled": True}, "dashboard": {"enabled": True}}
    found = rendered(charts, {"metrics": on})
    assert the(found, "ServiceMonitor")["spec"]["endpoints"][0]["path"] == "/metrics"
    given = the(found, "ConfigMap", "sluicegate-operator-dashboard")["data"]["sluicegate.json"]
    assert json.loads(given) == dashboard()
