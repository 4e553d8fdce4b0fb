"""The operator's chart is operators/deploy: the same rights, flags and probes; and the CRDs themselves."""

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from infra.charts import helm
from infra.work import CHECKOUT
from sluicegate_operator.service.metrics import Metrics
from tests.charts.rendered import Charts, Document, of_kind, the

DEPLOY = CHECKOUT / "operators" / "deploy"
ROLES = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
SOME = {"watch": {"all": False, "namespaces": ["shop"], "secrets": ["checkpoint-store"]}}


def deployed(*paths: str) -> list[Document]:
    """Return manifests of operators/deploy."""
    return [
        found
        for path in paths
        for found in yaml.safe_load_all((DEPLOY / path).read_text())
        if found is not None
    ]


def rendered(charts: Charts, values: dict[str, Any] | None = None) -> list[Document]:
    """Return the chart as it would stand in for operators/deploy."""
    name = "sluicegate-operator"
    return charts.render("operator", values, release=name, namespace="sluicegate-system")


def rights(documents: list[Document], namespace: str = "") -> list[Any]:
    """Return roles and bindings without their labels, in an order."""
    found = []
    for each in documents:
        if each["kind"] in ROLES:
            where = each["metadata"].get(
                "namespace", namespace if "Cluster" not in each["kind"] else ""
            )
            parts = {key: each[key] for key in ("rules", "roleRef", "subjects") if key in each}
            found.append((each["kind"], each["metadata"]["name"], where, json.dumps(parts)))
    return sorted(found)


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ({}, ["base/rights.yaml", "overlays/cluster/rights.yaml"]),
        (SOME, ["base/rights.yaml", "watched/rights.yaml", "watched/secrets.yaml"]),
    ],
    ids=["all namespaces", "some namespaces"],
)
def test_rights_are_those_of_the_install_without_helm(
    charts: Charts, values: dict[str, Any], paths: list[str]
) -> None:
    assert rights(rendered(charts, values)) == rights(deployed(*paths), "shop")


@pytest.mark.parametrize("chart", ["sluicegate", "job"])
def test_drivers_have_the_rights_of_the_install_without_helm(charts: Charts, chart: str) -> None:
    values = {"account": {"create": True}} if chart == "job" else {}
    found = charts.render(chart, values, release="ip-count")
    (wanted,) = of_kind(deployed("job/driver.yaml"), "Role")
    roles = [
        role for role in of_kind(found, "Role") if role["metadata"]["name"].endswith("-driver")
    ]
    assert [role["rules"] for role in roles] == [wanted["rules"]]


def container_of(documents: list[Document]) -> Document:
    (found,) = the(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "part",
    ["command", "startupProbe", "livenessProbe", "readinessProbe", "securityContext", "resources"],
)
def test_the_container_is_that_of_the_install_without_helm(charts: Charts, part: str) -> None:
    assert (
        container_of(rendered(charts))[part] == container_of(deployed("base/deployment.yaml"))[part]
    )


def test_its_flags_are_those_of_the_install_without_helm_and_which_namespaces(
    charts: Charts,
) -> None:
    found = container_of(rendered(charts))["args"]
    wanted = container_of(deployed("base/deployment.yaml"))["args"]
    assert {"--all-namespaces", *wanted} <= set(found)


def test_it_is_told_the_namespaces_that_it_serves(charts: Charts) -> None:
    found = container_of(rendered(charts, SOME))["args"]
    assert next(argument for argument in found if "namespace" in argument) == "--namespace=shop"
    assert "--all-namespaces" not in found


def test_the_definitions_are_those_of_the_operator(charts: Charts) -> None:
    wanted = {
        found["metadata"]["name"]: found["spec"]
        for path in sorted((CHECKOUT / "operators" / "crds").glob("*.yaml"))
        for found in [yaml.safe_load(path.read_text())]
    }
    found = of_kind(rendered(charts), "CustomResourceDefinition")
    assert {each["metadata"]["name"]: each["spec"] for each in found} == wanted


def test_a_chart_without_them_is_not_installed(charts: Charts, tmp_path: Path) -> None:
    """As in a checkout in which `make charts` has not run: the operator would watch nothing, for ever."""
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
    table = Path(CHECKOUT / "operators" / "README.md").read_text()
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
