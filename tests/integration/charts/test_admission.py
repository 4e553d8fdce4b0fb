"""The admission policy of the operator's chart on a real API server: which pods a driver may create."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.charts.rendering import Charts, only_of_kind
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.rest_client import ApiRejection, Object

pytestmark = pytest.mark.integration

_POLICIES = "/apis/admissionregistration.k8s.io/v1"
_POLICY = "admission-operator-drivers.sluicegate"
_ACCOUNT = "sluicegate-driver"

CreatePod = Callable[[Object], Object]


@pytest.fixture(scope="module")
def as_driver(charts: Charts, cluster: Api) -> Iterator[tuple[CreatePod, Object]]:
    """Yield a request with the token of the driver clicks-3-driver, and an executor as Spark creates it.

    The policy is active, and the driver has the permissions that the chart grants.
    """
    namespace = cluster.namespace()
    values: dict[str, Any] = {"watch": {"namespaces": [namespace]}, "driverAccounts": [namespace]}
    documents = charts.render("operator", values, release="admission")
    for kind, plural in (
        ("ServiceAccount", "serviceaccounts"),
        ("Role", "roles"),
        ("RoleBinding", "rolebindings"),
    ):
        body = only_of_kind(documents, kind, _ACCOUNT)
        group = "/api/v1" if kind == "ServiceAccount" else f"/apis/{body['apiVersion']}"
        cluster.request("POST", f"{group}/namespaces/{namespace}/{plural}", body)
    container = {"name": "driver", "image": "none"}
    pod = {
        "metadata": {"name": "clicks-3-driver"},
        "spec": {"serviceAccountName": _ACCOUNT, "containers": [container]},
    }
    driver = cluster.create_core(namespace, "pods", pod)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{_ACCOUNT}/token"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "clicks-3-driver"}
    bound["uid"] = driver["metadata"]["uid"]
    request = {"spec": {"boundObjectRef": bound}}
    token = cluster.request("POST", path, request)["status"]["token"]

    client = Api(cluster.server)
    client._headers = {"Authorization": f"Bearer {token}"}

    def create(body: Object) -> Object:
        return client.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)

    executor = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "clicks-3-exec-1",
            "labels": {"sluicegate.dev/role": "executor", "spark-role": "executor"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "clicks-3-driver",
                    "uid": driver["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "serviceAccountName": _ACCOUNT,
            "automountServiceAccountToken": False,
            "containers": [{"name": "executor", "image": "none"}],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ):
        made = cluster.request(
            "POST", f"{_POLICIES}/{plural}?fieldValidation=Strict", only_of_kind(documents, kind)
        )
        assert made["metadata"]["name"] == _POLICY
    hostile = changed(executor, spec={"hostNetwork": True})

    def active() -> bool:
        try:
            create(hostile)
        except ApiRejection as refusal:
            return _POLICY in str(refusal)
        return False

    eventually(active, within_s=30.0)
    yield create, executor
    for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        cluster.request("DELETE", f"{_POLICIES}/{plural}/{_POLICY}")


def changed(
    pod: Object, metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None
) -> Object:
    """Return a pod with other fields."""
    made = copy.deepcopy(pod)
    made["metadata"] |= metadata or {}
    made["spec"] |= spec or {}
    return made


def contained(**security: object) -> dict[str, Any]:
    return {"containers": [{"name": "x", "image": "none", "securityContext": security}]}


def token(audience: str) -> dict[str, Any]:
    source = {"serviceAccountToken": {"path": "token", "audience": audience}}
    return {"volumes": [{"name": "token", "projected": {"sources": [source]}}]}


OTHER_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "orders-1-driver", "uid": "x"}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "the operator's account": (
        {"spec": {"serviceAccountName": "operator"}},
        "ServiceAccount of its",
    ),
    "no role": ({"metadata": {"labels": {}}}, "may only create executors"),
    "a driver": (
        {"metadata": {"labels": {"sluicegate.dev/role": "driver"}}},
        "may only create executors",
    ),
    "no owner": ({"metadata": {"ownerReferences": []}}, "be owned by it"),
    "another driver's": (
        {"metadata": {"name": "orders-1-exec-1", "ownerReferences": [OTHER_OWNER]}},
        "be owned by it",
    ),
    "another name": ({"metadata": {"name": "sluicegate-operator-1"}}, "must be named after"),
    "a token": ({"spec": {"automountServiceAccountToken": True}}, "must not have a token"),
    "a projected token": ({"spec": token("")}, "must not have a token"),
    "the node's disk": (
        {"spec": {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}},
        "must not use disks",
    ),
    "the node's network": ({"spec": {"hostNetwork": True}}, "must not use disks, network"),
    "the node's processes": ({"spec": {"hostPID": True}}, "must not use disks, network"),
    # privileged is not among them: the tests' API server refuses it from everybody
    "escalation": ({"spec": contained(allowPrivilegeEscalation=True)}, "must not be privileged"),
    "capability": ({"spec": contained(capabilities={"add": ["NET_ADMIN"]})}, "add capabilities"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_driver_cannot_create(case: str, as_driver: tuple[CreatePod, Object]) -> None:
    """RBAC lets it create any pod of its namespace; C1 used that to run as another account."""
    create, executor = as_driver
    change, message = REFUSED[case]
    with pytest.raises(ApiRejection, match=message):
        create(changed(executor, **change))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec": token("sts.amazonaws.com")},
        {"spec": contained(privileged=False, capabilities={"drop": ["ALL"]})},
        {"metadata": {"name": "clicks-3-exec-120"}},
    ],
    ids=["as Spark does", "cloud identity", "restricted", "the 120th"],
)
def test_a_driver_can_create_its_executors(
    change: dict[str, Any], as_driver: tuple[CreatePod, Object]
) -> None:
    create, executor = as_driver
    assert create(changed(executor, **change))["metadata"]["name"].startswith("clicks-3-exec-")


def test_the_policy_does_not_concern_others(
    cluster: Api, as_driver: tuple[CreatePod, Object]
) -> None:
    _, executor = as_driver
    pod = changed(executor, spec={"hostNetwork": True})
    namespace = cluster.namespace()
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
