"""The stand-in kubelet: pods of a real API server go as the script says."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate_operator.resources.marks import DRIVER_FINALIZER
from tests.operator.api import Api, eventually, refused
from tests.operator.behaviours import DEAF, NO_IMAGE, NO_NODE, Behaviour, ends
from tests.operator.kubelet import OUT_OF_SERVICE, Kubelet

Object = dict[str, Any]


def phase(name: str) -> Callable[[Object], bool]:
    return lambda pod: pod.get("status", {}).get("phase") == name


def state(pod: Object) -> Object:
    found: Object = pod["status"]["containerStatuses"][0]["state"]
    return found


def waits(pod: Object) -> bool:
    """Tell whether a pod's container waits, and its status says why."""
    return "containerStatuses" in pod["status"] and "message" in state(pod).get("waiting", {})


def condition(pod: Object, kind: str) -> Object:
    found = {c["type"]: c for c in pod["status"].get("conditions", ())}
    said: Object = found.get(kind, {})
    return said


@pytest.mark.usefixtures("kubelet")
def test_a_pod_runs_on_a_registered_node_until_it_is_asked_to_stop(
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


def test_attempts_of_a_job_go_as_planned(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", ends(1, "boom"), ends(0), then=Behaviour())
    for attempt in (1, 2, 3):
        api.pod(namespace, f"orders-{attempt}", job="orders", attempt=str(attempt))
    first = api.pod_when(namespace, "orders-1", phase("Failed"))
    ended = state(first)["terminated"]
    assert (ended["exitCode"], ended["message"], ended["reason"]) == (1, "boom", "Error")
    assert ended["startedAt"] <= ended["finishedAt"]
    second = api.pod_when(namespace, "orders-2", phase("Succeeded"))
    assert state(second)["terminated"]["reason"] == "Completed"
    api.pod_when(namespace, "orders-3", phase("Running"))


def test_a_pod_with_a_finalizer_stays_with_its_end_in_its_status(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    kubelet.plan("orders", Behaviour(stop_exit_code=3, stop_message="asked"))
    api.pod(namespace, "one", DRIVER_FINALIZER, job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    api.delete_pod(namespace, "one")
    pod = api.pod_when(namespace, "one", phase("Failed"))
    assert state(pod)["terminated"]["exitCode"] == 3
    assert state(pod)["terminated"]["message"] == "asked"
    # the kubelet has let go of it: without the finalizer nothing holds it
    api.pod_when(namespace, "one", lambda p: p["metadata"]["deletionGracePeriodSeconds"] == 0)
    api.change_pod(namespace, "one", {"metadata": {"finalizers": None}})
    eventually(lambda: api.get_pod(namespace, "one") is None)


def test_who_takes_no_notice_is_killed_when_the_grace_is_over(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    kubelet.plan("orders", DEAF)
    api.pod(namespace, "one", DRIVER_FINALIZER, job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    began = time.monotonic()
    api.delete_pod(namespace, "one", grace_s=1)
    pod = api.pod_when(namespace, "one", phase("Failed"))
    assert time.monotonic() - began >= 0.9
    assert state(pod)["terminated"]["exitCode"] == 137


def test_a_missing_image_keeps_a_pod_waiting(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", NO_IMAGE)
    api.pod(namespace, "one", job="orders", attempt="1")
    pod = api.pod_when(namespace, "one", waits)
    assert pod["status"]["phase"] == "Pending"
    assert state(pod)["waiting"]["reason"] == "ImagePullBackOff"
    api.delete_pod(namespace, "one")
    eventually(lambda: api.get_pod(namespace, "one") is None)


def test_a_pod_that_no_node_takes_has_no_node(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", NO_NODE)
    api.pod(namespace, "one", job="orders", attempt="1")
    pod = api.pod_when(namespace, "one", lambda p: condition(p, "PodScheduled"))
    assert condition(pod, "PodScheduled")["reason"] == "Unschedulable"
    assert "nodeName" not in pod["spec"]
    api.delete_pod(namespace, "one")
    assert api.get_pod(namespace, "one") is None


@pytest.mark.usefixtures("kubelet")
def test_an_eviction_is_a_deletion_that_says_so(api: Api, namespace: str) -> None:
    api.pod(namespace, "one", DRIVER_FINALIZER, job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    api.evict(namespace, "one")
    pod = api.pod_when(namespace, "one", phase("Succeeded"))
    assert condition(pod, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"


def ready(api: Api, node: str) -> str:
    conditions = api.ask("GET", f"/api/v1/nodes/{node}")["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


@pytest.mark.faults
def test_a_silent_node_s_pods_stay_as_they_were_until_it_answers(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    node = f"{namespace}-1"
    api.pod(namespace, "one", job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    kubelet.silence(node)
    assert ready(api, node) == "Unknown"
    api.delete_pod(namespace, "one", grace_s=1)
    api.pod(namespace, "two", job="orders", attempt="2")
    second = api.pod_when(namespace, "two", lambda p: condition(p, "PodScheduled"))
    assert condition(second, "PodScheduled")["status"] == "False"
    left = api.get_pod(namespace, "one")
    assert left
    assert left["status"]["phase"] == "Running"
    kubelet.answer(node)
    assert ready(api, node) == "True"
    eventually(lambda: api.get_pod(namespace, "one") is None)
    api.pod_when(namespace, "two", phase("Running"))


@pytest.mark.faults
def test_pods_of_a_node_that_was_destroyed_never_say_that_they_ended(
    api: Api, namespace: str, kubelet: Kubelet
) -> None:
    node = f"{namespace}-1"
    api.pod(namespace, "one", job="orders", attempt="1")
    api.pod_when(namespace, "one", phase("Running"))
    kubelet.destroy(node)
    kubelet.out_of_service(node)
    taints = api.ask("GET", f"/api/v1/nodes/{node}")["spec"]["taints"]
    assert OUT_OF_SERVICE["key"] in [taint["key"] for taint in taints]
    kubelet.delete_node(node)
    assert refused(lambda: api.ask("GET", f"/api/v1/nodes/{node}")).status == 404
    left = api.get_pod(namespace, "one")
    assert left
    assert left["status"]["phase"] == "Running"


def test_a_driver_s_progress_can_be_scripted(api: Api, namespace: str, kubelet: Kubelet) -> None:
    kubelet.plan("orders", Behaviour(progress_every_s=0.05))
    api.pod(namespace, "one", job="orders", attempt="1")
    api.pod_when(
        namespace,
        "one",
        lambda p: (
            '"epoch": 2' in p["metadata"].get("annotations", {}).get("sluicegate.dev/progress", "")
        ),
    )


@pytest.mark.faults
def test_it_outlives_a_crash_of_the_api_server(own_api: Api) -> None:
    namespace = own_api.namespace()
    with Kubelet(own_api.server, namespace=namespace) as kubelet:
        kubelet.plan("orders", ends(1, "late", after_s=0.5), then=Behaviour())
        own_api.pod(namespace, "one", job="orders", attempt="1")
        own_api.pod_when(namespace, "one", phase("Running"))
        own_api.server.api.kill()
        own_api.server.api.start()
        own_api.pod_when(namespace, "one", phase("Failed"))
        own_api.pod(namespace, "two", job="orders", attempt="2")
        own_api.pod_when(namespace, "two", phase("Running"))
