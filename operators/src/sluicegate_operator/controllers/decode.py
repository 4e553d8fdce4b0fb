"""Conversion of pods and nodes into what `reconcile` observes. The functions accept any object."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sluicegate.deployment import termination
from sluicegate_operator.api import labels as api_labels
from sluicegate_operator.api.streaming_job_status import RUN, VerdictStatus
from sluicegate_operator.kube.resource import Json, Key
from sluicegate_operator.kube.timestamps import parse_instant, to_instant
from sluicegate_operator.reconcile.observed import (
    FAILED,
    SUCCEEDED,
    Executors,
    Node,
    Pod,
    Progress,
)
from sluicegate_operator.reconcile.streaming_job.startup import NORMAL

_MAX_EXECUTORS = 2**31
_MAX_EPOCH, _YEAR_10000 = 2**63, 253_402_300_800.0
_LABEL_LENGTH = 63
_MAX_VERDICT = 500
_REASON = re.compile("[A-Z][A-Za-z]{0,62}")
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class DriverPod:
    """A driver's pod, without the state of its node.

    Args:
        owner: uid of the job; the pods of a deleted job do not belong to a new job of the same name.
        node: the name of its node, or empty.
        finalizers: all of them, including those of others.
    """

    job: Key
    owner: str
    node: str
    pod: Pod
    finalizers: tuple[str, ...] = ()


def driver_pod_of(body: Json) -> DriverPod:
    """Return a driver's pod."""
    meta, status = body["metadata"], body.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    node = (body.get("spec") or {}).get("nodeName", "")
    conditions = [(one["type"], one["status"]) for one in status.get("conditions") or ()]
    container = _driver_container(status)
    state: Json = container.get("state") or {}
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    waiting, waiting_message = _waiting(status, state)
    code = ended.get("exitCode")
    began = running.get("startedAt") or ended.get("startedAt")
    finalizers = tuple(meta.get("finalizers") or ())
    pod = Pod(
        name=meta["name"],
        uid=meta["uid"],
        attempt=_number(labels.get(api_labels.ATTEMPT)),
        phase=_phase(status, code),
        mode=labels.get(api_labels.MODE, RUN),
        spec_hash=annotations.get(api_labels.SPEC_HASH, ""),
        checkpoint_number=_number(labels.get(api_labels.CHECKPOINT)) or 1,
        running_at=parse_instant(began),
        ended_at=parse_instant(ended.get("finishedAt")),
        exit_code=None if _never_started(container, ended) else code,
        message=_message(ended, status),
        waiting=waiting,
        waiting_message=waiting_message,
        init_failure=_init_failure(status),
        node=Node() if node else None,
        terminating="deletionTimestamp" in meta,
        disrupted=("DisruptionTarget", "True") in conditions,
        has_finalizer=api_labels.DRIVER_FINALIZER in finalizers,
        standby=labels.get(api_labels.STANDBY) == "true",
        promoted=api_labels.PROMOTED in annotations,
        standby_ready=api_labels.STANDBY_READY in annotations,
        restore_from=annotations.get(api_labels.RESTORE_FROM, ""),
        progress=_progress(annotations.get(api_labels.PROGRESS)),
        progress_interval_s=_number(annotations.get(api_labels.PROGRESS_INTERVAL)),
        executors=_executors(annotations.get(api_labels.EXECUTORS)),
    )
    job = (meta.get("namespace", ""), labels.get(api_labels.JOB, ""))
    return DriverPod(job, labels.get(api_labels.JOB_UID, ""), node, pod, finalizers)


def node_of(body: Json) -> Node:
    """Return a node: whether it responds, and whether it was marked as shut down."""
    status = body.get("status") or {}
    ready: Json = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    unresponsive_since = None
    if ready.get("status") == "Unknown":  # the node controller misses its kubelet's heartbeats
        unresponsive_since = parse_instant(
            ready.get("lastHeartbeatTime") or ready.get("lastTransitionTime")
        )
    taints = (body.get("spec") or {}).get("taints") or ()
    return Node(
        unresponsive_since=unresponsive_since,
        out_of_service=any(t["key"] == _OUT_OF_SERVICE for t in taints),
    )


def _driver_container(status: Json) -> Json:
    """Return the status of the driver's container; a pod with only one container needs no name."""
    states = status.get("containerStatuses") or []
    ours = [one for one in states if one.get("name") == api_labels.DRIVER] or states[:1]
    container: Json = ours[0] if ours else {}
    return container


def _never_started(container: Json, ended: Json) -> bool:
    """Return whether a container with an exit code was never started.

    A kubelet reports exit code 137 for each container that it cannot find when the pod ends. Of one that was
    known to run it has a last state, or it has counted a restart.
    """
    unknown = ended.get("reason") == "ContainerStatusUnknown" and not ended.get("startedAt")
    ran = (container.get("lastState") or {}).get("terminated") or container.get("restartCount")
    return unknown and not ran


def _waiting(status: Json, state: Json) -> tuple[str, str]:
    """Return why the driver's container does not run: by the scheduler or the kubelet; or empty texts."""
    for one in status.get("conditions") or ():
        if (one["type"], one["status"]) == ("PodScheduled", "False") and one.get("reason"):
            return one["reason"], one.get("message", "")
    ours = state.get("waiting") or {}
    reason, message = ours.get("reason", ""), ours.get("message", "")
    if reason not in NORMAL:
        return reason, message
    for one in status.get("initContainerStatuses") or ():
        init = (one.get("state") or {}).get("waiting") or {}
        where = f"init container {one.get('name')}"
        if init.get("reason", "") not in NORMAL:
            return init["reason"], f"{where}: {init.get('message', '')}".rstrip(": ")
        if (one.get("state") or {}).get("running") and not one.get("started"):
            return reason or "PodInitializing", f"{where} did not end"
    return reason, message


def _init_failure(status: Json) -> str:
    """Return how an init container failed; empty if none did."""
    for one in status.get("initContainerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            details = ended.get("message") or ended.get("reason") or "no message"
            text = f"init container {one.get('name')}: exit code {ended['exitCode']}: {details}"
            return text.strip()[:1000]
    return ""


def _phase(status: Json, code: int | None) -> str:
    """Return the pod's phase, or that of the driver alone if a sidecar keeps the pod running."""
    phase = str(status.get("phase") or "Pending")
    if code is None or phase in (SUCCEEDED, FAILED):
        return phase
    return FAILED if code else SUCCEEDED


def _message(ended: Json, status: Json) -> str:
    """Return why a driver ended: by its own report (`sluicegate.deployment.termination`), or the kubelet's."""
    text = str(ended.get("message") or "").strip()
    if reason := termination.parse(text):
        return reason
    if text:
        return text.splitlines()[-1][:1000]
    words = [str(status.get(key) or "") for key in ("reason", "message")]
    if not any(words):
        words = [str(ended.get("reason") or "")]
    return ": ".join(word for word in words if word)[:1000]


def _progress(text: str | None) -> Progress | None:
    """Return what a driver reports of itself; None if that is missing or malformed."""
    try:
        report: Any = json.loads(text or "null")
        at, epoch = to_instant(report["at"]), report.get("epoch")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    if not 0 <= at < _YEAR_10000 or (
        epoch is not None and (type(epoch) is not int or not 0 <= epoch < _MAX_EPOCH)
    ):
        return None  # no status with it could be written
    # a driver of an older release does not tell, and counts as one that has
    decided = report.get("decided") is not False
    return Progress(at, epoch, _verdict(report.get("verdict")), decided)


def _executors(text: str | None) -> Executors | None:
    """Return what a driver reports of its executors; None if that is missing or malformed."""
    try:
        report: Any = json.loads(text or "null")
        numbers = report["running"], report["wanted"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not all(type(one) is int and 0 <= one < _MAX_EXECUTORS for one in numbers):
        return None
    return Executors(*numbers)


def _verdict(report: Any) -> VerdictStatus | None:  # noqa: ANN401 - JSON of a pod
    """Return what a driver says about what bounds it; None if that is missing or malformed."""
    try:
        reason, message = report["reason"], report["message"]
    except (TypeError, KeyError):
        return None
    if not (isinstance(reason, str) and _REASON.fullmatch(reason) and isinstance(message, str)):
        return None
    return VerdictStatus(reason=reason, message=message[:_MAX_VERDICT])


def _number(text: str | None) -> int:
    """Return a label's number; 0 if it is none."""
    valid = text and text.isascii() and text.isdigit() and len(text) <= _LABEL_LENGTH
    return int(text) if text and valid else 0
