"""The manifests of the servers: what Kafka and MySQL are set to, and what a user adds to their pods."""

import re
from typing import Any

import pytest

from tests.integration.charts.rendering import (
    PARTS,
    VALUES,
    Charts,
    Document,
    of_kind,
    only_of_kind,
    pods,
)

WORKLOADS = ("Deployment", "StatefulSet", "Job")


@pytest.fixture(scope="module")
def default(charts: Charts) -> list[Document]:
    return charts.render("sluicegate")


# --- Kafka and MySQL ------------------------------------------------------------------------------


def server_properties(documents: list[Document]) -> dict[str, str]:
    nodes = only_of_kind(documents, "StatefulSet")["spec"]["replicas"]
    config_map = only_of_kind(documents, "ConfigMap", f"sluicegate-kafka-{nodes}-nodes")
    lines = config_map["data"]["server.properties"].splitlines()
    return dict(line.split("=", 1) for line in lines if line)


@pytest.mark.parametrize(("replicas", "flushed"), [(1, "1"), (3, None)])
def test_kafkas_only_node_flushes_what_it_acknowledges(
    charts: Charts, replicas: int, flushed: str | None
) -> None:
    settings = server_properties(charts.render("kafka", {"replicas": replicas}))
    assert settings.get("log.flush.interval.messages") == flushed


@pytest.mark.parametrize(
    ("replicas", "replication", "min_isr"), [(1, "1", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_kafkas_transactions_are_replicated_on_as_many_nodes_as_possible(
    charts: Charts, replicas: int, replication: str, min_isr: str
) -> None:
    settings = server_properties(charts.render("kafka", {"replicas": replicas}))
    assert settings["transaction.state.log.replication.factor"] == replication
    assert settings["transaction.state.log.min.isr"] == min_isr
    assert settings["default.replication.factor"] == replication
    assert settings["min.insync.replicas"] == min_isr
    assert settings["unclean.leader.election.enable"] == "false"


def test_a_kafka_node_is_ready_only_when_its_replicas_are_in_sync(charts: Charts) -> None:
    """A rolling restart stops the next node as soon as this one is ready."""
    documents = charts.render("kafka", {"replicas": 3})
    (container,) = only_of_kind(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    command = container["readinessProbe"]["exec"]["command"]
    assert command[-1] == "/etc/kafka/scripts/ready.sh"
    policy = only_of_kind(documents, "NetworkPolicy", "sluicegate-kafka")
    assert {"port": 9092} in policy["spec"]["egress"][-1]["ports"]


def test_the_recovery_of_a_kafka_node_is_given_a_day(charts: Charts) -> None:
    documents = charts.render("kafka", {})
    (container,) = only_of_kind(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600


def test_a_kafka_node_is_told_its_zone(charts: Charts) -> None:
    """Kubernetes copies the label of the node to the pod, which needs no right on nodes."""
    documents = charts.render("kafka", {"replicas": 3})
    (container,) = only_of_kind(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    (rack,) = (variable for variable in container["env"] if variable["name"] == "KAFKA_RACK")
    path = "metadata.labels['topology.kubernetes.io/zone']"
    assert rack["valueFrom"] == {"fieldRef": {"fieldPath": path}}


def test_temporary_folders_of_kafka_are_bounded(charts: Charts) -> None:
    documents = charts.render("kafka", {"topics": [{"name": "clicks"}]})
    for pod in pods(documents):
        for volume in pod["spec"]["volumes"]:
            assert volume.get("emptyDir") is None or volume["emptyDir"]["sizeLimit"]


def test_kafka_retains_markers_for_as_long_as_it_can(charts: Charts) -> None:
    settings = server_properties(charts.render("kafka", {}))
    assert settings["offsets.retention.minutes"] == str(2**31 - 1)


def test_kafkas_quorum_voters_are_named_after_their_pods(charts: Charts) -> None:
    settings = server_properties(charts.render("kafka", {"replicas": 3}))
    hosts = "sluicegate-kafka-{0}.sluicegate-kafka-headless.sluicegate.svc:9093"
    voters = [f"{number}@{hosts.format(number)}" for number in range(3)]
    assert settings["controller.quorum.voters"].split(",") == voters


def test_a_large_number_is_not_written_with_an_exponent(charts: Charts) -> None:
    documents = charts.render("kafka", {"config": {"log.retention.bytes": 1073741824000}})
    assert server_properties(documents)["log.retention.bytes"] == "1073741824000"


def test_the_cluster_id_of_several_nodes_is_16_bytes_and_stable(charts: Charts) -> None:
    """A single node draws its own, with its first volume."""

    def cluster_id(replicas: int) -> list[str]:
        stateful_set = only_of_kind(charts.render("kafka", {"replicas": replicas}), "StatefulSet")
        (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
        return [
            variable["value"]
            for variable in container["env"]
            if variable["name"] == "KAFKA_CLUSTER_ID"
        ]

    (drawn,) = cluster_id(3)
    assert cluster_id(3) == [drawn]
    assert re.fullmatch("[A-Za-z0-9_-]{21}[AQgw]", drawn)
    assert cluster_id(1) == []


def test_mysql_loses_no_commit(default: list[Document]) -> None:
    text = only_of_kind(default, "ConfigMap", "sluicegate-mysql")["data"]["my.cnf"]
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert settings["sync_binlog"] == "1"
    assert settings["innodb_flush_log_at_trx_commit"] == "1"
    assert "STRICT_ALL_TABLES" in settings["sql_mode"]


@pytest.fixture(scope="module")
def production(charts: Charts) -> list[Document]:
    return charts.render("sluicegate", file=VALUES["production"])


def test_production_spreads_three_kafka_brokers_over_nodes_and_zones(
    production: list[Document],
) -> None:
    pool = only_of_kind(production, "KafkaNodePool")
    assert pool["spec"]["replicas"] == 3
    pod = pool["spec"]["template"]["pod"]
    spreads = {s["topologyKey"]: s for s in pod["topologySpreadConstraints"]}
    assert spreads["kubernetes.io/hostname"]["whenUnsatisfiable"] == "DoNotSchedule"
    assert "topology.kubernetes.io/zone" in spreads
    for spread in spreads.values():
        selected = spread["labelSelector"]["matchLabels"]
        assert selected["strimzi.io/pool-name"] == pool["metadata"]["name"]
    rack = only_of_kind(production, "Kafka")["spec"]["kafka"]["rack"]
    assert rack["topologyKey"] == "topology.kubernetes.io/zone"


def test_production_has_no_evaluation_service(production: list[Document]) -> None:
    """Neither Kafka, MySQL nor the object store of these charts; no budget blocks a drain."""
    assert of_kind(production, "StatefulSet") == []
    for budget in of_kind(production, "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1


def test_production_kafka_has_logins_and_tls(production: list[Document]) -> None:
    kafka = only_of_kind(production, "Kafka")["spec"]["kafka"]
    assert kafka["authorization"]["type"] == "simple"
    for listener in kafka["listeners"]:
        assert listener["tls"]
        assert listener["authentication"]["type"] == "tls"


# --- what a user adds to the pods of servers ------------------------------------------------------


@pytest.mark.parametrize("chart", [*PARTS, "console", "operator"])
def test_a_user_may_add_to_the_pod_of_a_server(charts: Charts, chart: str) -> None:
    """Variables, volumes, containers, probes and the update strategy, as in other charts."""
    values: dict[str, Any] = {
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraEnvFrom": [{"secretRef": {"name": "more"}}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "initContainers": [{"name": "first", "image": "first"}],
        "sidecars": [{"name": "second", "image": "second"}],
        "probes.liveness": {"tcpSocket": {"port": 1}},
        "updateStrategy": {"type": "OnDelete" if chart in PARTS[:3] else "Recreate"},
        **({"watch.all": True} if chart == "operator" else {}),
        **({"addresses": ["s3://checkpoints"]} if chart == "console" else {}),
    }
    documents = charts.render(chart, values)
    (workload,) = [
        d
        for d in documents
        if d["kind"] in WORKLOADS and not d["metadata"].get("annotations", {}).get("helm.sh/hook")
    ]
    pod = workload["spec"]["template"]["spec"]
    main, second = pod["containers"]
    assert values["extraEnv"][0] in main["env"]
    assert main["envFrom"] == values["extraEnvFrom"]
    assert values["extraVolumes"][0] in pod["volumes"]
    assert values["extraVolumeMounts"][0] in main["volumeMounts"]
    assert [c["name"] for c in pod["initContainers"]] == ["first"]
    assert second["name"] == "second"
    assert main["livenessProbe"] == values["probes.liveness"]
    assert "initialDelaySeconds" not in main["readinessProbe"]
    strategy = workload["spec"].get("updateStrategy") or workload["spec"]["strategy"]
    assert strategy == values["updateStrategy"]


def test_user_and_group_of_every_pod_can_be_left_to_openshift(charts: Charts) -> None:
    """The constraint restricted-v2 assigns them, and refuses pods that name their own."""
    none = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    values = {f"{chart}.podSecurityContext": none for chart in (*PARTS, "operator")}
    documents = charts.render("sluicegate", {**values, "podSecurityContext": none})
    for pod in pods(documents):
        assert set(pod["spec"]["securityContext"]) == {
            "runAsNonRoot",
            "fsGroupChangePolicy",
            "seccompProfile",
        }


def test_hooks_and_tests_run_on_the_nodes_of_their_servers(charts: Charts) -> None:
    """On a cluster whose nodes are all tainted, `helm install` and `helm test` would hang."""
    placed = {
        "nodeSelector": {"pool": "streams"},
        "tolerations": [{"key": "streams", "operator": "Exists"}],
    }
    keys = [f"{part}.{key}" for part in (*PARTS, "operator", "hooks") for key in placed]
    documents = charts.render("sluicegate", {key: placed[key.partition(".")[2]] for key in keys})
    for pod in pods(documents):
        assert {key: pod["spec"].get(key) for key in placed} == placed, pod["metadata"]


@pytest.mark.parametrize("chart", ["mysql", "object-store"])
def test_an_existing_claim_is_used(charts: Charts, chart: str) -> None:
    documents = charts.render(chart, {"persistence.existingClaim": "theirs"})
    (server,) = of_kind(documents, "StatefulSet")
    assert "volumeClaimTemplates" not in server["spec"]
    claim = {"claimName": "theirs"}
    assert {"name": "data", "persistentVolumeClaim": claim} in server["spec"]["template"]["spec"][
        "volumes"
    ]


@pytest.mark.parametrize("chart", PARTS)
def test_a_service_can_be_reached_from_outside(charts: Charts, chart: str) -> None:
    values = {"service.type": "LoadBalancer", "service.annotations": {"internal": "true"}}
    service = only_of_kind(charts.render(chart, values), "Service", f"sluicegate-{chart}")
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {"internal": "true"}
