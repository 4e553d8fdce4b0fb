"""What a kubelet writes into a pod's status, and a node's controller into a node's.

Only dictionaries; nothing is sent. Called by `kubelet`.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

Object = dict[str, Any]

POD_IP: Final = "127.0.0.1"
"""Containers are processes of this machine, or nothing."""


def now() -> str:
    """Return the time as Kubernetes writes it: to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def progress(epoch: int) -> dict[str, str]:
    """Return the annotation by which a driver reports an epoch."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"sluicegate.dev/progress": json.dumps({"epoch": epoch, "at": at})}


def node_ready(ready: str) -> Object:
    """Return a node's condition."""
    unknown = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    said = (
        unknown if ready == "Unknown" else {"reason": "KubeletReady", "message": "kubelet is ready"}
    )
    changed: Object = {"type": "Ready", "status": ready, "lastTransitionTime": now(), **said}
    # who is silent has no heartbeat: the last one stays
    return changed if ready == "Unknown" else {**changed, "lastHeartbeatTime": now()}


def unschedulable() -> Object:
    """Return the status of a pod that no node takes."""
    said = {"reason": "Unschedulable", "message": "0 nodes are available for this pod."}
    return {"conditions": [_condition("PodScheduled", "False", **said)]}


def creating(pod: Object) -> Object:
    """Return the status of a pod that a node has taken."""
    state = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "phase": "Pending",
        "startTime": now(),
        "hostIP": POD_IP,
        "podIP": POD_IP,
        "podIPs": [{"ip": POD_IP}],
        "conditions": [_condition("Initialized", "True"), *_readiness("False")],
        "containerStatuses": _containers(pod, state),
    }


def waiting(pod: Object, reason: str, message: str) -> Object:
    """Return the status of a pod whose container cannot be made."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": _containers(pod, state)}


def running(pod: Object) -> Object:
    """Return the status of a pod whose container runs."""
    return {
        "phase": "Running",
        "conditions": _readiness("True"),
        "containerStatuses": _containers(pod, {"running": {"startedAt": now()}}, ready=True),
    }


def ended(pod: Object, code: int, message: str, reason: str) -> Object:
    """Return the status of a pod whose container has ended."""
    before = pod.get("status", {}).get("containerStatuses", [{}])[0].get("state", {})
    began = before.get("running", {}).get("startedAt")
    said: Object = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "finishedAt": now(),
        "containerID": f"stand-in://{pod['metadata']['uid']}",
    }
    if began:
        said["startedAt"] = began
    if message:
        said["message"] = message
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _readiness("False", "PodFailed" if code else "PodCompleted"),
        "containerStatuses": _containers(pod, {"terminated": said}),
    }


def _readiness(ready: str, reason: str = "") -> list[Object]:
    more = {"reason": reason} if reason else {}
    return [_condition(kind, ready, **more) for kind in ("Ready", "ContainersReady")]


def _condition(kind: str, true: str, **more: str) -> Object:
    return {"type": kind, "status": true, "lastTransitionTime": now(), **more}


def _containers(pod: Object, state: Object, *, ready: bool = False) -> list[Object]:
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": ready,
            "started": ready,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
