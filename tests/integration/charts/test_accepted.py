"""A real API server takes every manifest, and pod security `restricted` every pod.

Each is created with dryRun=All and strict fields: admission says what it would on a cluster.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.charts.rendering import VALUES, Charts, Document, pods
from tests.integration.operator.api import Api

pytestmark = pytest.mark.integration

_CORE = "/api/v1"
_FOLDERS = {"NetworkPolicy": "networkpolicies"}
_CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding"}

COMBINED: Mapping[str, Mapping[str, Any]] = {
    "object-store": {
        "tls": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "persistence": {"storageClass": "-", "annotations": {"a": "b"}},
    },
    "mysql": {
        "tls": {"enabled": True},
        "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"},
        "config": {"binlog_expire_logs_seconds": 1000000000},
    },
    "kafka": {
        "replicas": 3,
        "scram": {"enabled": True},
        "tls": {"existingSecret": "mine", "enabled": True},
        "topics": [{"name": "clicks", "partitions": 4, "config": {"retention.ms": 1000000000}}],
    },
    "collector": {"replicas": 2, "export": {"otlp": "tempo:4317", "insecure": True}},
    "operator": {
        "watch": {"all": False, "namespaces": ["restricted"], "secrets": ["checkpoint-store"]},
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        },
    },
    "job": {
        "targets": "ip_count",
        "account": {"create": True},
        "savepoint": {"enabled": True},
        "connections": {"mysql": {"authority": "mysql-tls"}},
        "spec": {"restartNonce": 1763780000, "upgradeMode": "Savepoint"},
    },
}
"""Values of single charts with all that can be on."""

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
    """Give a namespace that takes restricted pods only."""
    enforced = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    meta = {"name": "restricted", "labels": enforced}
    cluster.request("POST", f"{_CORE}/namespaces", {"metadata": meta})
    return "restricted"


def place_of(document: Document) -> str:
    """Return where a manifest is posted to."""
    version, kind = document["apiVersion"], document["kind"]
    api = _CORE if version == "v1" else f"/apis/{version}"
    plural = _FOLDERS.get(kind, f"{kind.lower()}s")
    if kind in _CLUSTER_WIDE:
        return f"{api}/{plural}"
    return f"{api}/namespaces/{document['metadata']['namespace']}/{plural}"


def try_all(cluster: Api, documents: list[Document], namespace: str) -> Iterator[str]:
    """Create everything, and each pod, without effect; yield the kinds."""
    for found in documents:
        if found["kind"] == "CustomResourceDefinition":
            continue  # those of operators/crds, which are there
        cluster.request("POST", f"{place_of(found)}?dryRun=All&fieldValidation=Strict", found)
        yield found["kind"]
    for pod in pods(documents):
        where = f"{_CORE}/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
        cluster.request(
            "POST", where, {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}
        )


@pytest.mark.parametrize("values", VALUES)
def test_the_platform_is_taken_in_a_restricted_namespace(
    charts: Charts, cluster: Api, restricted: str, values: str
) -> None:
    documents = charts.render(
        "sluicegate", file=VALUES[values], release="accepted", namespace=restricted
    )
    kinds = set(try_all(cluster, documents, restricted))
    assert {"Deployment", "NetworkPolicy", "PodDisruptionBudget", "Job"} <= kinds


@pytest.mark.parametrize("chart", COMBINED)
def test_a_chart_with_all_that_can_be_on_is_taken(
    charts: Charts, cluster: Api, restricted: str, chart: str
) -> None:
    anywhere = {} if chart == "job" else ANYWHERE
    documents = charts.render(
        chart, {**anywhere, **COMBINED[chart]}, release="accepted", namespace=restricted
    )
    assert set(try_all(cluster, documents, restricted))


def test_a_pod_that_is_not_restricted_would_have_been_refused(
    cluster: Api, restricted: str
) -> None:
    """The other tests say something: admission is at work."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": restricted},
        "spec": {"containers": [{"name": "root", "image": "none"}]},
    }
    with pytest.raises(Exception, match="violates PodSecurity"):
        list(try_all(cluster, [pod], restricted))
