"""The marker: what a sink stores in an epoch's transaction to prove that it has the epoch.

Markers form a chain (rule 11): the record of each epoch names, for every part of every sink, the
marker that it expects there. `compare_marker` decides the whole apply. Pure: a sink calls it after
it reads its marker and before it writes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sluicegate.errors import Fenced, MarkerMismatch, SinkRegressed


@dataclass(frozen=True)
class Marker:
    """The last epoch that a part of a sink has applied.

    Args:
        epoch: the epoch's number; -1 before the first.
        attempt: the id of the attempt that was decided for it; empty before the first.
    """

    epoch: int
    attempt: str

    def __str__(self) -> str:
        return f"epoch {self.epoch}, attempt {self.attempt}" if self.attempt else "none yet"


NO_MARKER = Marker(-1, "")
"""The marker of a part in a new lineage: nothing is applied."""


class Verdict(enum.Enum):
    """What an apply does after it has read the marker."""

    APPLY = "apply"
    SKIP = "skip"


def compare_marker(found: Marker | None, *, this: Marker, prev: Marker, where: str) -> Verdict:
    """Decide whether a part of a decided epoch must still be written.

    Args:
        found: the marker in the sink, None if it has none.
        this: the marker of the record that is being applied.
        prev: the marker that the record expects to find.
        where: sink and part, for error messages.

    Raises:
        Fenced: the sink is ahead of this record: another driver continued.
        SinkRegressed: the sink is older than `prev`: it was restored or failed over.
        MarkerMismatch: the marker is absent, or belongs to no attempt of this chain.
    """
    if found == this:
        return Verdict.SKIP
    if found == prev or (found is None and prev == NO_MARKER):
        return Verdict.APPLY
    what = (
        f"{where}: the marker is {found or 'absent'}; the record expects {prev} and writes {this}"
    )
    if found is None or found == NO_MARKER != prev:
        raise MarkerMismatch(
            what,
            data="nothing was written. If the sink was emptied or re-created, its former rows are gone",
            do="restore the sink with its markers, or start a new lineage into it",
        )
    if found.epoch > this.epoch:
        raise Fenced(
            what,
            data="nothing was written; another driver of this lineage continued without this one",
            do="let this driver stop, and run one driver per checkpoint",
        )
    if found.epoch < prev.epoch:
        raise SinkRegressed(
            what,
            data="the sink lost epochs that were applied, by a failover or a restored backup",
            do="MySQL is brought forward from the retained records; for Kafka, restore the topic",
        )
    raise MarkerMismatch(
        what,
        data="nothing was written; the checkpoint and the sink have different histories",
        do="check whether the checkpoint was restored from a backup; if so, start a new lineage",
    )
