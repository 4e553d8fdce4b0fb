"""What the umbrella installs: by its values, by the names that others rely on, and safe by default."""

import json
import re
from typing import Any

import pytest

from tests.integration.charts.rendering import (
    VALUES,
    Charts,
    Document,
    hooks_of,
    of_kind,
    pods,
    selected,
    the,
)

WORKLOADS = ("Deployment", "StatefulSet", "Job")
PARTS = ("kafka", "mysql", "object-store", "collector")
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
    found = the(default, "Service", name)["spec"]["ports"]
    assert {port["port"] for port in found} == ports


def test_secrets_have_the_keys_that_jobs_and_volumes_read(default: list[Document]) -> None:
    assert set(the(default, "Secret", "sluicegate-mysql")["data"]) == {
        "root-password",
        "password",
        "url",
    }
    assert set(the(default, "Secret", "sluicegate-object-store")["data"]) == {
        "accessKeyId",
        "secretAccessKey",
    }


def test_images_are_ours_by_the_version_of_the_chart(default: list[Document]) -> None:
    found = {container["image"] for pod in pods(default) for container in pod["spec"]["containers"]}
    assert found == {f"sluicegate/{name}:0.1.0" for name in IMAGES}


def test_a_registry_is_said_once_for_all_images(charts: Charts) -> None:
    given = {"global": {"imageRegistry": "registry.example/team", "imagePullSecrets": ["r"]}}
    found = list(pods(charts.render("sluicegate", given)))
    for pod in found:
        assert pod["spec"]["imagePullSecrets"] == [{"name": "r"}]
        for container in pod["spec"]["containers"]:
            assert container["image"].startswith("registry.example/team/sluicegate/")


def test_an_image_can_be_named_by_its_digest(charts: Charts) -> None:
    digest = "sha256:" + "0" * 64
    found = charts.render("mysql", {"image": {"digest": digest}})
    (container,) = the(found, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"sluicegate/mysql@{digest}"


def test_connections_say_where_everything_is(default: list[Document]) -> None:
    assert the(default, "ConfigMap", "sluicegate-connections")["data"] == {
        "SLUICEGATE_KAFKA": "sluicegate-kafka.sluicegate.svc:9092",
        "kafka-protocol": "PLAINTEXT",
        "mysql-secret": "sluicegate-mysql",
        "mysql-secret-key": "url",
        "store-endpoint": "http://sluicegate-object-store.sluicegate.svc:7070",
        "store-secret": "sluicegate-object-store",
        "checkpoint-volume": "checkpoints",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://sluicegate-collector.sluicegate.svc:4318",
    }


# --- what is external -----------------------------------------------------------------------------


def test_of_what_is_external_nothing_is_installed(external: list[Document]) -> None:
    for found in external:
        name = found["metadata"].get("labels", {}).get("app.kubernetes.io/name")
        assert name not in PARTS, found["kind"]


@pytest.mark.parametrize("part", PARTS)
def test_one_part_alone_can_be_external(charts: Charts, part: str) -> None:
    given: dict[str, Any] = {
        "kafka": {"bootstrapServers": "k:9092"},
        "mysql": {"existingSecret": "m"},
        "objectStore": {"endpoint": "https://s3.example", "existingSecret": "s"},
        "collector": {"endpoint": "http://c:4318"},
    }
    key = "objectStore" if part == "object-store" else part
    values = {part: {"enabled": False}, "external": {key: given[key]}}
    found = charts.render("sluicegate", values)
    names = {d["metadata"].get("labels", {}).get("app.kubernetes.io/name") for d in found}
    assert set(PARTS) - names == {part}


def test_jobs_are_told_where_what_is_external_is(external: list[Document]) -> None:
    found = the(external, "ConfigMap", "sluicegate-connections")["data"]
    assert found["SLUICEGATE_KAFKA"] == "b-1.msk.example:9098,b-2.msk.example:9098"
    assert found["mysql-secret"] == "shop-mysql"
    assert "store-secret" not in found


def volume_of(found: list[Document]) -> dict[str, Any]:
    job = the(found, "Job", "sluicegate-make-volume")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (text,) = (one["value"] for one in container["env"] if one["name"] == "VOLUME")
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
def test_the_volume_names_who_signs_the_stores_certificate(
    charts: Charts, values: dict[str, Any], authority: str | None
) -> None:
    assert volume_of(charts.render("sluicegate", values)).get("authoritySecret") == authority


def test_a_volume_without_a_secret_uses_the_pods_identity(external: list[Document]) -> None:
    spec = volume_of(external)
    assert {"credentialsSecret", "endpoint"}.isdisjoint(spec)
    assert (spec["bucket"], spec["prefix"]) == ("shop-checkpoints", "streams")


def test_jobs_may_reach_the_ports_of_what_is_external(external: list[Document]) -> None:
    policy = the(external, "NetworkPolicy", "sluicegate-jobs")
    elsewhere = policy["spec"]["egress"][-1]
    assert {port["port"] for port in elsewhere["ports"]} == {443, 6443, 9098, 3306}


# --- safe by default ------------------------------------------------------------------------------


def test_every_pod_has_a_policy_of_its_own(platform: list[Document]) -> None:
    policies = of_kind(platform, "NetworkPolicy")
    for pod in pods(platform):
        if "test" in hooks_of(pod):
            continue  # it asks whatever its component lets it ask, and nothing asks it
        about = [policy for policy in policies if selected(policy, pod)]
        assert len(about) == 1, pod["metadata"]["name"]
        assert about[0]["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_no_policy_lets_everybody_in(platform: list[Document]) -> None:
    for policy in of_kind(platform, "NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:
            assert rule["from"], policy["metadata"]["name"]
            assert rule["ports"], policy["metadata"]["name"]


def test_policies_can_be_left_out(charts: Charts) -> None:
    off = {"networkPolicy": {"enabled": False}}
    parts = dict.fromkeys((*PARTS, "operator"), off)
    found = charts.render("sluicegate", {**parts, "jobs": off})
    assert of_kind(found, "NetworkPolicy") == []


def test_who_asks_the_api_server_has_a_token_and_nobody_else(platform: list[Document]) -> None:
    for pod in pods(platform):
        component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
        wants = component in {"operator", "volume"}
        assert pod["spec"]["automountServiceAccountToken"] is wants, pod["metadata"]["name"]


def test_every_container_has_requests_and_a_limit_of_memory(platform: list[Document]) -> None:
    for pod in pods(platform):
        for container in pod["spec"]["containers"]:
            found = container["resources"]
            assert {"cpu", "memory"} <= found["requests"].keys()
            assert "memory" in found["limits"]


def test_every_server_has_three_probes(platform: list[Document]) -> None:
    for found in (*of_kind(platform, "Deployment"), *of_kind(platform, "StatefulSet")):
        for container in found["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_what_has_more_than_one_pod_has_a_budget(platform: list[Document]) -> None:
    budgets = of_kind(platform, "PodDisruptionBudget")
    for found in (*of_kind(platform, "Deployment"), *of_kind(platform, "StatefulSet")):
        if found["spec"]["replicas"] > 1:
            pod = found["spec"]["template"]
            assert [b for b in budgets if selected(b, pod)], found["metadata"]["name"]


def test_each_part_has_a_test_of_its_own(default: list[Document]) -> None:
    asked = {d["metadata"]["name"] for d in of_kind(default, "Pod") if "test" in hooks_of(d)}
    assert asked == {f"sluicegate-{part}-test" for part in (*PARTS, "operator")}


def test_claims_outlive_their_release(platform: list[Document]) -> None:
    for found in of_kind(platform, "StatefulSet"):
        assert found["spec"]["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }


def test_no_password_is_in_a_manifest_but_a_secret(charts: Charts) -> None:
    word = "correct-horse-battery"
    auth = {"password": word, "rootPassword": word}
    found = charts.render("mysql", {"auth": auth, "tls": {"enabled": True}})
    said = [d["kind"] for d in found if word in json.dumps(d)]
    assert said == []


# --- by component ---------------------------------------------------------------------------------


def properties(found: list[Document]) -> dict[str, str]:
    lines = the(found, "ConfigMap", "sluicegate-kafka")["data"]["server.properties"].splitlines()
    return dict(line.split("=", 1) for line in lines if line)


@pytest.mark.parametrize(
    ("replicas", "copies", "least"), [(1, "1", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_transactions_of_kafka_are_kept_as_often_as_there_are_nodes_for(
    charts: Charts, replicas: int, copies: str, least: str
) -> None:
    found = properties(charts.render("kafka", {"replicas": replicas}))
    assert found["transaction.state.log.replication.factor"] == copies
    assert found["transaction.state.log.min.isr"] == least
    assert found["default.replication.factor"] == copies
    assert found["min.insync.replicas"] == least
    assert found["unclean.leader.election.enable"] == "false"


def test_the_nodes_that_elect_a_leader_are_named_by_the_names_of_their_pods(charts: Charts) -> None:
    found = properties(charts.render("kafka", {"replicas": 3}))
    hosts = "sluicegate-kafka-{0}.sluicegate-kafka-headless.sluicegate.svc:9093"
    wanted = [f"{number}@{hosts.format(number)}" for number in range(3)]
    assert found["controller.quorum.voters"].split(",") == wanted


def test_a_large_number_is_not_written_with_an_exponent(charts: Charts) -> None:
    found = charts.render("kafka", {"config": {"log.retention.bytes": 1073741824000}})
    assert properties(found)["log.retention.bytes"] == "1073741824000"


def test_the_identity_of_kafkas_cluster_is_16_bytes_and_stays(charts: Charts) -> None:
    def identity() -> str:
        found = the(charts.render("kafka"), "StatefulSet")
        (container,) = found["spec"]["template"]["spec"]["containers"]
        (text,) = (one["value"] for one in container["env"] if one["name"] == "KAFKA_CLUSTER_ID")
        assert isinstance(text, str)
        return text

    assert identity() == identity()
    assert re.fullmatch("[A-Za-z0-9_-]{21}[AQgw]", identity())


def test_mysql_loses_no_commit(default: list[Document]) -> None:
    text = the(default, "ConfigMap", "sluicegate-mysql")["data"]["my.cnf"]
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert settings["sync_binlog"] == "1"
    assert settings["innodb_flush_log_at_trx_commit"] == "1"
    assert "STRICT_ALL_TABLES" in settings["sql_mode"]


def test_production_has_three_nodes_of_kafka_on_three_nodes_of_the_cluster(charts: Charts) -> None:
    found = the(
        charts.render("sluicegate", file=VALUES["production"]), "StatefulSet", "sluicegate-kafka"
    )
    assert found["spec"]["replicas"] == 3
    (spread,) = found["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
