"""The owner of a folder on a store: a create-once object that names one resource of Kubernetes.

Two resources that name one folder would each run a driver on it, and each delete the other's data. The
API server cannot know that: the resources may be in different namespaces or clusters.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sluicegate.errors import OwnedByAnother
from sluicegate.storage.object_store import ObjectStore, create_and_read

OWNER = "owner.json"


@dataclass(frozen=True)
class Owner:
    """A resource.

    A resource that was deleted and created again under the same name is the same owner: it continues where
    the first one stopped. `uid` is informational.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """Return it as in an error message."""
        return f"{self.kind} {self.namespace}/{self.name}"

    def is_same(self, other: Owner) -> bool:
        """Return whether both are the same resource by kind, namespace and name."""
        return str(self) == str(other)


def read_owner(folder: ObjectStore, name: str = OWNER) -> Owner | None:
    """Return the owner of a folder, or None; `name`: of its object, for a folder below.

    Raises:
        OwnedByAnother: the object exists but cannot be read.
    """
    stored = folder.read(name)
    return None if stored is None else _parsed(folder, name, stored)


def _parsed(folder: ObjectStore, name: str, stored: bytes) -> Owner:
    try:
        return Owner(**json.loads(stored))
    except (TypeError, ValueError) as error:
        raise OwnedByAnother(
            f"{name} of {folder.url} does not name an owner: {error}",
            data="nothing was started or deleted",
            do="find out who wrote it; delete it if the folder is yours",
        ) from error


def claim_owner(folder: ObjectStore, owner: Owner) -> None:
    """Make a resource the owner of a folder, unless it is already.

    Raises:
        OwnedByAnother: another resource owns the folder.
        StoreUnavailable: the store did not answer, or does not return the owner that was just stored.
    """
    found = read_owner(folder)
    if found is None:
        stored = create_and_read(folder, OWNER, json.dumps(asdict(owner)).encode())
        found = _parsed(folder, OWNER, stored)
    if not found.is_same(owner):
        raise owned_by_another(folder.url, found, owner)


def owned_by_another(url: str, found: Owner, owner: Owner) -> OwnedByAnother:
    """Return the error for a folder of another owner."""
    return OwnedByAnother(
        f"{url} belongs to {found}, and this is {owner}",
        data="nothing was started or deleted: both would write to one checkpoint and delete each other's data",
        do=f"use another prefix or path; if {found} is gone for good and its data is to be used, delete "
        f"{OWNER} there",
    )
