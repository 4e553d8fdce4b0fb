"""The savepoints in a folder: listing and disposing of them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sluicegate.errors import SavepointInvalid, SavepointRefused
from sluicegate.savepoints.manifest import (
    MANIFEST,
    TAKING,
    Manifest,
    end_unfinished,
    is_unfinished,
    read_manifest,
)
from sluicegate.storage.object_store import ObjectStore, open_store

MOVED = "moved.json"
"""In a sealed savepoint: the checkpoint that it was restored into as its parent's successor."""


@dataclass(frozen=True)
class Savepoint:
    """A savepoint and its address."""

    url: str
    manifest: Manifest | None
    """None: the savepoint is incomplete."""
    moved_to: str = ""
    """The checkpoint of the parent's successor; empty: none yet."""
    begun_at_ms: int = 0
    """When an incomplete savepoint was begun, in ms since 1970; 0: unknown, or it is complete."""


def list_savepoints(folder: str) -> list[Savepoint]:
    """Return the savepoints in a folder, oldest first, then the incomplete ones, oldest first."""
    folder = folder.rstrip("/")
    names = (name.rpartition("/") for name in open_store(folder).names(""))
    heads = {head for head, _, file in names if file in (MANIFEST, TAKING) and "/" not in head}
    savepoints = [read_savepoint(open_store(f"{folder}/{head}".rstrip("/"))) for head in heads]
    return sorted(savepoints, key=_age)


def _age(savepoint: Savepoint) -> tuple[bool, int]:
    if savepoint.manifest is None:
        return True, savepoint.begun_at_ms
    return False, savepoint.manifest.created_at_ms


def read_savepoint(store: ObjectStore) -> Savepoint:
    """Return the savepoint in a folder, without its manifest if it is incomplete or unreadable."""
    try:
        manifest = read_manifest(store)
    except SavepointInvalid:
        return Savepoint(store.url, None, begun_at_ms=_begun_at_ms(store))
    return Savepoint(store.url, manifest, moved_to(store))


def _begun_at_ms(savepoint: ObjectStore) -> int:
    """Return when a savepoint was begun; 0 if an earlier version did not note it."""
    try:
        return int(json.loads(savepoint.read(TAKING) or b"")["begun_at_ms"])
    except (LookupError, TypeError, ValueError):
        return 0


def moved_to(savepoint: ObjectStore) -> str:
    """Return the checkpoint of the parent's successor, empty if there is none yet."""
    stored = savepoint.read(MOVED)
    return "" if stored is None else str(json.loads(stored)["checkpoint"])


def dispose_savepoint(
    savepoint: ObjectStore, *, unfinished: bool = False, force: bool = False
) -> int:
    """Delete a savepoint and return the number of deleted files.

    The manifest is deleted first, so that the rest is never mistaken for a savepoint. An unfinished one
    can be completed by nobody while it is being deleted, nor later.

    Args:
        savepoint: its store.
        unfinished: delete an incomplete savepoint. A process that is taking it now fails.
        force: delete it even if it is the only way for a sealed job to continue.

    Raises:
        SavepointInvalid: there is no savepoint.
        SavepointRefused: it moves a job that was not restored yet, or it was completed meanwhile.
    """
    incomplete = unfinished and is_unfinished(savepoint)
    if incomplete and not end_unfinished(savepoint):
        raise SavepointRefused(
            f"{savepoint.url} was completed in the meantime",
            data="nothing was changed",
            do="leave out --unfinished to delete it",
        )
    manifest = None if incomplete else read_manifest(savepoint)
    if manifest is not None and manifest.sealed and not moved_to(savepoint) and not force:
        raise SavepointRefused(
            f"{savepoint.url} was sealed for a move and never restored: without it job {manifest.job} "
            "can only continue from another savepoint of its sealed checkpoint",
            data="nothing was changed",
            do="restore it first, or pass --force if the job has ended for good",
        )
    names = set(savepoint.names("")) - {MANIFEST, TAKING}
    if manifest is not None:
        savepoint.delete(MANIFEST)
        names &= {*manifest.files, MOVED}
    for name in sorted(names):
        savepoint.delete(name)
    savepoint.delete(TAKING)
    savepoint.delete(MANIFEST)  # of an unfinished one last: it keeps others from completing it
    return len(names)
