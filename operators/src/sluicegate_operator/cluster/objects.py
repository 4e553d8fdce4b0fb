"""From the API server's objects to what `reconcile` sees of them. Each function is total.

Not here: reading them (`informer`). Called by `service`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.cluster.client import Json
from sluicegate_operator.reconcile.observed import (
    FAILED,
    SUCCEEDED,
    Job,
    Node,
    Pod,
    Progress,
)
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.declaring import GROUP
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus
from sluicegate_operator.resources.parsing import parse, to_instant

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

Spec = TypeVar("Spec")
Status = TypeVar("Status")


@dataclass(frozen=True)
class Meta:
    """What every object has.

    Args:
        version: its resourceVersion, to write it under.
        created_at: seconds since 1970.
        deleted_at: when somebody deleted it; it waits for its finalizers.
    """

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    created_at: float
    deleted_at: float | None
    finalizers: tuple[str, ...]
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def deleted(self) -> bool:
        """Whether it is being deleted."""
        return self.deleted_at is not None

    def annotation(self, name: str) -> str:
        """Return an annotation of ours, or nothing."""
        return dict(self.annotations).get(name, "")


@dataclass(frozen=True)
class Resource(Generic[Spec, Status]):
    """A resource of one of our kinds; `spec` is an error if it cannot be read."""

    meta: Meta
    spec: Spec | SettingsInvalid
    status: Status

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.meta.namespace, self.meta.name


@dataclass
class Reader(Generic[Spec, Status]):
    """Makes resources of one kind; a spec that it has read is not read again.

    Args:
        kind: its name, for errors.
        spec: what its spec is made into.
        status: what its status is made into.
    """

    kind: str
    spec: type[Spec]
    status: type[Status]
    _specs: dict[str, tuple[int, Spec | SettingsInvalid]] = field(default_factory=dict)

    def read(self, thing: Json) -> Resource[Spec, Status]:
        """Return a resource."""
        meta = meta_of(thing)
        where = f"{self.kind} {meta.namespace}/{meta.name}"
        known = self._specs.get(meta.uid)
        if known is None or known[0] != meta.generation:
            known = meta.generation, self._spec(thing, where)
            self._specs[meta.uid] = known
        return Resource(meta, known[1], self._status(thing, where))

    def forget(self, uid: str) -> None:
        """Let go of a resource that is gone."""
        self._specs.pop(uid, None)

    def _spec(self, thing: Json, where: str) -> Spec | SettingsInvalid:
        try:
            return parse(self.spec, thing.get("spec", {}), f"{where}: spec")
        except SettingsInvalid as error:
            return error

    def _status(self, thing: Json, where: str) -> Status:
        """Return the status; one that somebody has broken is none: it is rebuilt from what is seen."""
        try:
            return parse(self.status, thing.get("status") or {}, f"{where}: status")
        except SettingsInvalid:
            return self.status()


def meta_of(thing: Json) -> Meta:
    """Return what every object has; of its annotations only ours."""
    meta = thing["metadata"]
    ours = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(f"{GROUP}/")
    }
    return Meta(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        created_at=to_instant(meta["creationTimestamp"]),
        deleted_at=_instant(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        annotations=tuple(sorted(ours.items())),
    )


def job_of(found: Resource[StreamingJobSpec, StreamingJobStatus], spec: StreamingJobSpec) -> Job:
    """Return a StreamingJob as `reconcile` takes it."""
    meta = found.meta
    return Job(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        created_at=meta.created_at,
        spec=spec,
        status=found.status,
        deleted=meta.deleted,
        held=marks.JOB_FINALIZER in meta.finalizers,
        skip_finish=meta.annotation(marks.SKIP_FINISH) == "true",
    )


@dataclass(frozen=True)
class SeenPod:
    """A driver's pod, without what is known of its node.

    Args:
        job: its namespace and job.
        owner: uid of the job: one that was deleted and made again has pods of neither.
        node: the name of its node, or nothing.
        finalizers: all of them, also others'.
    """

    job: tuple[str, str]
    owner: str
    node: str
    pod: Pod
    finalizers: tuple[str, ...] = ()


def pod_of(thing: Json) -> SeenPod:
    """Return a driver's pod."""
    meta, status = thing["metadata"], thing.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    state = _driver_state(status)
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    code = ended.get("exitCode")
    began = running.get("startedAt") or ended.get("startedAt")
    finalizers = tuple(meta.get("finalizers") or ())
    pod = Pod(
        name=meta["name"],
        uid=meta["uid"],
        attempt=_number(labels.get(marks.ATTEMPT)),
        phase=_phase(status, code),
        purpose=labels.get(marks.PURPOSE, "run"),
        spec_hash=notes.get(marks.SPEC_HASH, ""),
        checkpoint_number=_number(labels.get(marks.CHECKPOINT)) or 1,
        created_at=to_instant(meta["creationTimestamp"]),
        running_at=_instant(began),
        ended_at=_instant(ended.get("finishedAt")),
        exit_code=code,
        message=_message(ended, status),
        waiting=(state.get("waiting") or {}).get("reason", ""),
        node=Node() if (thing.get("spec") or {}).get("nodeName") else None,
        terminating="deletionTimestamp" in meta,
        disrupted=_holds(status, "DisruptionTarget"),
        held=marks.DRIVER_FINALIZER in finalizers,
        restore_from=notes.get(marks.RESTORE_FROM, ""),
        progress=_progress(notes.get(marks.PROGRESS)),
    )
    node = (thing.get("spec") or {}).get("nodeName", "")
    job = (meta.get("namespace", ""), labels.get(marks.JOB, ""))
    return SeenPod(job, labels.get(marks.JOB_UID, ""), node, pod, finalizers)


def node_of(thing: Json) -> Node:
    """Return a node: whether it answers, and whether someone has said that it is shut down."""
    status = thing.get("status") or {}
    ready: Json = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    silent = None
    if ready.get("status") == "Unknown":  # the node controller has not heard of its kubelet
        silent = _instant(ready.get("lastHeartbeatTime") or ready.get("lastTransitionTime"))
    taints = (thing.get("spec") or {}).get("taints") or ()
    return Node(
        silent_since=silent, out_of_service=any(t["key"] == _OUT_OF_SERVICE for t in taints)
    )


def _driver_state(status: Json) -> Json:
    """Return the state of the driver's container; of a pod with one container that is its."""
    found = status.get("containerStatuses") or []
    ours = [one for one in found if one.get("name") == marks.DRIVER] or found[:1]
    state: Json = ours[0].get("state") or {} if ours else {}
    return state


def _phase(status: Json, code: int | None) -> str:
    """Return the pod's phase, or the driver's own end where a sidecar keeps the pod running."""
    phase = str(status.get("phase") or "Pending")
    if code is None or phase in (SUCCEEDED, FAILED):
        return phase
    return FAILED if code else SUCCEEDED


def _message(ended: Json, status: Json) -> str:
    """Return why a driver ended: its own words (`sluicegate.tracing.outcome`), or the kubelet's."""
    said = str(ended.get("message") or "").strip()
    try:
        told = json.loads(said)
    except ValueError:
        told = None
    if isinstance(told, dict) and "kind" in told:
        return f"{told['kind']}: {told.get('what', '')}".strip()
    if said:
        return said.splitlines()[-1][:1000]
    words = [str(status.get(key) or "") for key in ("reason", "message")]
    if not any(words):
        words = [str(ended.get("reason") or "")]
    return ": ".join(word for word in words if word)[:1000]


def _holds(status: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())


def _progress(text: str | None) -> Progress | None:
    """Return what a driver says of itself; what cannot be read is not said."""
    try:
        said: Any = json.loads(text or "null")
        return Progress(to_instant(said["at"]), said.get("epoch"))
    except (ValueError, TypeError, KeyError):
        return None


def _instant(text: str | None) -> float | None:
    return to_instant(text) if text else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
