"""The operator's own resources: as the caches hold them, and as the reconcilers see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api import labels
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.codec import API, parse
from sluicegate_operator.api.crds import Kind
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.kube.resource import Json, Key, Meta, meta_of
from sluicegate_operator.reconcile.observed import Job, Savepoint, Volume
from sluicegate_operator.reconcile.streaming_job.acceptance import accepted_spec

Spec = TypeVar("Spec")
Status = TypeVar("Status")


@dataclass(frozen=True, slots=True)
class Resource(Generic[Spec, Status]):
    """A resource as it was read.

    Args:
        spec: the error if it cannot be parsed; `given` is then its JSON.
        status: the initial one if it cannot be parsed; `status_error` is then the error.
        ignored_fields: paths of fields in the spec that this release does not know.
    """

    meta: Meta
    spec: Spec | SettingsInvalid
    status: Status
    given: object = None
    status_error: SettingsInvalid | None = None
    ignored_fields: tuple[str, ...] = ()

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
    _specs: dict[str, tuple[int, object, tuple[str, ...]]] = field(default_factory=dict)

    def read(self, body: Json) -> Resource[Any, Any]:
        """Return the typed form of an object, without the fields that this release does not know."""
        meta = meta_of(body, labels.PREFIX)
        where = f"{self.kind.name} {meta.namespace}/{meta.name}"
        known = self._specs.get(meta.uid)
        if known is None or known[0] != meta.generation:
            spec, ignored = _parse(self.kind.spec, body.get("spec", {}), f"{where}: spec")
            known = meta.generation, spec, ignored
            self._specs[meta.uid] = known
        _, spec, ignored = known
        status, _ = _parse(self.kind.status, body.get("status") or {}, f"{where}: status")
        error = status if isinstance(status, SettingsInvalid) else None
        return Resource(
            meta,
            spec,
            status if error is None else self.kind.status(),
            given=body.get("spec") if isinstance(spec, SettingsInvalid) else None,
            status_error=error,
            ignored_fields=ignored,
        )

    def changed(
        self, _key: Key, old: Resource[Any, Any] | None, new: Resource[Any, Any] | None
    ) -> None:
        """Drop the cached spec of a deleted resource."""
        if new is None and old is not None:
            self._specs.pop(old.meta.uid, None)


def _parse(kind: type[object], given: object, where: str) -> tuple[object, tuple[str, ...]]:
    """Return the typed form of a part of a resource, or the error; and the fields that are unknown."""
    known, ignored = API.without_unknown(kind, given)
    try:
        return parse(kind, known, where), ignored
    except SettingsInvalid as error:
        return error, ignored


def runnable_spec(resource: JobResource) -> StreamingJobSpec | None:
    """Return the spec that a job runs: its own or, if that cannot be parsed, the accepted one.

    The field `suspend` of an invalid spec counts nevertheless: a person wants the driver to stop.
    """
    accepted = resource.valid_spec or accepted_spec(resource.status)
    suspend = resource.given.get("suspend") if isinstance(resource.given, Mapping) else None
    if accepted is None or not isinstance(suspend, bool):
        return accepted
    return dataclasses.replace(accepted, suspend=suspend)


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
        "ignored_fields": resource.ignored_fields,
    }
