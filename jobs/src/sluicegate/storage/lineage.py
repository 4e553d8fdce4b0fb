"""The identity of a checkpoint's history: a random id in a create-once object of its own.

Never copied and never Spark's query id, so that a copied checkpoint is not taken for the
original (DESIGN.md section 4). Called once at a driver's start.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass

from sluicegate.protocol.errors import CheckpointOfAnotherJob
from sluicegate.storage.objects import Objects

_NAME = "lineage.json"
RESTORING = "restoring.json"
"""There while a savepoint is being copied into a checkpoint that has no lineage yet."""


@dataclass(frozen=True)
class Lineage:
    """Who a checkpoint belongs to.

    Args:
        id: random; part of every marker's key.
        job: the job's name.
        first_epoch: the first epoch of this history.
        parent: the lineage that it was restored from, empty for a fresh one.
        moved: the parent was sealed for it: it goes on in the parent's place, into its sinks.
        same_sinks: a branch that was told that it may write to the parent's sinks.
    """

    id: str
    job: str
    first_epoch: int = 0
    parent: str = ""
    moved: bool = False
    same_sinks: bool = False


def new_lineage_id() -> str:
    """Draw the id of a new history."""
    return uuid.uuid4().hex[:16]


def read_lineage(objects: Objects) -> Lineage | None:
    """Return the lineage of a checkpoint, None if it has none yet."""
    stored = objects.read(_NAME)
    return None if stored is None else Lineage(**json.loads(stored))


def create_lineage(objects: Objects, lineage: Lineage) -> Lineage:
    """Create the lineage of a checkpoint that has none, and return the one that is there then."""
    objects.create(_NAME, json.dumps(asdict(lineage)).encode())
    return read_lineage(objects) or lineage


def claim_lineage(objects: Objects, job: str) -> Lineage:
    """Return the checkpoint's lineage; a fresh checkpoint gets one.

    Raises:
        CheckpointOfAnotherJob: it belongs to another job, Spark used it without Sluicegate, or a
            savepoint is half restored into it.
    """
    found = read_lineage(objects)
    if found is None:
        if objects.read(RESTORING) is not None:
            raise CheckpointOfAnotherJob(
                "a savepoint was being restored into this checkpoint, and that was not finished",
                data="nothing was written; the savepoint is as it was",
                do="run the same `sluicegate savepoint restore` again, it goes on; or empty the folder",
            )
        if objects.read("metadata") is not None:
            raise CheckpointOfAnotherJob(
                "the checkpoint was written by a Spark query that Sluicegate never ran",
                data="nothing was written; which of its batches are in the sinks cannot be known",
                do="start with a fresh checkpoint directory",
            )
        found = create_lineage(objects, Lineage(new_lineage_id(), job))
    if found.job != job:
        raise CheckpointOfAnotherJob(
            f"the checkpoint belongs to job {found.job}; this is job {job}",
            data="nothing was written",
            do="give each job a checkpoint of its own, or start the job by its old name",
        )
    return found
