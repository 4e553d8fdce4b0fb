"""What object stores share: names of objects, the size of pieces, and the error of a store that failed."""

from __future__ import annotations

from sluicegate.errors import SettingsInvalid, StoreUnavailable

PIECE_BYTES = 4 << 20
"""Size of the pieces in which a large object is read."""


def is_inside(name: str) -> bool:
    """Return whether an object's name stays below the root of its store, wherever that is."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def checked(name: str) -> str:
    """Return the name of an object; raises SettingsInvalid if it leaves the root of the store."""
    if is_inside(name):
        return name
    raise SettingsInvalid(
        f"{name!r} is not the name of an object: it is absolute, or has an empty part, '.' or '..'",
        data="nothing was read, written or deleted",
        do="find out who wrote this name into the savepoint or checkpoint, and do not use that any more",
    )


def unavailable(action: str, details: str) -> StoreUnavailable:
    """Return the error of a store that failed; `action` continues 'the checkpoint store did not'."""
    return StoreUnavailable(
        f"the checkpoint store did not {action}: {details}",
        data="a write may or may not have succeeded; reading it back decides that",
        do="check the store (space, permissions, network); the driver retries",
    )
