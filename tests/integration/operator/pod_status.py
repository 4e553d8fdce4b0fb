"""The statuses that a kubelet writes for a pod, and a node controller for a node."""

import json
from datetime import UTC, datetime
from typing import Any, Final

Object = dict[str, Any]

POD_IP: Final = "127.0.0.1"
"""Containers are processes of this machine, or do not exist."""


def now() -> str:
    """Return the time in the format of Kubernetes, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def progress(epoch: int) -> dict[str, str]:
    """Return the annotation by which a driver reports an epoch."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"sluicegate.dev/progress": json.dumps({"epoch": epoch, "at": at})}


def node_ready(ready: str) -> Object:
    """Return the condition Ready of a node."""
    unknown = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    fields = (
        unknown if ready == "Unknown" else {"reason": "KubeletReady", "message": "kubelet is ready"}
    )
    changed: Object = {"type": "Ready", "status": ready, "lastTransitionTime": now(), **fields}
    # a node that does not respond has no heartbeat, so the last one stays
    return changed if ready == "Unknown" else {**changed, "lastHeartbeatTime": now()}


def unschedulable() -> Object:
    """Return the status of a pod that is not scheduled."""
    fields = {"reason": "Unschedulable", "message": "0 nodes are available for this pod."}
    return {"conditions": [_condition("PodScheduled", "False", **fields)]}


def creating(pod: Object) -> Object:
    """Return the status of a pod that was bound to a node."""
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
    """Return the status of a pod whose container cannot be created."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": _containers(pod, state)}


def running(pod: Object) -> Object:
    """Return the status of a pod whose container is running."""
    return {
        "phase": "Running",
        "conditions": _readiness("True"),
        "containerStatuses": _containers(pod, {"running": {"startedAt": now()}}, ready=True),
    }


def ended(pod: Object, code: int, message: str, reason: str) -> Object:
    """Return the status of a pod whose container has ended."""
    state = pod.get("status", {}).get("containerStatuses", [{}])[0].get("state", {})
    started_at = state.get("running", {}).get("startedAt")
    fields: Object = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "finishedAt": now(),
        "containerID": f"simulated://{pod['metadata']['uid']}",
    }
    if started_at:
        fields["startedAt"] = started_at
    if message:
        fields["message"] = message
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _readiness("False", "PodFailed" if code else "PodCompleted"),
        "containerStatuses": _containers(pod, {"terminated": fields}),
    }


def _readiness(ready: str, reason: str = "") -> list[Object]:
    fields = {"reason": reason} if reason else {}
    return [_condition(kind, ready, **fields) for kind in ("Ready", "ContainersReady")]


def _condition(kind: str, status: str, **fields: str) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": now(), **fields}


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
