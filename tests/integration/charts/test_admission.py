"""The admission policy of the operator's chart on a real API server: which pods a driver may create."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.integration.charts.rendering import Charts, only_of_kind
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.rest_client import ApiRejection, Object

pytestmark = pytest.mark.integration

_POLICIES = "/apis/admissionregistration.k8s.io/v1"
_POLICY = "admission-operator-drivers.sluicegate"
_ACCOUNT = "sluicegate-driver"

OPERATOR, OTHER_EXECUTOR = "sluicegate-operator-crds-abc", "orders-3-exec-1"


@dataclass(frozen=True)
class Driver:
    """Requests with the token of clicks-3-driver; `executor` is as Spark creates it."""

    api: Api
    pods: str
    executor: Object

    def create(self, body: Object) -> Object:
        return self.api.request("POST", f"{self.pods}?dryRun=All", body)

    def change(self, name: str, body: Object) -> Object:
        kind = "application/strategic-merge-patch+json"
        return self.api.request("PATCH", f"{self.pods}/{name}?dryRun=All", body, content=kind)

    def delete(self, name: str) -> Object:
        return self.api.request("DELETE", f"{self.pods}/{name}?dryRun=All")


@pytest.fixture(scope="module")
def as_driver(charts: Charts, cluster: Api) -> Iterator[Driver]:
    """Yield the driver clicks-3-driver; in its namespace there are an executor of its own and two foreign pods.

    The policy is active, and the driver has the permissions that the chart grants.
    """
    namespace = cluster.namespace()
    values: dict[str, Any] = {
        "watch": {"namespaces": [namespace]},
        "driverAccounts": [namespace],
        "admissionPolicy": {"exceptAccounts": [f"{namespace}/spark-driver"]},
    }
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
    for name in (OPERATOR, OTHER_EXECUTOR):
        cluster.create_core(namespace, "pods", changed(executor, {"name": name}))
    cluster.create_core(namespace, "pods", executor)
    as_driver = Driver(client, f"/api/v1/namespaces/{namespace}/pods", executor)
    hostile = changed(executor, {"name": "clicks-3-exec-2"}, {"hostNetwork": True})

    def active() -> bool:
        try:
            as_driver.create(hostile)
        except ApiRejection as refusal:
            return _POLICY in str(refusal)
        return False

    eventually(active, within_s=30.0)
    yield as_driver
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
def test_a_driver_cannot_create(case: str, as_driver: Driver) -> None:
    """RBAC lets it create any pod of its namespace; C1 used that to run as another account."""
    change, message = REFUSED[case]
    with pytest.raises(ApiRejection, match=message):
        as_driver.create(changed(as_driver.executor, **change))


@pytest.mark.parametrize("pod", ["clicks-3-exec-1", OPERATOR])
def test_a_driver_cannot_change_the_image_of_a_pod(pod: str, as_driver: Driver) -> None:
    """RBAC lets it patch any pod; a container that restarts would run its image with that pod's token."""
    image = {"spec": {"containers": [{"name": "executor", "image": "mine"}]}}
    with pytest.raises(ApiRejection, match="must not change the spec"):
        as_driver.change(pod, image)


@pytest.mark.parametrize("pod", [OPERATOR, OTHER_EXECUTOR])
def test_a_driver_can_neither_label_nor_delete_the_pod_of_another(
    pod: str, as_driver: Driver
) -> None:
    with pytest.raises(ApiRejection, match="only itself and its executors"):
        as_driver.change(pod, {"metadata": {"labels": {"x": "y"}}})
    with pytest.raises(ApiRejection, match="only itself and its executors"):
        as_driver.delete(pod)


def test_a_driver_can_annotate_itself_and_label_and_delete_its_executors(as_driver: Driver) -> None:
    """It reports progress; Spark marks executors that have ended, and deletes them."""
    as_driver.change("clicks-3-driver", {"metadata": {"annotations": {"progress": "{}"}}})
    as_driver.change("clicks-3-exec-1", {"metadata": {"labels": {"spark-exec-inactive": "true"}}})
    as_driver.delete("clicks-3-exec-1")
    selector = "labelSelector=spark-role%3Dexecutor,sluicegate.dev/role%3Dmine"
    as_driver.api.request("DELETE", f"{as_driver.pods}?dryRun=All&{selector}")


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
def test_a_driver_can_create_its_executors(change: dict[str, Any], as_driver: Driver) -> None:
    made = as_driver.create(
        changed(as_driver.executor, **{"metadata": {"name": "clicks-3-exec-2"}} | change)
    )
    assert made["metadata"]["name"].startswith("clicks-3-exec-")


@pytest.mark.parametrize(("account", "refused"), [("etl-driver", True), ("spark-driver", False)])
def test_accounts_of_another_installation_of_spark_are_excepted(
    account: str, *, refused: bool, cluster: Api, as_driver: Driver
) -> None:
    namespace = as_driver.pods.split("/")[4]
    client = Api(cluster.server)
    client._headers = {
        **cluster._headers,
        "Impersonate-User": f"system:serviceaccount:{namespace}:{account}",
        "Impersonate-Group": "system:masters",
    }
    other = replace(as_driver, api=client)
    pod = changed(as_driver.executor, {"name": "etl-1-exec-1"}, {"hostNetwork": True})
    with pytest.raises(ApiRejection, match=_POLICY) if refused else nullcontext():
        other.create(pod)


def test_the_policy_does_not_concern_others(cluster: Api, as_driver: Driver) -> None:
    pod = changed(as_driver.executor, spec={"hostNetwork": True})
    namespace = cluster.namespace()
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
