"""The marker: what a sink keeps, in the transaction of an epoch, to say that the epoch is in.

Markers form a chain (rule 11): each epoch's record names, for every part of every sink, the
marker it expects to find. `judge` is the whole decision of an apply. Pure; the sinks call it
between reading their marker and writing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sluicegate.protocol.errors import Fenced, MarkerMismatch, SinkWentBack


@dataclass(frozen=True)
class Marker:
    """Which epoch a part of a sink has applied last.

    Args:
        epoch: the epoch's number; -1 before the first.
        attempt: the id of the attempt that was decided for it; empty before the first.
    """

    epoch: int
    attempt: str

    def __str__(self) -> str:
        return f"epoch {self.epoch}, attempt {self.attempt}" if self.attempt else "none yet"


GENESIS = Marker(-1, "")
"""What a part of a new lineage has applied: nothing."""


class Verdict(enum.Enum):
    """What an apply does after it has read the marker."""

    APPLY = "apply"
    SKIP = "skip"


def judge(found: Marker | None, *, this: Marker, prev: Marker, where: str) -> Verdict:
    """Say whether a decided part is still to be written.

    Args:
        found: the marker that the sink holds, None where it holds none at all.
        this: the marker of the record that is being applied.
        prev: the marker that the record expects to find.
        where: sink and part, for the errors.

    Raises:
        Fenced: the sink is beyond this record: another driver went on.
        SinkWentBack: the sink is behind `prev`: it was restored or failed over.
        MarkerMismatch: the marker is absent, or belongs to no attempt of this chain.
    """
    if found == this:
        return Verdict.SKIP
    if found == prev or (found is None and prev == GENESIS):
        return Verdict.APPLY
    said = (
        f"{where}: the marker is {found or 'absent'}; the record expects {prev} and writes {this}"
    )
    if found is None or found == GENESIS != prev:
        raise MarkerMismatch(
            said,
            data="nothing was written. If the sink was emptied or re-created, what it held is gone",
            do="restore the sink with its markers, or start a new lineage into it on purpose",
        )
    if found.epoch > this.epoch:
        raise Fenced(
            said,
            data="nothing was written; another driver of this lineage went on without this one",
            do="let this driver end; keep one driver per checkpoint",
        )
    if found.epoch < prev.epoch:
        raise SinkWentBack(
            said,
            data="epochs that were applied are missing from the sink: a failover, or a backup put back",
            do="MySQL is brought forward from the kept records; for Kafka restore the topic",
        )
    raise MarkerMismatch(
        said,
        data="nothing was written; the checkpoint and the sink have different histories",
        do="find out whether the checkpoint was put back from a backup; start a new lineage if so",
    )
