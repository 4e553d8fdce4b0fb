"""Resource types and their paths, and the metadata that every object has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate_operator.kube.timestamps import parse_instant, to_instant

Json = dict[str, Any]

Key = tuple[str, str]
"""Namespace and name of an object."""


@dataclass(frozen=True)
class ResourceType:
    """A type of resource that an API server serves.

    Args:
        group: the API group; empty for the core group.
        version: of the group.
        plural: the name in paths.
        kind: the name in objects.
    """

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", *, sub: str = "") -> str:
        """Return the path of a collection, an object, or an object's subresource.

        Args:
            namespace: empty for all namespaces, and for cluster-scoped resources.
            name: empty for the collection.
            sub: the subresource, such as 'status'.
        """
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [base, *(("namespaces", namespace) if namespace else ()), self.plural, name, sub]
        return "/".join(part for part in parts if part)


NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace")
NODES = ResourceType("", "v1", "nodes", "Node")
PODS = ResourceType("", "v1", "pods", "Pod")
SECRETS = ResourceType("", "v1", "secrets", "Secret")
EVENTS = ResourceType("", "v1", "events", "Event")
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")


@dataclass(frozen=True)
class Meta:
    """Metadata of an object.

    Args:
        version: its resourceVersion, for conditional writes.
        created_at: seconds since 1970.
        deleted_at: when its deletion was requested; the object stays until it has no finalizers.
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
        """Whether its deletion was requested."""
        return self.deleted_at is not None

    def annotation(self, name: str) -> str:
        """Return the value of an annotation; empty if there is none."""
        return dict(self.annotations).get(name, "")


def meta_of(body: Mapping[str, Any], annotation_prefix: str = "") -> Meta:
    """Return the metadata of an object.

    Args:
        body: the object.
        annotation_prefix: only annotations that begin with it are kept. Others, such as kubectl's
            last-applied-configuration, can be large.
    """
    meta = body["metadata"]
    kept = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(annotation_prefix)
    }
    return Meta(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        created_at=to_instant(meta["creationTimestamp"]),
        deleted_at=parse_instant(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        annotations=tuple(sorted(kept.items())),
    )
