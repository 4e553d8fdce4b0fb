"""Values that contradict each other are rejected with a message that names them and the remedy."""

from typing import Any

import pytest

from tests.integration.charts.rendering import Charts

DISABLED = {"enabled": False}
USER = {"name": "a", "bucket": "shared", "prefix": "shop"}

REJECTED: list[tuple[str, dict[str, Any], str]] = [
    (
        "sluicegate",
        {"external": {"kafka": {"bootstrapServers": "k:9092"}}},
        "external.kafka.bootstrapServers is set but kafka.mode is bundled",
    ),
    (
        "sluicegate",
        {"kafka": {"mode": "strimzi"}, "external": {"kafka": {"bootstrapServers": "k:9092"}}},
        "external.kafka.bootstrapServers is set but kafka.mode is strimzi",
    ),
    (
        "sluicegate",
        {"kafka": {"mode": "strimzi", "enabled": False}},
        "kafka.mode is strimzi but kafka.enabled is false",
    ),
    ("sluicegate", {"kafka": {"mode": "external"}}, "jobs would have no Kafka"),
    ("kafka", {"mode": "strimzi", "scram": {"enabled": True}}, "both are of mode bundled"),
    ("kafka", {"mode": "strimzi", "strimzi": {"users": []}}, "no job could log in"),
    ("kafka", {"scram": {"enabled": True}}, "Set tls.enabled; or"),
    ("kafka", {"mode": "own"}, "value must be one of 'bundled', 'strimzi', 'external'"),
    (
        "sluicegate",
        {"external": {"mysql": {"existingSecret": "m"}}},
        "external.mysql.existingSecret is set but mysql.enabled is true",
    ),
    (
        "sluicegate",
        {"external": {"objectStore": {"endpoint": "http://s3"}}},
        "external.objectStore is set but object-store.enabled is true",
    ),
    (
        "sluicegate",
        {"external": {"collector": {"endpoint": "http://c"}}},
        "external.collector.endpoint is set but collector.enabled is true",
    ),
    ("sluicegate", {"kafka": DISABLED}, "jobs would have no Kafka"),
    ("sluicegate", {"mysql": DISABLED}, "jobs would have no MySQL"),
    ("sluicegate", {"object-store": DISABLED}, "checkpoints would have no store"),
    (
        "sluicegate",
        {"checkpointVolume": {"reclaimPolicy": "Delete"}},
        "a whole bucket is never emptied",
    ),
    ("kafka", {"tls": {"existingSecret": "t"}}, "Set tls.enabled"),
    (
        "kafka",
        {
            "tls": {
                "enabled": True,
                "existingSecret": "t",
                "certManager": {"issuerRef": {"name": "i"}},
            }
        },
        "Remove one of them",
    ),
    ("mysql", {"tls": {"certManager": {"issuerRef": {"name": "i"}}}}, "Set tls.enabled"),
    ("kafka", {"scram": {"existingSecret": "s"}}, "Set scram.enabled"),
    ("kafka", {"scram": {"enabled": True, "users": ["broker"]}}, "the user of the brokers"),
    ("kafka", {"config": {"listeners": "X://:1"}}, "config.listeners is set by the chart"),
    (
        "kafka",
        {"config": {"default.replication.factor": 3}},
        "config.default.replication.factor is 3, but there are 1 nodes",
    ),
    (
        "kafka",
        {"topics": [{"name": "clicks", "replicationFactor": 3}]},
        "topics.clicks.replicationFactor is 3, but there are 1 nodes",
    ),
    ("kafka", {"replicas": 2}, "value must be one of 1, 3, 5"),
    (
        "kafka",
        {"metrics": {"podMonitor": {"enabled": True}}},
        "kafka: metrics.podMonitor.enabled is true and no metrics are served",
    ),
    (
        "kafka",
        {"mode": "strimzi", "metrics": {"enabled": True}},
        "these nodes are not this chart's",
    ),
    (
        "mysql",
        {"metrics": {"podMonitor": {"enabled": True}}},
        "mysql: metrics.podMonitor.enabled is true and no metrics are served",
    ),
    ("mysql", {"backup": {"enabled": True}}, "backups have no place"),
    (
        "mysql",
        {"backup": {"enabled": True, "existingClaim": "c", "s3": {"bucket": "b"}}},
        "backup.s3.bucket and backup.existingClaim are both set",
    ),
    ("mysql", {"tls": {"existingSecret": "t"}}, "Set tls.enabled"),
    ("mysql", {"config": {"sync_binlog": 0}}, "config.sync_binlog is set by the chart"),
    (
        "mysql",
        {"config": {"innodb-flush-log-at-trx-commit": 2}},
        "config.innodb-flush-log-at-trx-commit is set by the chart",
    ),
    ("mysql", {"config": {"loose_sync_binlog": 0}}, "config.loose_sync_binlog is set by the chart"),
    ("mysql", {"config": {"skip-log-bin": True}}, "config.skip-log-bin is set by the chart"),
    ("mysql", {"config": {"Skip-Innodb-Doublewrite": 1}}, "is set by the chart"),
    ("mysql", {"config": {"skip-grant-tables": 1}}, "would weaken durability or access control"),
    ("mysql", {"config": {"innodb_flush_method": "nosync"}}, "may lose acknowledged commits"),
    ("mysql", {"config": {"loose-innodb-flush-method": "littlesync"}}, "may lose acknowledged"),
    ("mysql", {"config": {"max_connections": 9}}, "use maxConnections"),
    ("console", {}, "there would be nothing to show"),
    ("object-store", {"tls": {"existingSecret": "t"}}, "Set tls.enabled"),
    (
        "object-store",
        {"users": [{"name": "a", "bucket": "shared"}, {"name": "a", "bucket": "own"}]},
        "two users are named a",
    ),
    (
        "object-store",
        {"users": [USER, {**USER, "name": "b", "prefix": "shop/eu"}]},
        "could erase the other's checkpoints",
    ),
    (
        "object-store",
        {"users": [{**USER, "namespace": "shop", "existingSecret": "mine"}]},
        "Create the Secret in both namespaces",
    ),
    ("sluicegate", {"checkpointVolume": {"bucket": "other"}}, "object-store.users"),
    ("operator", {"watch": {"all": True, "namespaces": ["shop"]}}, "watch.all is true"),
    ("operator", {}, "Name the namespaces of your jobs, or set watch.all"),
    ("operator", {"watch": {"namespaces": ["sluicegate"]}}, "the operator's own namespace"),
    ("sluicegate", {"operator": {"namespace": {"name": ""}}}, "the operator's own namespace"),
    (
        "sluicegate",
        {"operator": {"namespace": {"name": ""}, "watch": {"ownNamespace": True}}},
        "Set operator.namespace.create to false",
    ),
    (
        "sluicegate",
        {"operator": {"namespace": {"name": ""}, "watch": {"namespaces": ["jobs"]}}},
        "Set operator.namespace.create to false",
    ),
    (
        "sluicegate",
        {"object-store": {"enabled": False}, "external": {"objectStore": {"region": "eu-west-1"}}},
        "operator.ambientIdentity",
    ),
    ("collector", {"export": {"headers": {"a": "b"}}}, "there is no backend"),
    ("collector", {"replicas": 2}, "a trace would be spread"),
    (
        "collector",
        {"config": {"a": 1}, "export": {"otlp": "x:4317"}},
        "export would have no effect",
    ),
    (
        "job",
        {"connections": {"kafkaConfig": "s", "strimzi": {"cluster": "c"}}},
        "a driver reads one kafka.properties",
    ),
    ("job", {"spec": {"mainFile": "/job.py"}}, "has mainModule (sluicegate.cli) and mainFile"),
    ("job", {"spec": {"mainModule": None}}, "neither mainModule nor mainFile"),
    (
        "job",
        {"account": {"create": True}, "spec": {"serviceAccount": "mine"}},
        "account.create is true and spec.serviceAccount is mine",
    ),
    (
        "job",
        {"connections": {"enabled": False, "kafka": "k:9092"}},
        "they would have no effect",
    ),
    (
        "job",
        {"connections": {"mysql": {"enabled": False, "secret": "m"}}},
        "connections.mysql.enabled is false",
    ),
    ("job", {"metrics": {"podMonitor": {"enabled": True}}}, "Set spec.epochs.metricsPort"),
    ("job", {"fullnameOverride": "x" * 53}, "fullnameOverride"),
]


@pytest.mark.parametrize(
    ("chart", "values", "message"),
    REJECTED,
    ids=[f"{chart}: {message}" for chart, _, message in REJECTED],
)
def test_contradicting_values_are_rejected(
    charts: Charts, chart: str, values: dict[str, Any], message: str
) -> None:
    assert message in charts.refusal(chart, values)
