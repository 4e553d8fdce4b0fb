"""The marker: what a sink stores in an epoch's transaction to prove that it has the epoch.

Markers form a chain (rule 11): the record of each epoch names, for every part of every sink, the
marker that it expects there. `compare_marker` decides the whole apply. Pure: a sink calls it after
it reads its marker and before it writes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeGuard

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

_SEEDED = "seeded."
"""Prefix of the attempt in a marker that was written before a decision, without rows."""


def is_seed_of(found: Marker | None, expected: Marker) -> TypeGuard[Marker]:
    """Return whether a marker was seeded in place of `expected`."""
    return found is not None and found.epoch == expected.epoch and found.attempt.startswith(_SEEDED)


def marker_to_name(
    found: Marker | None, *, expected: Marker, new_id: str, may_expire: bool
) -> Marker:
    """Return the marker that a record must name as the one before it; write it if it is not `found`.

    Only before the decision of an epoch is it certain that the sink has everything up to `expected`.
    So an absent marker is replaced there, and after the decision its absence is always an error.

    A seed is written at most once, because its id is new. A record that names it therefore never
    takes a seed that was written after the decision for the marker before it. A seed that is found
    is kept: the attempt that wrote it may be decided next.

    Args:
        found: the marker in the sink, None if it has none.
        expected: the marker that the log expects.
        new_id: an id that was never used before.
        may_expire: whether absence may mean that `expected` has expired.
    """
    if is_seed_of(found, expected):
        return found
    unwritten = expected == NO_MARKER and found in (None, NO_MARKER)
    if unwritten or (found is None and may_expire):
        return Marker(expected.epoch, f"{_SEEDED}{new_id}")
    return expected


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
            data="nothing was written, and it is unknown whether the sink has the epoch: its markers "
            "were removed, or expired under a version that did not make them durable, or the sink was "
            "emptied or re-created, or it is another one than before",
            do="give the job the address of the former sink, or restore the sink with its markers; or, if "
            "the epoch is decided, see its sinks and rows with `sluicegate epochs show`, check whether the "
            "sink has them, and start a new lineage into it",
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
            do="restore a state of the sink that has these epochs, or start a new lineage into an empty sink. "
            "Only MySQL can be repaired from the epoch log, while that has their records: a topic of Kafka "
            "may have kept later epochs",
        )
    raise MarkerMismatch(
        what,
        data="nothing was written; the checkpoint and the sink have different histories",
        do="check whether the checkpoint was restored from a backup; if so, start a new lineage",
    )


def check_undecided(
    found: Marker | None, *, this: Marker, prev: Marker, where: str, may_regress: bool
) -> None:
    """Check that a record could be applied to a part, before it is decided and could only be stuck.

    Args:
        found: the marker in the sink, None if it has none.
        this: the marker of the record that may be decided.
        prev: the marker that it will name as the one before it.
        where: sink and part, for error messages.
        may_regress: whether the apply can start from an older marker, with the epochs that the part lacks.

    Raises:
        Fenced, SinkRegressed, MarkerMismatch: see `compare_marker`.
    """
    try:
        compare_marker(found, this=this, prev=prev, where=where)
    except SinkRegressed:
        if not may_regress:
            raise
