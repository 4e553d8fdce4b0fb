"""Restores a savepoint into an empty checkpoint, which becomes a new lineage.

The lineage is created last: until then no job starts on the checkpoint, and the same restore can be
repeated. What the first start does about the parent's sinks is in `takeover`.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, replace
from functools import partial

from sluicegate import failpoints
from sluicegate.errors import SavepointRefused
from sluicegate.savepoints.catalog import MOVED, moved_to
from sluicegate.savepoints.copy import copy_verified
from sluicegate.savepoints.manifest import Manifest, read_manifest, write_ancestry
from sluicegate.storage.lineage import (
    RESTORING,
    Lineage,
    create_lineage,
    new_lineage_id,
    read_lineage,
)
from sluicegate.storage.object_store import ObjectStore, absolute, create_and_read


def restore_savepoint(
    savepoint: ObjectStore,
    checkpoint: ObjectStore,
    *,
    branch: bool = False,
    same_sinks: bool = False,
) -> Lineage:
    """Turn an empty folder into a checkpoint that continues from a savepoint; return its lineage.

    A sealed savepoint moves its job, once. Any other creates a branch, which may not write to the
    sinks of the original.

    Args:
        savepoint: the savepoint.
        checkpoint: an empty folder in any store.
        branch: create a branch even if the savepoint was sealed for a move.
        same_sinks: allow a branch to write to the sinks of the original.

    Raises:
        SavepointInvalid: it is not a savepoint, or one of its files is missing or has changed.
        SavepointRefused: the checkpoint is not empty, or the job was moved elsewhere already, or a job
            was started on the checkpoint meanwhile.
    """
    manifest = read_manifest(savepoint)
    moves = manifest.sealed and not branch
    successor = moved_to(savepoint) if moves else ""
    if successor and absolute(successor) != absolute(checkpoint.url):
        raise _moved_already(savepoint, successor)
    lineage = _begin_or_resume(checkpoint, manifest, moves=moves, same_sinks=same_sinks)
    if read_lineage(checkpoint) is None:  # otherwise only the last step is missing
        _copy(savepoint, checkpoint, manifest, lineage)
    checkpoint.delete(RESTORING)
    return lineage


def _copy(
    savepoint: ObjectStore, checkpoint: ObjectStore, manifest: Manifest, lineage: Lineage
) -> None:
    """Copy a savepoint into a checkpoint, and create its lineage last."""
    copy_verified(
        savepoint,
        checkpoint,
        manifest.files,
        reach=partial(failpoints.reach, "restore-copying", epoch=manifest.epoch),
    )
    # not the parent's id: Spark does not run two queries of the same id in one session
    checkpoint.put("metadata", [json.dumps({"id": str(uuid.uuid4())}).encode()])
    write_ancestry(checkpoint, manifest.ancestry)
    if lineage.moved:
        _claim_succession(savepoint, checkpoint, lineage)
    if create_lineage(checkpoint, lineage).id != lineage.id:
        if lineage.moved:
            savepoint.delete(MOVED)  # no successor of that id exists
        raise SavepointRefused(
            f"a job was started on {checkpoint.url} while the savepoint was restored into it",
            data="the checkpoint has files of both, and no job can go on with it; the savepoint is unchanged",
            do="stop that job, empty the folder, then restore the savepoint again",
        )


def _begin_or_resume(
    checkpoint: ObjectStore, manifest: Manifest, *, moves: bool, same_sinks: bool
) -> Lineage:
    """Claim an empty checkpoint, or return the lineage of an interrupted restore of the same kind."""
    wanted = Lineage(
        id=new_lineage_id(),
        job=manifest.job,
        first_epoch=manifest.epoch + 1,
        parent=manifest.ancestry.lineage,
        moved=moves,
    )
    if checkpoint.read(RESTORING) is None and any(True for _ in checkpoint.names("")):
        raise _not_empty(checkpoint)
    note = {"savepoint": manifest.id, **asdict(wanted)}
    begun = json.loads(create_and_read(checkpoint, RESTORING, json.dumps(note).encode()))
    same = begun.pop("savepoint", None) == manifest.id and begun["moved"] == moves
    created = read_lineage(checkpoint)
    if not same or (created is not None and created.id != begun["id"]):
        raise _not_empty(checkpoint)
    return created or replace(Lineage(**begun), same_sinks=same_sinks)


def _claim_succession(savepoint: ObjectStore, checkpoint: ObjectStore, lineage: Lineage) -> None:
    """Record in the savepoint, once, which checkpoint succeeds the parent."""
    note = json.dumps({"checkpoint": checkpoint.url, "lineage": lineage.id}).encode()
    stored = json.loads(create_and_read(savepoint, MOVED, note))
    if stored["lineage"] != lineage.id:
        raise _moved_already(savepoint, stored["checkpoint"])


def _moved_already(savepoint: ObjectStore, successor: str) -> SavepointRefused:
    return SavepointRefused(
        f"{savepoint.url} was moved already: it was restored into {successor}, which replaces its parent",
        data="no job can start on this checkpoint; two successors would write everything twice",
        do="continue with the other checkpoint, or restore with --branch for a job onto other sinks",
    )


def _not_empty(checkpoint: ObjectStore) -> SavepointRefused:
    return SavepointRefused(
        f"{checkpoint.url} is not empty",
        data="nothing was changed",
        do="restore into a new folder, because a restored job is a new lineage",
    )
