"""The chart of the console: it reads one store with keys of its own, and is reached by few."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate.cli.history import history
from sluicegate.cli.kubectl_plugin import CONSOLES
from sluicegate.cli.ui import ui
from tests.integration.charts.rendering import VALUES, Charts, Document, of_kind, only_of_kind
from tests.integration.charts.test_accepted import COMBINED
from tests.integration.charts.test_platform import volume_spec

NAME = "sluicegate-console"
HISTORY = f"{NAME}-history"


@pytest.fixture(scope="module")
def console(charts: Charts) -> list[Document]:
    return charts.render("console", COMBINED["console"])


def container(documents: list[Document]) -> dict[str, Any]:
    (found,) = only_of_kind(documents, "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def variables(documents: list[Document]) -> dict[str, Any]:
    return {v["name"]: v.get("value", v.get("valueFrom")) for v in container(documents)["env"]}


def test_the_platform_has_no_console_unless_it_is_enabled(charts: Charts) -> None:
    for document in charts.render("sluicegate"):
        assert "console" not in document["metadata"]["name"], document["kind"]


def test_the_command_accepts_its_arguments(console: list[Document]) -> None:
    command = container(console)
    assert command["command"] == ["sluicegate", "ui"]
    given = ui.make_context("ui", list(command["args"])).params
    assert given["addresses"] == ("s3://checkpoints/streams",)
    assert given["trace_url"] == "https://jaeger.example.com/trace/{trace_id}"
    assert not given["kafka"], "pages contain no rows"
    assert (given["price_core_hour"], given["price_gib_hour"]) == (0.03, 0.004)
    assert (given["actions"], given["groups"]) == (True, ("shop-oncall",))


def test_the_kubectl_plugin_finds_the_console_and_not_the_history_server(
    console: list[Document],
) -> None:
    services = of_kind(console, "Service")
    assert {one["metadata"]["name"] for one in services} == {NAME, HISTORY}
    wanted = dict(label.split("=") for label in CONSOLES.split(","))
    found = [one for one in services if wanted.items() <= one["metadata"]["labels"].items()]
    assert [one["metadata"]["name"] for one in found] == [NAME]
    assert [port["name"] for port in found[0]["spec"]["ports"]] == ["http"]


def test_it_has_the_keys_of_its_own_secret_and_no_other(console: list[Document]) -> None:
    found = variables(console)
    keys = {"AWS_ACCESS_KEY_ID": "accessKeyId", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
    for name, key in keys.items():
        assert found[name] == {"secretKeyRef": {"name": "read-only", "key": key}}
    assert found["AWS_ENDPOINT_URL"] == "https://s3.example.com:9000"
    assert "AWS_ALLOW_HTTP" not in found
    assert found["SSL_CERT_FILE"] == "/etc/sluicegate/store/ca.crt"
    assert "envFrom" not in container(console)


def test_without_a_secret_the_pod_uses_its_own_identity(charts: Charts) -> None:
    found = variables(charts.render("console", {"addresses": ["s3://checkpoints"]}))
    assert found.keys() == {"AWS_REGION"}


def test_it_runs_as_nobody_on_a_file_system_that_it_cannot_write(console: list[Document]) -> None:
    pod = only_of_kind(console, "Deployment", NAME)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    security = container(console)["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_no_probe_reads_the_store(console: list[Document]) -> None:
    """A console whose store is down must show that, not be restarted."""
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(console)[probe]["httpGet"]["path"].startswith("/static/")


def test_pods_of_jobs_do_not_reach_it(console: list[Document]) -> None:
    (rule,) = only_of_kind(console, "NetworkPolicy", NAME)["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {f"{NAME}-client": "true"}}}]
    assert only_of_kind(console, "Service", NAME)["spec"]["type"] == "ClusterIP"


def test_it_reaches_name_servers_its_store_and_the_api_server_only(console: list[Document]) -> None:
    dns, store, api = only_of_kind(console, "NetworkPolicy", NAME)["spec"]["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert {port["port"] for port in store["ports"]} == {443, 9000}
    assert {port["port"] for port in api["ports"]} == {443, 6443}


def test_a_console_that_only_reads_has_no_access_to_kubernetes(charts: Charts) -> None:
    documents = charts.render("console", {"addresses": ["s3://checkpoints"]})
    pod = only_of_kind(documents, "Deployment", NAME)["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    assert not [each for each in documents if each["kind"].endswith(("Role", "RoleBinding"))]
    assert not {"--actions", "--currency=USD"} & set(container(documents)["args"])
    _, store = only_of_kind(documents, "NetworkPolicy", NAME)["spec"]["egress"]
    assert {port["port"] for port in store["ports"]} == {443}


def test_the_secret_of_the_login_proxy_is_a_file(console: list[Document]) -> None:
    pod = only_of_kind(console, "Deployment", NAME)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "proxy"]
    assert volume["secret"]["secretName"] == "login-proxy"
    assert {"name": "proxy", "mountPath": "/etc/sluicegate/proxy", "readOnly": True} in container(
        console
    )["volumeMounts"]
    assert "--proxy-secret-file=/etc/sluicegate/proxy/secret" in container(console)["args"]


def test_it_acts_as_a_person_on_jobs_only(console: list[Document]) -> None:
    (role,) = of_kind(console, "Role")
    assert role["metadata"]["namespace"] == "restricted", "of the jobs"
    for rule in role["rules"]:
        assert rule["apiGroups"] == ["sluicegate.dev"]
        assert all(verb.startswith("impersonate-on:user-info:") for verb in rule["verbs"])
    (cluster_role,) = of_kind(console, "ClusterRole")
    for rule in cluster_role["rules"]:
        assert rule["verbs"] == ["impersonate:user-info"]
    (groups,) = [rule for rule in cluster_role["rules"] if rule["resources"] == ["groups"]]
    assert groups["resourceNames"] == ["shop-oncall"]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"enabled": True}, "needs actions.proxySecret"),
        (
            {"enabled": True, "proxySecret": "s", "constrained": False},
            "actions.users is empty",
        ),
        ({"groups": ["system:masters"]}, "groups"),
    ],
)
def test_rights_that_are_too_wide_are_refused(
    charts: Charts, actions: dict[str, Any], message: str
) -> None:
    assert message in charts.refusal("console", {"addresses": ["s3://x"], "actions": actions})


def test_there_is_no_history_server_unless_it_is_enabled(charts: Charts) -> None:
    documents = charts.render("console", {"addresses": ["s3://checkpoints"]})
    assert [each["metadata"]["name"] for each in of_kind(documents, "Deployment")] == [NAME]


def test_the_history_server_is_reached_by_clients_of_the_console_only(
    console: list[Document],
) -> None:
    pod = only_of_kind(console, "Deployment", HISTORY)["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    given = history.make_context("history", list(server["args"])).params
    assert (given["folder"], given["port"]) == ("s3://checkpoints/streams/spark-events", 18_080)
    assert not pod["automountServiceAccountToken"]
    (rule,) = only_of_kind(console, "NetworkPolicy", HISTORY)["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {f"{NAME}-client": "true"}}}]


def test_a_history_server_without_logs_is_refused(charts: Charts) -> None:
    values = {"addresses": ["s3://x"], "history": {"enabled": True}}
    assert "history.enabled needs history.address" in charts.refusal("console", values)


def test_the_volume_of_a_platform_never_has_the_keys_that_only_read(charts: Charts) -> None:
    documents = charts.render("sluicegate", file=VALUES["console"])
    assert volume_spec(documents)["credentialsSecret"] == "sluicegate-object-store-user-checkpoints"
    key = variables(documents)["AWS_ACCESS_KEY_ID"]["secretKeyRef"]
    assert key["name"] == "sluicegate-object-store-user-console"
