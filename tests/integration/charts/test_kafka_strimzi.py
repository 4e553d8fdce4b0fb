"""Kafka by the Strimzi operator: what its CRDs, Kafka and the jobs' drivers make of the rendered objects.

That Strimzi's own CRDs accept them is in test_accepted.py, with the other sets of values.
"""

from typing import Any

import pytest

from tests.integration.charts.rendering import (
    VALUES,
    Charts,
    Document,
    of_kind,
    only_of_kind,
)
from tests.integration.charts.test_accepted import collection_path
from tests.integration.operator.api import Api
from tests.integration.operator.rest_client import ApiRejection

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def strimzi(charts: Charts) -> list[Document]:
    """Render the umbrella chart with one value only."""
    return charts.render("sluicegate", {"kafka": {"mode": "strimzi"}})


def test_one_value_replaces_the_bundled_kafka(strimzi: list[Document]) -> None:
    kinds = {d["kind"] for d in strimzi if d["metadata"]["name"].startswith("sluicegate-kafka")}
    assert kinds == {"Kafka", "KafkaNodePool", "KafkaUser", "ConfigMap"}


def test_three_nodes_keep_what_two_of_them_acknowledged(strimzi: list[Document]) -> None:
    pool = only_of_kind(strimzi, "KafkaNodePool")["spec"]
    assert (pool["replicas"], pool["roles"]) == (3, ["controller", "broker"])
    (volume,) = pool["storage"]["volumes"]
    assert volume["deleteClaim"] is False
    config = only_of_kind(strimzi, "Kafka")["spec"]["kafka"]["config"]
    assert config["default.replication.factor"] == 3
    assert config["min.insync.replicas"] == 2
    assert config["transaction.state.log.replication.factor"] == 3
    assert config["transaction.state.log.min.isr"] == 2
    assert config["transaction.max.timeout.ms"] == 900000
    assert config["unclean.leader.election.enable"] is False
    assert config["offsets.retention.minutes"] == str(2**31 - 1)


def test_clients_need_a_certificate_and_have_only_the_rights_of_jobs(
    strimzi: list[Document],
) -> None:
    kafka = only_of_kind(strimzi, "Kafka")["spec"]["kafka"]
    (listener,) = kafka["listeners"]
    assert (listener["tls"], listener["authentication"]) == (True, {"type": "tls"})
    assert listener["networkPolicyPeers"]
    assert kafka["authorization"] == {"type": "simple"}
    (user,) = of_kind(strimzi, "KafkaUser")
    assert user["spec"]["authentication"] == {"type": "tls"}
    granted = {
        (acl["resource"]["type"], acl["resource"].get("name")): set(acl["operations"])
        for acl in user["spec"]["authorization"]["acls"]
    }
    assert granted["group", "sluicegate."] == {"Describe", "Read"}
    assert granted["transactionalId", "sluicegate."] == {"Describe", "Write"}
    assert not {"All", "Alter", "Delete"} & set().union(*granted.values())


def test_an_uninstall_keeps_what_holds_data(charts: Charts) -> None:
    for document in charts.render("sluicegate", file=VALUES["strimzi"]):
        if document["kind"] in ("Kafka", "KafkaNodePool", "KafkaTopic"):
            assert document["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_topic_whose_name_no_object_may_have_keeps_it(charts: Charts) -> None:
    documents = charts.render("sluicegate", file=VALUES["strimzi"])
    topics = {
        topic["spec"]["topicName"]: topic["metadata"]["name"]
        for topic in of_kind(documents, "KafkaTopic")
    }
    assert topics["clicks"] == "sluicegate-kafka-clicks"
    assert topics["Clicks_Dead"].startswith("sluicegate-kafka-clicks-dead-")


def test_drivers_reach_the_listener(strimzi: list[Document]) -> None:
    policy = only_of_kind(strimzi, "NetworkPolicy", "sluicegate-jobs")
    labels = {"strimzi.io/cluster": "sluicegate-kafka", "strimzi.io/kind": "Kafka"}
    rule = {"ports": [{"port": 9093}], "to": [{"podSelector": {"matchLabels": labels}}]}
    assert rule in policy["spec"]["egress"]
    data = only_of_kind(strimzi, "ConfigMap", "sluicegate-connections")["data"]
    assert data["SLUICEGATE_KAFKA"] == "sluicegate-kafka-kafka-bootstrap.sluicegate.svc:9093"


def test_a_driver_gets_the_file_from_what_strimzi_makes(
    charts: Charts, cluster: Api, strimzi: list[Document]
) -> None:
    """One projected volume; no password and no key passes through Helm, a hook or a person."""
    cluster_name = only_of_kind(strimzi, "Kafka")["metadata"]["name"]
    values = {"targets": "ip_count", "connections": {"strimzi": {"cluster": cluster_name}}}
    namespace = cluster.namespace()
    documents = charts.render("job", values, namespace=namespace)
    job = only_of_kind(documents, "StreamingJob")
    cluster.request("POST", f"{collection_path(job)}?dryRun=All&fieldValidation=Strict", job)
    targets = only_of_kind(documents, "Job")["spec"]["template"]["spec"]
    driver = job["spec"]["driver"]["template"]["spec"]
    for pod in (driver, targets):
        (volume,) = (v for v in pod["volumes"] if v["name"] == "kafka-client")
        files = {
            item["path"]: (source["secret"]["name"], item["key"])
            for source in volume["projected"]["sources"]
            if "secret" in source
            for item in source["secret"]["items"]
        }
        user = only_of_kind(strimzi, "KafkaUser")["metadata"]["name"]
        assert files == {
            "ca.crt": (f"{cluster_name}-cluster-ca-cert", "ca.crt"),
            "user.crt": (user, "user.crt"),
            "user.key": (user, "user.key"),
        }
        (container,) = pod["containers"]
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "kafka-client")
        config = {e["name"]: e.get("value") for e in container["env"]}["SLUICEGATE_KAFKA_CONFIG"]
        assert config == f"{mount['mountPath']}/kafka.properties"
        (client,) = (
            s["configMap"]["name"] for s in volume["projected"]["sources"] if "configMap" in s
        )
        lines = only_of_kind(strimzi, "ConfigMap", client)["data"]["kafka.properties"].splitlines()
        named = dict(line.split("=") for line in lines)
        assert named.pop("security.protocol") == "ssl"
        assert set(named.values()) == {f"{mount['mountPath']}/{file}" for file in files}


def test_a_misspelt_field_is_refused(cluster: Api, strimzi: list[Document]) -> None:
    """A control: Strimzi's schema is active, so its acceptance of our objects means something."""
    kafka: dict[str, Any] = only_of_kind(strimzi, "Kafka")
    spec = {**kafka["spec"], "kafka": {**kafka["spec"]["kafka"], "listener": []}}
    namespace = cluster.namespace()
    wrong = {**kafka, "spec": spec, "metadata": {"name": "wrong", "namespace": namespace}}
    with pytest.raises(ApiRejection, match=r"unknown field .*listener"):
        cluster.request(
            "POST", f"{collection_path(wrong)}?dryRun=All&fieldValidation=Strict", wrong
        )
