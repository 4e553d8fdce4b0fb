"""The simulated kubelet: pods of a real API server follow the script."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate_operator.api.labels import DRIVER_FINALIZER
from tests.integration.operator.api import Api, eventually, rejection
from tests.integration.operator.container_script import (
    IGNORES_SIGTERM,
    NO_IMAGE,
    NO_NODE,
    Behavior,
    ends,
)
from tests.integration.operator.fake_node import Sandbox
from tests.integration.operator.kubelet import OUT_OF_SERVICE, Kubelet

Object = dict[str, Any]


def phase(name: str) -> Callable[[Object], bool]:
    return lambda pod: pod.get("status", {}).get("phase") == name


def state(pod: Object) -> Object:
    container_state: Object = pod["status"]["containerStatuses"][0]["state"]
    return container_state


def waits(pod: Object) -> bool:
    """Return whether a pod's container is waiting and its status has the reason."""
    return "containerStatuses" in pod["status"] and "message" in state(pod).get("waiting", {})


def condition(pod: Object, kind: str) -> Object:
    conditions = {c["type"]: c for c in pod["status"].get("conditions", ())}
    match: Object = conditions.get(kind, {})
    return match


@pytest.mark.usefixtures("kubelet")
def test_pod_runs_on_a_registered_node_until_it_is_deleted(
    api: Api,
    namespace: str,
) -> None:
    api.pod(namespace, "one", job="orders", attempt="1")
    pod = api.pod_when(namespace, "one", phase("Running"))
    assert pod["spec"]["nodeName"] == f"{namespace}-1"
    assert "startedAt" in state(pod)["running"]
    assert condition(pod, "Ready")["status"] == "True"
    assert condition(pod, "PodScheduled")["status"] == "True"
    api.delete_pod(namespace, "one")
    eventually(lambda: api.get_pod(namespace, "one") is None)


def test_attempts_of_a_job_follow_the_plan(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", ends(1, "boom"), ends(0), then=Behavior())
    for attempt in (1, 2, 3):
        api.pod(namespace, f"orders-{attempt}", job="orders", attempt=str(attempt))
    first = api.pod_when(namespace, "orders-1", phase("Failed"))
    ended = state(first)["terminated"]
    assert (ended["exitCode"], ended["message"], ended["reason"]) == (1, "boom", "Error")
    assert ended["startedAt"] <= ended["finishedAt"]
    second = api.pod_when(namespace, "orders-2", phase("Succeeded"))
    assert state(second)["terminated"]["reason"] == "Completed"
    api.pod_when(namespace, "orders-3", phase("Running"))


def test_pod_with_a_finalizer_stays_after_its_end(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    kubelet.plan("orders", Behavior(stop_exit_code=3, stop_message="asked"))
    api.pod(namespace, "one", DRIVER_FINALIZER, job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    api.delete_pod(namespace, "one")
    pod = api.pod_when(namespace, "one", phase("Failed"))
    assert state(pod)["terminated"]["exitCode"] == 3
    assert state(pod)["terminated"]["message"] == "asked"
    # the kubelet has released the pod, so only the finalizer keeps it
    api.pod_when(namespace, "one", lambda p: p["metadata"]["deletionGracePeriodSeconds"] == 0)
    api.change_pod(namespace, "one", {"metadata": {"finalizers": None}})
    eventually(lambda: api.get_pod(namespace, "one") is None)


def test_container_that_ignores_sigterm_is_killed_after_its_grace_period(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    kubelet.plan("orders", IGNORES_SIGTERM)
    api.pod(namespace, "one", DRIVER_FINALIZER, job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    start = time.monotonic()
    api.delete_pod(namespace, "one", grace_s=1)
    pod = api.pod_when(namespace, "one", phase("Failed"))
    assert time.monotonic() - start >= 0.9
    assert state(pod)["terminated"]["exitCode"] == 137


def test_an_answer_that_arrives_after_a_newer_event_does_not_undo_a_deletion() -> None:
    deleted = {"resourceVersion": "10", "deletionTimestamp": "now", "deletionGracePeriodSeconds": 1}
    sandbox = Sandbox({"metadata": {"resourceVersion": "8"}})
    sandbox.update({"metadata": deleted})
    sandbox.update({"metadata": {"resourceVersion": "9"}})
    assert sandbox.deleted.is_set()
    assert sandbox.grace_s == 1


def test_pod_with_a_missing_image_waits(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", NO_IMAGE)
    api.pod(namespace, "one", job="orders", attempt="1")
    pod = api.pod_when(namespace, "one", waits)
    assert pod["status"]["phase"] == "Pending"
    assert state(pod)["waiting"]["reason"] == "ImagePullBackOff"
    api.delete_pod(namespace, "one")
    eventually(lambda: api.get_pod(namespace, "one") is None)


def test_unschedulable_pod_has_no_node(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", NO_NODE)
    api.pod(namespace, "one", job="orders", attempt="1")
    pod = api.pod_when(namespace, "one", lambda p: condition(p, "PodScheduled"))
    assert condition(pod, "PodScheduled")["reason"] == "Unschedulable"
    assert "nodeName" not in pod["spec"]
    api.delete_pod(namespace, "one")
    assert api.get_pod(namespace, "one") is None


@pytest.mark.usefixtures("kubelet")
def test_evicted_pod_has_a_condition(api: Api, namespace: str) -> None:
    api.pod(namespace, "one", DRIVER_FINALIZER, job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    api.evict(namespace, "one")
    pod = api.pod_when(namespace, "one", phase("Succeeded"))
    assert condition(pod, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"


def ready(api: Api, node: str) -> str:
    conditions = api.request("GET", f"/api/v1/nodes/{node}")["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


@pytest.mark.faults
def test_pods_of_a_disconnected_node_do_not_change(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    node = f"{namespace}-1"
    api.pod(namespace, "one", job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    kubelet.disconnect(node)
    assert ready(api, node) == "Unknown"
    api.delete_pod(namespace, "one", grace_s=1)
    api.pod(namespace, "two", job="orders", attempt="2")
    second = api.pod_when(namespace, "two", lambda p: condition(p, "PodScheduled"))
    assert condition(second, "PodScheduled")["status"] == "False"
    remaining = api.get_pod(namespace, "one")
    assert remaining
    assert remaining["status"]["phase"] == "Running"
    kubelet.reconnect(node)
    assert ready(api, node) == "True"
    eventually(lambda: api.get_pod(namespace, "one") is None)
    api.pod_when(namespace, "two", phase("Running"))


@pytest.mark.faults
def test_pods_of_a_destroyed_node_never_report_their_end(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    node = f"{namespace}-1"
    api.pod(namespace, "one", job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    kubelet.destroy(node)
    kubelet.out_of_service(node)
    taints = api.request("GET", f"/api/v1/nodes/{node}")["spec"]["taints"]
    assert OUT_OF_SERVICE["key"] in [taint["key"] for taint in taints]
    kubelet.delete_node(node)
    assert rejection(lambda: api.request("GET", f"/api/v1/nodes/{node}")).status == 404
    remaining = api.get_pod(namespace, "one")
    assert remaining
    assert remaining["status"]["phase"] == "Running"


def test_progress_can_be_scripted(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", Behavior(progress_every_s=0.05))
    api.pod(namespace, "one", job="orders", attempt="1")
    api.pod_when(
        namespace,
        "one",
        lambda p: (
            '"epoch": 2' in p["metadata"].get("annotations", {}).get("sluicegate.dev/progress", "")
        ),
    )


@pytest.mark.faults
def test_kubelet_survives_a_crash_of_the_api_server(own_api: Api) -> None:
    namespace = own_api.namespace()
    with Kubelet(own_api.server, namespace=namespace) as kubelet:
        kubelet.plan("orders", ends(1, "late", after_s=0.5), then=Behavior())
        own_api.pod(namespace, "one", job="orders", attempt="1")
        own_api.pod_when(namespace, "one", phase("Running"))
        own_api.server.api.kill()
        own_api.server.api.start()
        own_api.pod_when(namespace, "one", phase("Failed"))
        own_api.pod(namespace, "two", job="orders", attempt="2")
        own_api.pod_when(namespace, "two", phase("Running"))
