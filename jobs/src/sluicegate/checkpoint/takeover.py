"""What a restored job does about its parent's sinks before it starts for the first time.

A branch keeps away from them. A job that was moved takes them over: for every part of every sink it
opens a writer of the parent's, which fences a forgotten one, and moves the parent's marker on from
where the savepoint says that it is. So the sink itself refuses a second successor, a sink that has
gone back in time is noticed, and no process of the parent can ever apply anything again. Needs only
the sinks' contract. Called by the Spark runtime at a start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from sluicegate.checkpoint.manifest import Ancestry, read_ancestry
from sluicegate.protocol.errors import EpochLogBroken, Fenced, SinksOfParent
from sluicegate.protocol.markers import GENESIS, Marker
from sluicegate.sinks.contract import BoundSink, PartDecision
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage
from sluicegate.storage.objects import Objects

log = logging.getLogger("sluicegate.savepoint")

_MOVED = "moved."
"""Begin of the attempt in a marker that no epoch was decided for."""

Sinks = Mapping[str, BoundSink]


def settle_with_parent(
    objects: Objects, lineage: Lineage, sinks: Sinks, bind: Callable[[str], Sinks]
) -> None:
    """Keep away from the parent's sinks, or take them over; nothing for a job without a parent.

    Args:
        objects: the checkpoint.
        lineage: its own.
        sinks: the job's sinks by id.
        bind: binds the same sinks for another lineage, which it is given.

    Raises:
        SinksOfParent: a branch has a sink of the original, and was not told that it may.
        Fenced: another successor has taken the sinks over.
        SinkWentBack, MarkerMismatch: a sink is not as the savepoint says.
        SinkUnavailable: a server does not answer.
    """
    if not lineage.parent or StoredEpochLog(objects).newest() is not None:
        return
    ancestry = read_ancestry(objects)
    if ancestry is None:
        raise EpochLogBroken(
            f"the checkpoint of lineage {lineage.id} does not say what its parent had written",
            data="nothing was written",
            do="restore ancestry.json, or the whole checkpoint from its savepoint",
        )
    if lineage.moved:
        take_over(ancestry, lineage, bind(ancestry.lineage))
    elif not lineage.same_sinks:
        _keep_away(ancestry, sinks)


def _keep_away(ancestry: Ancestry, sinks: Sinks) -> None:
    theirs = {(b.kind, b.target): sink for sink, b in ancestry.sinks.items()}
    for sink in sinks.values():
        if (sink.binding.kind, sink.binding.target) in theirs:
            raise SinksOfParent(
                f"sink {sink.id} writes to {sink.binding.target}, as the job does that this one was "
                f"branched from (lineage {ancestry.lineage})",
                data="nothing was written; both together would write every row twice",
                do="give the branch other topics and tables; or restore with --same-sinks if the "
                "original is gone or repeats do no harm",
            )


def take_over(ancestry: Ancestry, lineage: Lineage, sinks: Sinks) -> None:
    """Move every marker of the parent on to this lineage; can be repeated.

    Args:
        ancestry: the parent.
        lineage: the successor.
        sinks: the job's sinks by id, bound for the parent's lineage.
    """
    if ancestry.delivery != "exactly-once":
        return  # there are no markers
    for sink, binding in ancestry.sinks.items():
        bound = sinks.get(sink)
        if bound is None or (bound.binding.kind, bound.binding.target) != (
            binding.kind,
            binding.target,
        ):
            log.info("sink %s (%s) is not written any more", sink, binding.target)
            continue
        for part in range(binding.parts):
            _take_over_part(ancestry, lineage, bound, part)


def successor(marker: Marker | None) -> str:
    """Return the lineage that has taken a part over from the marker's lineage, empty if none has."""
    taken = marker is not None and marker.attempt.startswith(_MOVED)
    return marker.attempt.removeprefix(_MOVED) if marker is not None and taken else ""


def _take_over_part(ancestry: Ancestry, lineage: Lineage, sink: BoundSink, part: int) -> None:
    expected = ancestry.chain.get(sink.id, {}).get(part, GENESIS)
    ours = Marker(ancestry.epoch + 1, f"{_MOVED}{lineage.id}")
    writer = sink.open(part)
    try:
        found = writer.marker()
        if successor(found) not in ("", lineage.id):
            raise Fenced(
                f"sink {sink.id} part {part} was taken over by lineage {successor(found)} already; "
                f"this is lineage {lineage.id}",
                data="nothing was written; two successors of one job would write everything twice",
                do="go on with the other one; restore with --branch for a job onto other sinks",
            )
        if found is None and expected != GENESIS:
            log.warning(
                "sink %s part %d holds no marker of the parent: it has expired, or the rows are on "
                "another server; whether the sink holds epoch %d cannot be checked",
                sink.id,
                part,
                ancestry.epoch,
            )
            return
        writer.apply(PartDecision(lineage=ancestry.lineage, this=ours, prev=expected), ())
    finally:
        writer.close()
