"""A real API server accepts every manifest, and Pod Security `restricted` admits every pod.

Each is created with dryRun=All and strict field validation, so admission decides as on a cluster.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.charts.rendering import VALUES, Charts, Document, pods
from tests.integration.operator.api import Api

pytestmark = pytest.mark.integration

_CORE = "/api/v1"
_PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
_CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}

COMBINED: Mapping[str, Mapping[str, Any]] = {
    "object-store": {
        "tls": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "persistence": {"storageClass": "-", "annotations": {"a": "b"}},
        "users": [
            {"name": "shop", "bucket": "shared", "prefix": "shop", "namespace": "restricted"}
        ],
    },
    "mysql": {
        "tls": {"enabled": True},
        "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"},
        "config": {"binlog_expire_logs_seconds": 1000000000},
        "backup": {"enabled": True, "existingClaim": "backups"},
        "metrics": {"enabled": True, "podMonitor": {"enabled": True}},
        "upgrade": {"allow": True},
    },
    "kafka": {
        "replicas": 3,
        "scram": {"enabled": True},
        "tls": {"existingSecret": "mine", "enabled": True},
        "topics": [{"name": "clicks", "partitions": 4, "config": {"retention.ms": 1000000000}}],
        "metrics": {"enabled": True, "podMonitor": {"enabled": True}},
    },
    "collector": {"replicas": 2, "export": {"otlp": "tempo:4317", "insecure": True}},
    "console": {
        "addresses": ["s3://checkpoints/streams"],
        "store": {
            "endpoint": "https://s3.example.com:9000",
            "existingSecret": "read-only",
            "authoritySecret": "store-ca",
        },
        "traceURL": "https://jaeger.example.com/trace/{trace_id}",
        "price": {"coreHour": 0.03, "gibHour": 0.004},
        "history": {"enabled": True, "address": "s3://checkpoints/streams/spark-events"},
        "actions": {
            "enabled": True,
            "proxySecret": "login-proxy",
            "groups": ["shop-oncall"],
            "namespaces": ["restricted"],
        },
    },
    "operator": {
        "watch": {"namespaces": ["restricted"], "secrets": ["checkpoint-store"]},
        "namespace": {"name": "restricted-operator", "create": True},
        "ambientIdentity": ["restricted=s3://checkpoints/streams"],
        "storeEndpoints": ["https://s3.example.com"],
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
            "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
        },
    },
    "job": {
        "targets": "ip_count",
        "account": {"create": True},
        "savepoint": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "connections": {"mysql": {"authority": "mysql-tls"}},
        "metrics": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
        },
        "spec": {
            "restartNonce": 1763780000,
            "upgradeMode": "Savepoint",
            "epochs": {"metricsPort": 9464},
        },
    },
}
"""Values of single charts with every option enabled."""

ANYWHERE: Mapping[str, Any] = {
    "imagePullSecrets": ["registry"],
    "nodeSelector": {"pool": "streams"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}
                ]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "podAnnotations": {"team": "streams"},
    "podLabels": {"team": "streams"},
    "priorityClassName": "",
    "commonLabels": {"cost": "42"},
}
"""Values that every chart with pods has."""


@pytest.fixture(scope="module")
def restricted(cluster: Api) -> str:
    """Create a namespace that admits only restricted pods; return its name."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    metadata = {"name": "restricted", "labels": labels}
    cluster.request("POST", f"{_CORE}/namespaces", {"metadata": metadata})
    operators = {**metadata, "name": "restricted-operator"}  # the chart's own name for it
    cluster.request("POST", f"{_CORE}/namespaces", {"metadata": operators})
    return "restricted"


def collection_path(document: Document) -> str:
    """Return the API path to which a manifest is posted."""
    version, kind = document["apiVersion"], document["kind"]
    api = _CORE if version == "v1" else f"/apis/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    if kind in _CLUSTER_SCOPED:
        return f"{api}/{plural}"
    return f"{api}/namespaces/{document['metadata']['namespace']}/{plural}"


def dry_run_all(cluster: Api, documents: list[Document], namespace: str) -> Iterator[str]:
    """Create all manifests and their pods as a dry run; yield the kinds."""
    for document in documents:
        if document["kind"] in ("CustomResourceDefinition", "Namespace"):
            continue  # both exist already
        cluster.request(
            "POST", f"{collection_path(document)}?dryRun=All&fieldValidation=Strict", document
        )
        yield document["kind"]
    for pod in pods(documents):
        path = f"{_CORE}/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
        cluster.request(
            "POST", path, {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}
        )


@pytest.mark.parametrize("values", VALUES)
def test_the_platform_is_accepted_in_a_restricted_namespace(
    charts: Charts, cluster: Api, restricted: str, values: str
) -> None:
    documents = charts.render(
        "sluicegate", file=VALUES[values], release="accepted", namespace=restricted
    )
    kinds = set(dry_run_all(cluster, documents, restricted))
    assert {"Deployment", "NetworkPolicy", "PodDisruptionBudget", "Job"} <= kinds


@pytest.mark.parametrize("chart", COMBINED)
def test_a_chart_with_every_option_enabled_is_accepted(
    charts: Charts, cluster: Api, restricted: str, chart: str
) -> None:
    anywhere = {} if chart == "job" else ANYWHERE
    documents = charts.render(
        chart, {**anywhere, **COMBINED[chart]}, release="accepted", namespace=restricted
    )
    assert set(dry_run_all(cluster, documents, restricted))


def test_a_pod_that_is_not_restricted_is_rejected(cluster: Api, restricted: str) -> None:
    """A control: admission is active, so the other tests are meaningful."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": restricted},
        "spec": {"containers": [{"name": "root", "image": "none"}]},
    }
    with pytest.raises(Exception, match="violates PodSecurity"):
        list(dry_run_all(cluster, [pod], restricted))
