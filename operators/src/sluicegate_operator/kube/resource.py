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
    def type_meta(self) -> dict[str, str]:
        """The apiVersion and kind of its objects."""
        version = f"{self.group}/{self.version}" if self.group else self.version
        return {"apiVersion": version, "kind": self.kind}

    def path(self, namespace: str = "", name: str = "", *, sub: str = "") -> str:
        """Return the path of a collection, or of an object if it is named, or of its subresource.

        `namespace` is empty for all namespaces, and for cluster-scoped resources.
        """
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [base, *(("namespaces", namespace) if namespace else ()), self.plural, name, sub]
        return "/".join(part for part in parts if part)


def plural_of(path: str) -> str:
    """Return the plural name of the resource type in a path of `ResourceType.path`; empty in another one."""
    parts = path.strip("/").split("/")
    parts = parts[2 if parts[0] == "api" else 3 :]
    below = parts[2:] if parts[:1] == ["namespaces"] else []
    return (below or parts or [""])[0]


NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace")
NODES = ResourceType("", "v1", "nodes", "Node")
PODS = ResourceType("", "v1", "pods", "Pod")
SECRETS = ResourceType("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount")
NETWORK_POLICIES = ResourceType("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
EVENTS = ResourceType("", "v1", "events", "Event")
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")


@dataclass(frozen=True, slots=True)
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
    def identity(self) -> Json:
        """What identifies the object and its version in a write or an Event."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.version,
        }

    @property
    def deleted(self) -> bool:
        """Whether its deletion was requested."""
        return self.deleted_at is not None

    def annotation(self, name: str) -> str:
        """Return the value of an annotation; empty if there is none."""
        return dict(self.annotations).get(name, "")


def meta_of(body: Mapping[str, Any], annotation_prefix: str = "") -> Meta:
    """Return the metadata of an object, with the annotations that begin with a prefix.

    Others, such as kubectl's last-applied-configuration, can be large.
    """
    meta = body["metadata"]
    annotations = (meta.get("annotations") or {}).items()
    return Meta(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        created_at=to_instant(meta["creationTimestamp"]),
        deleted_at=parse_instant(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        annotations=tuple(
            sorted(one for one in annotations if one[0].startswith(annotation_prefix))
        ),
    )
