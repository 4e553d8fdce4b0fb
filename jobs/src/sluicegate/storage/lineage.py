"""The identity of a checkpoint's history: a random id in a create-once object of its own.

Never copied and never Spark's query id, so that a copied checkpoint is not mistaken for the
original (docs/concepts/protocol.md, "Savepoints and seals").
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass

from sluicegate.errors import CheckpointOfAnotherJob
from sluicegate.storage.object_store import ObjectStore, create_and_read

_NAME = "lineage.json"
_OF_A_QUERY = frozenset({"commits/", "epochs/", "metadata", "offsets/", "sources/", "state/"})
"""What a query writes, of which a new checkpoint has nothing."""
RESTORING = "restoring.json"
"""Exists while a savepoint is being copied into a checkpoint that has no lineage yet."""


@dataclass(frozen=True)
class Lineage:
    """One history of a job, to which a checkpoint belongs.

    Args:
        id: random; part of every marker's key.
        job: the job's name.
        first_epoch: the first epoch of this history.
        parent: the lineage that it was restored from; empty: none.
        moved: the parent was sealed for it, so it replaces the parent and takes over its sinks.
        same_sinks: a branch that is allowed to write to the parent's sinks.
    """

    id: str
    job: str
    first_epoch: int = 0
    parent: str = ""
    moved: bool = False
    same_sinks: bool = False


def new_lineage_id() -> str:
    """Return a random id for a new lineage."""
    return uuid.uuid4().hex[:16]


def read_lineage(checkpoint: ObjectStore) -> Lineage | None:
    """Return the lineage of a checkpoint, None if it has none yet."""
    stored = checkpoint.read(_NAME)
    return None if stored is None else Lineage(**json.loads(stored))


def create_lineage(checkpoint: ObjectStore, lineage: Lineage) -> Lineage:
    """Create the lineage of a checkpoint unless it has one; return the one that it has then."""
    stored = create_and_read(checkpoint, _NAME, json.dumps(asdict(lineage)).encode())
    return Lineage(**json.loads(stored))


def delete_checkpoint(checkpoint: ObjectStore) -> None:
    """Delete a checkpoint, its lineage first: if the rest is not deleted, no job takes it for a new one.

    Raises:
        StoreUnavailable: it is only partly deleted; delete the rest by hand.
    """
    checkpoint.delete(_NAME)
    checkpoint.clear()


def claim_lineage(checkpoint: ObjectStore, job: str) -> Lineage:
    """Return the checkpoint's lineage; a fresh checkpoint gets one.

    Raises:
        CheckpointOfAnotherJob: it belongs to another job, Spark used it without Sluicegate, or a
            restore into it is incomplete.
    """
    lineage = read_lineage(checkpoint)
    if lineage is None:
        if checkpoint.read(RESTORING) is not None:
            raise CheckpointOfAnotherJob(
                "the restore of a savepoint into this checkpoint is incomplete",
                data="nothing was written; the savepoint is unchanged",
                do="run the same `sluicegate savepoint restore` again, which resumes it; or empty the "
                "folder",
            )
        found = sorted(_OF_A_QUERY.intersection(checkpoint.entries("")))
        # an empty folder means nothing
        left = [e for e in found if e == "metadata" or next(iter(checkpoint.names(e)), None)]
        if left:
            raise CheckpointOfAnotherJob(
                f"the checkpoint has no lineage, but {', '.join(left)}: it was written by a Spark query that "
                "Sluicegate never ran, or its deletion was interrupted",
                data="nothing was written; it is unknown which of its batches are in the sinks",
                do="start with an empty checkpoint directory",
            )
        lineage = create_lineage(checkpoint, Lineage(new_lineage_id(), job))
    if lineage.job != job:
        raise CheckpointOfAnotherJob(
            f"the checkpoint belongs to job {lineage.job}, but this is job {job}",
            data="nothing was written",
            do="give each job its own checkpoint, or start the job under its old name",
        )
    return lineage
