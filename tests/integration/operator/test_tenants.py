"""A tenant is kept in its place: what it must not have is refused, with an Event that names it."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.api.crds import CHECKPOINT_VOLUME
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.job_fixtures import job_when, running
from tests.integration.operator.rest_client import MERGE

pytestmark = pytest.mark.integration

JOB: dict[str, Any] = {
    "image": "jobs:1",
    "mainModule": "clicks",
    "checkpoint": {"volume": "store"},
    "executor": {"instances": 0},
}


def warning(api: Api, namespace: str, name: str, reason: str) -> str:
    """Wait for a warning about a resource; return its message."""

    def poll() -> str | None:
        for event in api.events(namespace):
            about = event.get("regarding") or event.get("involvedObject") or {}
            if about.get("name") == name and event["reason"] == reason:
                return str(event.get("note") or event.get("message"))
        return None

    return eventually(poll)


@pytest.mark.usefixtures("operator", "ready_volume", "kubelet")
def test_a_job_gets_no_account_without_the_label_and_no_rights_on_the_node(
    api: Api, namespace: str
) -> None:
    """C1: a job ran as the operator's account; with the label on an account, jobs run as it."""
    api.create_core(namespace, "serviceaccounts", {"metadata": {"name": "admin"}})
    node = {"spec": {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}}
    api.create(namespace, "account", {**JOB, "serviceAccount": "admin"})
    checkpoint = {"volume": "store", "path": "node"}
    api.create(namespace, "node", {**JOB, "driver": {"template": node}, "checkpoint": checkpoint})
    assert "admin is not marked as an account for drivers" in warning(
        api, namespace, "account", "SpecInvalid"
    )
    assert "spec.volumes[node].hostPath is not permitted" in warning(
        api, namespace, "node", "SpecInvalid"
    )
    assert api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"] == []

    label = {"metadata": {"labels": {"sluicegate.dev/driver-account": "true"}}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/admin"
    api.request("PATCH", path, label, content=MERGE)
    api.change(namespace, "account", {"spec": {"restartNonce": 1}})
    job = job_when(api, namespace, running(1), "account")
    (policy,) = api.request(
        "GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    )["items"]
    assert policy["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    own = {"matchLabels": {"sluicegate.dev/job-uid": job["metadata"]["uid"]}}
    assert policy["spec"]["podSelector"] == own
    assert policy["spec"]["ingress"][0]["from"] == [{"podSelector": own}]


@pytest.mark.usefixtures("operator")
def test_a_volume_gets_neither_the_operators_identity_nor_its_network(
    api: Api, namespace: str
) -> None:
    """H3 and M3: anyone's bucket was emptied, and any address was contacted, on behalf of a tenant."""
    ambient = {"bucket": "others", "prefix": "streams", "reclaimPolicy": "Delete"}
    api.create(namespace, "ambient", ambient, CHECKPOINT_VOLUME)
    metadata = {"bucket": "b-b", "endpoint": "http://169.254.169.254", "credentialsSecret": "keys"}
    api.create(namespace, "metadata", metadata, CHECKPOINT_VOLUME)
    assert "may not be accessed with the operator's own identity" in warning(
        api, namespace, "ambient", "NotPermitted"
    )
    assert "http://169.254.169.254 is not permitted" in warning(
        api, namespace, "metadata", "NotPermitted"
    )
    for name in ("ambient", "metadata"):
        api.delete(namespace, name, CHECKPOINT_VOLUME)
        eventually(lambda name=name: not api.exists(namespace, name, CHECKPOINT_VOLUME))  # type: ignore[misc]


@pytest.mark.usefixtures("operator", "ready_volume", "kubelet")
def test_a_second_owner_of_a_folder_is_refused(api: Api, namespace: str) -> None:
    """H9: two drivers ran on one checkpoint, and a volume deleted the data of another."""
    spec = api.get(namespace, "store", CHECKPOINT_VOLUME)["spec"]
    nested = {**spec, "prefix": f"{spec['prefix']}/nested", "reclaimPolicy": "Delete"}
    api.create(namespace, "nested", nested, CHECKPOINT_VOLUME)
    assert f"belongs to CheckpointVolume {namespace}/store" in warning(
        api, namespace, "nested", "Overlaps"
    )
    api.create(namespace, "first", {**JOB, "checkpoint": {"volume": "store", "path": "team"}})
    job_when(api, namespace, running(1), "first")
    second = {**JOB, "checkpoint": {"volume": "store", "path": "team/a"}}
    api.create(namespace, "second", second)
    assert "overlaps the one of StreamingJob first" in warning(
        api, namespace, "second", "SpecInvalid"
    )
    pods = api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert [pod["metadata"]["name"] for pod in pods] == ["first-1-driver"]
