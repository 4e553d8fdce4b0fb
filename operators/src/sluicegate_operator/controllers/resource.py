"""The operator's own resources as the caches hold them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.labels import PREFIX
from sluicegate_operator.kube.resource import Json, Meta, meta_of

Spec = TypeVar("Spec")
Status = TypeVar("Status")


@dataclass(frozen=True)
class Resource(Generic[Spec, Status]):
    """A resource; its spec is the error if it cannot be parsed."""

    meta: Meta
    spec: Spec | SettingsInvalid
    status: Status

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.meta.namespace, self.meta.name


@dataclass
class ResourceReader(Generic[Spec, Status]):
    """Parses resources of one kind. A spec is parsed once per generation.

    Args:
        kind: name of the kind, for errors.
        spec: dataclass of the spec.
        status: dataclass of the status.
    """

    kind: str
    spec: type[Spec]
    status: type[Status]
    _specs: dict[str, tuple[int, Spec | SettingsInvalid]] = field(default_factory=dict)

    def read(self, body: Json) -> Resource[Spec, Status]:
        """Return the typed form of an object."""
        meta = meta_of(body, PREFIX)
        where = f"{self.kind} {meta.namespace}/{meta.name}"
        known = self._specs.get(meta.uid)
        if known is None or known[0] != meta.generation:
            known = meta.generation, self._parse_spec(body, where)
            self._specs[meta.uid] = known
        return Resource(meta, known[1], self._parse_status(body, where))

    def forget(self, uid: str) -> None:
        """Drop the cached spec of a deleted resource."""
        self._specs.pop(uid, None)

    def _parse_spec(self, body: Json, where: str) -> Spec | SettingsInvalid:
        try:
            return parse(self.spec, body.get("spec", {}), f"{where}: spec")
        except SettingsInvalid as error:
            return error

    def _parse_status(self, body: Json, where: str) -> Status:
        """Return the status. An invalid one counts as empty: it is rebuilt from what is observed."""
        try:
            return parse(self.status, body.get("status") or {}, f"{where}: status")
        except SettingsInvalid:
            return self.status()
