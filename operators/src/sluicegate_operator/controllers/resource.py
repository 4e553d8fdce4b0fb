"""The operator's own resources: as the caches hold them, and as the reconcilers see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api import labels
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.crds import Kind
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.kube.resource import Json, Key, Meta, meta_of
from sluicegate_operator.reconcile.observed import Job, Savepoint, Volume

Spec = TypeVar("Spec")
Status = TypeVar("Status")


@dataclass(frozen=True)
class Resource(Generic[Spec, Status]):
    """A resource; its spec is the error if it cannot be parsed."""

    meta: Meta
    spec: Spec | SettingsInvalid
    status: Status

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.meta.namespace, self.meta.name

    @property
    def valid_spec(self) -> Spec | None:
        """The spec; None if it is invalid."""
        return None if isinstance(self.spec, SettingsInvalid) else self.spec


JobResource = Resource[StreamingJobSpec, StreamingJobStatus]
VolumeResource = Resource[CheckpointVolumeSpec, CheckpointVolumeStatus]
SavepointResource = Resource[SavepointSpec, SavepointStatus]


@dataclass
class ResourceReader:
    """Parses resources of one kind. A spec is parsed once per generation."""

    kind: Kind
    _specs: dict[str, tuple[int, object]] = field(default_factory=dict)

    def read(self, body: Json) -> Resource[Any, Any]:
        """Return the typed form of an object. An invalid status counts as empty: it is rebuilt."""
        meta = meta_of(body, labels.PREFIX)
        where = f"{self.kind.name} {meta.namespace}/{meta.name}"
        known = self._specs.get(meta.uid)
        if known is None or known[0] != meta.generation:
            known = meta.generation, _parse(self.kind.spec, body.get("spec", {}), f"{where}: spec")
            self._specs[meta.uid] = known
        status = _parse(self.kind.status, body.get("status") or {}, f"{where}: status")
        if isinstance(status, SettingsInvalid):
            status = self.kind.status()
        return Resource(meta, known[1], status)

    def changed(
        self, _key: Key, old: Resource[Any, Any] | None, new: Resource[Any, Any] | None
    ) -> None:
        """Drop the cached spec of a deleted resource."""
        if new is None and old is not None:
            self._specs.pop(old.meta.uid, None)


def _parse(kind: type[object], given: object, where: str) -> object:
    """Return the typed form of a part of a resource, or the error."""
    try:
        return parse(kind, given, where)
    except SettingsInvalid as error:
        return error


def job_of(resource: JobResource, spec: StreamingJobSpec) -> Job:
    """Return a StreamingJob for `reconcile`, with another spec if its own is invalid."""
    meta = resource.meta
    return Job(
        **_common(resource, labels.JOB_FINALIZER) | {"spec": spec},
        created_at=meta.created_at,
        deleted=meta.deleted,
        skip_apply=meta.annotation(labels.SKIP_APPLY) == "true",
    )


def volume_of(resource: VolumeResource) -> Volume:
    """Return a CheckpointVolume with a valid spec for `reconcile`."""
    common = _common(resource, labels.VOLUME_FINALIZER)
    meta = resource.meta
    return Volume(**common, created_at=meta.created_at, deleted_at=meta.deleted_at)


def savepoint_of(resource: SavepointResource) -> Savepoint:
    """Return a Savepoint with a valid spec for `reconcile`."""
    meta = resource.meta
    attempt = meta.annotation(labels.ATTEMPT)
    return Savepoint(
        **_common(resource, labels.SAVEPOINT_FINALIZER),
        created_at=meta.created_at,
        deleted=meta.deleted,
        attempt=int(attempt) if attempt.isdigit() else None,
        job_uid=meta.annotation(labels.JOB_UID),
        force=meta.annotation(labels.FORCE_DISPOSE) == "true",
    )


def _common(resource: Resource[Any, Any], finalizer: str) -> dict[str, Any]:
    meta = resource.meta
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "generation": meta.generation,
        "spec": resource.spec,
        "status": resource.status,
        "has_finalizer": finalizer in meta.finalizers,
    }
