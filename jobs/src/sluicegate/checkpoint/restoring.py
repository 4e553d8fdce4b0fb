"""Restoring a savepoint into an empty checkpoint, which becomes a new lineage.

The lineage is created last: until then no job starts on the checkpoint, and the same restore can
be run again. Not here: what the first start does with the parent's sinks (`takeover`). Called by
the CLI.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from functools import partial

from sluicegate.checkpoint.copying import copy_checked
from sluicegate.checkpoint.manifest import Manifest, read_manifest, write_ancestry
from sluicegate.checkpoint.savepoints import MOVED, moved_to
from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import SavepointRefused
from sluicegate.storage.lineage import (
    RESTORING,
    Lineage,
    create_lineage,
    new_lineage_id,
    read_lineage,
)
from sluicegate.storage.objects import Objects, open_objects


@dataclass(frozen=True)
class Wish:
    """How a savepoint is to be restored.

    Args:
        branch: beside the original, even if the savepoint was sealed for a move.
        same_sinks: a branch may write to the sinks of the original.
    """

    branch: bool = False
    same_sinks: bool = False


def restore(savepoint: str, checkpoint: str, wish: Wish | None = None) -> Lineage:
    """Make an empty folder a checkpoint that goes on from a savepoint.

    A sealed savepoint moves its job, once; any other gives a branch, which may not write to the
    sinks of the original unless told.

    Args:
        savepoint: its address.
        checkpoint: an empty place, on any volume.
        wish: default: move if it is sealed, else a branch onto other sinks.

    Returns:
        The new lineage.

    Raises:
        NoSavepoint: it is none, or a file of it is missing or changed.
        SavepointRefused: the checkpoint is not empty, or the job was moved elsewhere already.
    """
    wish = wish or Wish()
    source, target = open_objects(savepoint), open_objects(checkpoint)
    manifest = read_manifest(source, savepoint)
    moves = manifest.sealed and not wish.branch
    other = moved_to(source) if moves else ""
    if other not in ("", checkpoint):
        raise _moved_already(savepoint, other)
    lineage = _begun(target, checkpoint, manifest, wish)
    copy_checked(
        source,
        target,
        manifest.files,
        reach=partial(failpoints.reach, "restore-copying", epoch=manifest.epoch),
    )
    # another id than the parent's: Spark does not let two queries of one id run in a session
    target.put("metadata", [json.dumps({"id": str(uuid.uuid4())}).encode()])
    write_ancestry(target, manifest.ancestry)
    if moves:
        _claim(source, savepoint, checkpoint, lineage)
    made = create_lineage(target, lineage)
    target.delete(RESTORING)
    return made


def _begun(target: Objects, checkpoint: str, manifest: Manifest, wish: Wish) -> Lineage:
    """Claim the empty checkpoint; or return the lineage that a restore of it had begun with."""
    wanted = Lineage(
        id=new_lineage_id(),
        job=manifest.job,
        first_epoch=manifest.epoch + 1,
        parent=manifest.ancestry.lineage,
        moved=manifest.sealed and not wish.branch,
        same_sinks=wish.same_sinks,
    )
    stored = target.read(RESTORING)
    if stored is None and any(True for _ in target.names("")):
        raise _not_empty(checkpoint)
    note = {"savepoint": manifest.id, **wanted.__dict__}
    target.create(RESTORING, json.dumps(note).encode())
    begun = json.loads(target.read(RESTORING) or b"{}")
    same = begun.pop("savepoint", None) == manifest.id
    lineage = Lineage(**begun) if same else wanted
    if not same or read_lineage(target) is not None or lineage.moved != wanted.moved:
        raise _not_empty(checkpoint)
    return Lineage(**(lineage.__dict__ | {"same_sinks": wish.same_sinks}))


def _claim(source: Objects, savepoint: str, checkpoint: str, lineage: Lineage) -> None:
    """Say in the savepoint where its job has gone, once."""
    note = json.dumps({"checkpoint": checkpoint, "lineage": lineage.id}).encode()
    source.create(MOVED, note)
    stored = json.loads(source.read(MOVED) or note)
    if stored["lineage"] != lineage.id:
        raise _moved_already(savepoint, stored["checkpoint"])


def _moved_already(savepoint: str, other: str) -> SavepointRefused:
    return SavepointRefused(
        f"{savepoint} was restored into {other} already, which goes on in its parent's place",
        data="no job can start on this checkpoint; two successors would write everything twice",
        do="go on with the other; or restore with --branch, for a job onto other sinks",
    )


def _not_empty(checkpoint: str) -> SavepointRefused:
    return SavepointRefused(
        f"{checkpoint} is not empty",
        data="nothing was changed",
        do="restore into a new folder: a restored job is a new lineage",
    )
