"""What a restored job does about its parent's sinks before its first epoch.

A branch must not write to them. A moved job takes them over: for each part of each sink it opens a
writer of the parent, which fences a forgotten one, and advances the parent's marker from where the
savepoint left it. So the sink itself rejects a second successor, a sink that was reset is detected,
and no process of the parent can apply anything any more. Uses only the sinks' contract.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from sluicegate import failpoints
from sluicegate.errors import EpochLogBroken, Fenced, SinksStillOwned
from sluicegate.protocol.markers import NO_MARKER, Marker, is_seed_of
from sluicegate.protocol.record import SinkBinding
from sluicegate.savepoints.manifest import Ancestry, read_ancestry
from sluicegate.settings.epoch import EXACTLY_ONCE
from sluicegate.sinks.contract import BoundSink, PartDecision
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger("sluicegate.savepoint")

_MOVED = "moved."
"""Prefix of the attempt in a marker that stands for a takeover, not for a decided epoch."""

Sinks = Mapping[str, BoundSink]


def take_over_or_isolate(
    checkpoint: ObjectStore, lineage: Lineage, sinks: Sinks, bind: Callable[[str], Sinks]
) -> None:
    """Take over the parent's sinks, or verify that a branch does not use them.

    Does nothing for a job without a parent, and nothing after the first decided epoch.

    Args:
        checkpoint: the job's checkpoint.
        lineage: its lineage.
        sinks: the job's sinks by id.
        bind: binds the same sinks for the lineage that it is called with.

    Raises:
        SinksStillOwned: a branch uses a sink of the original without permission.
        Fenced: another successor has taken over the sinks.
        SinkRegressed, MarkerMismatch: the state of a sink contradicts the savepoint.
        SinkUnavailable: a server does not reply.
    """
    if not lineage.parent or StoredEpochLog(checkpoint).newest() is not None:
        return
    ancestry = read_ancestry(checkpoint)
    if ancestry is None:
        raise EpochLogBroken(
            f"the checkpoint of lineage {lineage.id} does not contain what its parent had written",
            data="nothing was written",
            do="restore ancestry.json, or restore the checkpoint from its savepoint again",
        )
    if lineage.moved:
        take_over(ancestry, lineage, bind(ancestry.lineage))
    elif not lineage.same_sinks:
        _check_isolation(ancestry, sinks)


def verify_takeover(
    checkpoint: ObjectStore, lineage: Lineage, bind: Callable[[str], Sinks], sink: str
) -> None:
    """Verify that a sink of a moved job has not lost the parent's last epochs since the takeover.

    Raises as `take_over_or_isolate`.
    """
    ancestry = read_ancestry(checkpoint) if lineage.moved else None
    if ancestry is not None and sink in ancestry.sinks:
        ours = {sink: ancestry.sinks[sink]}
        take_over(replace(ancestry, sinks=ours), lineage, bind(ancestry.lineage))


def _check_isolation(ancestry: Ancestry, sinks: Sinks) -> None:
    owned = {_target(binding) for binding in ancestry.sinks.values()}
    for sink in sinks.values():
        if _target(sink.binding) in owned:
            raise SinksStillOwned(
                f"sink {sink.id} writes to {sink.binding.target}, and so does the job that this one was "
                f"branched from (lineage {ancestry.lineage})",
                data="nothing was written; together both jobs would write every row twice",
                do="give the branch other topics and tables, or restore with --same-sinks if the "
                "original no longer runs or repeated rows are harmless",
            )


def take_over(ancestry: Ancestry, lineage: Lineage, sinks: Sinks) -> None:
    """Advance every marker of the parent to this lineage, its successor; can be repeated.

    The sinks must be bound for the parent's lineage.
    """
    if ancestry.delivery != EXACTLY_ONCE:
        return  # there are no markers
    for sink, binding in ancestry.sinks.items():
        bound = sinks.get(sink)
        if bound is None or _target(bound.binding) != _target(binding):
            log.info("the job no longer writes to sink %s (%s)", sink, binding.target)
            continue
        for part in range(binding.parts):
            _take_over_part(ancestry, lineage, bound, part)


def _target(binding: SinkBinding) -> tuple[str, str]:
    return binding.kind, binding.target


def successor(marker: Marker | None) -> str:
    """Return the lineage that took the part over from the marker's lineage, empty if none did."""
    if marker is None or not marker.attempt.startswith(_MOVED):
        return ""
    return marker.attempt.removeprefix(_MOVED)


def _take_over_part(ancestry: Ancestry, lineage: Lineage, sink: BoundSink, part: int) -> None:
    expected = ancestry.chain.get(sink.id, {}).get(part, NO_MARKER)
    takeover = Marker(ancestry.epoch + 1, f"{_MOVED}{lineage.id}")
    writer = sink.open(part)
    try:
        current = writer.marker()
        if current is None and ancestry.sinks[sink.id].durable_markers:
            current = writer.marker(durable=True)
        if successor(current) not in ("", lineage.id):
            raise Fenced(
                f"sink {sink.id} part {part} was taken over by lineage {successor(current)} already; "
                f"this is lineage {lineage.id}",
                data="nothing was written; two successors of one job would write everything twice",
                do="continue with the other job, or restore with --branch for a job onto other sinks",
            )
        if current is None and expected != NO_MARKER:
            log.warning(
                "sink %s part %d has no marker of the parent: it has expired and an earlier version "
                "wrote it, or the rows are on another server; cannot verify that the sink has epoch %d",
                sink.id,
                part,
                ancestry.epoch,
            )
            expected = NO_MARKER
        elif is_seed_of(current, expected):
            expected = current
        failpoints.reach("before-takeover", epoch=takeover.epoch, sink=sink.id)
        writer.apply(PartDecision(lineage=ancestry.lineage, this=takeover, prev=expected), ())
        failpoints.reach("after-takeover", epoch=takeover.epoch, sink=sink.id)
    finally:
        writer.close()
