"""What a driver's pod says of its start."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate_operator.controllers.decode import driver_pod_of
from sluicegate_operator.reconcile.observed import Pod


def pod(**status: Any) -> Pod:
    """Return the driver's pod with a status."""
    meta = {"name": "clicks-1-driver", "uid": "u", "creationTimestamp": "2027-01-15T08:00:00Z"}
    body = {"metadata": {**meta, "namespace": "shop"}, "spec": {"nodeName": "n"}, "status": status}
    return driver_pod_of(body).pod


def container(name: str, **state: Any) -> dict[str, Any]:
    """Return the status of a container."""
    return {"name": name, "state": state}


UNKNOWN = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}
"""What a kubelet reports of a container that it cannot find when the pod ends, started or not."""
DRIVER_WAITS = container("driver", waiting={"reason": "PodInitializing"})


def test_reason_of_the_scheduler() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    found = pod(conditions=[condition])
    assert (found.waiting, found.waiting_message) == ("Unschedulable", "0/3 nodes are available")


def test_reason_of_the_kubelet() -> None:
    state = {"reason": "CreateContainerConfigError", "message": 'secret "kafka" not found'}
    found = pod(containerStatuses=[container("driver", waiting=state)])
    assert found.waiting == "CreateContainerConfigError"
    assert found.waiting_message == 'secret "kafka" not found'


def test_reason_of_an_init_container_that_does_not_start() -> None:
    state = {"reason": "ImagePullBackOff", "message": "Back-off"}
    found = pod(
        containerStatuses=[DRIVER_WAITS],
        initContainerStatuses=[container("migrate", waiting=state)],
    )
    assert found.waiting == "ImagePullBackOff"
    assert found.waiting_message == "init container migrate: Back-off"


def test_init_container_that_runs_is_named() -> None:
    running = container("migrate", running={"startedAt": "2027-01-15T08:00:01Z"})
    found = pod(containerStatuses=[DRIVER_WAITS], initContainerStatuses=[running])
    assert found.waiting == "PodInitializing"
    assert found.waiting_message == "init container migrate did not end"


def test_failed_init_container() -> None:
    ended = container("migrate", terminated={"exitCode": 3, "reason": "Error"})
    found = pod(phase="Failed", containerStatuses=[DRIVER_WAITS], initContainerStatuses=[ended])
    assert found.init_failure == "init container migrate: exit code 3: Error"
    assert found.exit_code is None


def test_a_standby_is_one_until_its_label_is_removed() -> None:
    """The promotion removes the label and adds an annotation; the driver itself adds the other one."""

    def found(labels: dict[str, str], *annotations: str) -> tuple[bool, bool, bool]:
        meta = {"labels": labels, "annotations": dict.fromkeys(annotations, "true")}
        body = {"metadata": {"name": "clicks-2-driver", "uid": "u", **meta}}
        pod = driver_pod_of(body).pod
        return pod.standby, pod.standby_ready, pod.promoted

    ready, promoted = "sluicegate.dev/standby-ready", "sluicegate.dev/promoted"
    assert found({"sluicegate.dev/standby": "true"}) == (True, False, False)
    assert found({"sluicegate.dev/standby": "true"}, ready) == (True, True, False)
    assert found({}, ready, promoted) == (False, True, True)
    assert found({}) == (False, False, False)


@pytest.mark.parametrize(
    "before",
    [{"lastState": {"terminated": UNKNOWN}}, {"restartCount": 1}],
    ids=["it used to be running", "it is gone"],
)
def test_a_lost_container_that_has_run_has_an_exit_code(before: dict[str, Any]) -> None:
    found = pod(
        phase="Failed", containerStatuses=[container("driver", terminated=UNKNOWN) | before]
    )
    assert (found.exit_code, found.running_at, found.dead) == (137, None, True)


def test_a_container_that_was_never_started_has_no_exit_code() -> None:
    """Such as one whose image was not pulled: it has decided nothing."""
    status = container("driver", terminated=UNKNOWN) | {"lastState": {}, "restartCount": 0}
    found = pod(phase="Failed", reason="Evicted", containerStatuses=[status])
    assert (found.exit_code, found.dead) == (None, True)
