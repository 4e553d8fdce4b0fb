"""The laws of exactly-once, checked on a simulated world after every step.

Each law is stated in the message that it breaks with. Not here: what may be done to a world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluicegate.protocol.errors import (
    DecisionUnknown,
    EpochLogBroken,
    EpochUnfinished,
    Fenced,
    MarkerMismatch,
    OffsetLogDiverged,
    Sealed,
    SinkWentBack,
    StageFailed,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol.markers import GENESIS

from .sim_sinks import Row, cached_decode, rows_of

if TYPE_CHECKING:
    from sluicegate.protocol.record import EpochRecord

    from .drivers import Driver
    from .sim_sinks import Part, SimSink
    from .world import World


class LawBroken(AssertionError):
    """The world is in a state that the protocol promises never to be in."""


class SparkLogConflict(Exception):
    """Spark found another writer's file in its log and stops."""


@dataclass
class Watch:
    """What was checked already and is not looked at again."""

    versions: dict[str, int] = field(default_factory=dict)
    at_seal: dict[str, int] | None = None
    decisions: int = 0
    rows: dict[tuple[int, str, int], list[Row]] = field(default_factory=dict)


def check(world: World) -> None:
    """Check every law that holds in every state."""
    if world.watch.decisions != len(world.decided):
        _decisions(world)
    for name, sink in world.sinks.items():
        if world.watch.versions.get(name) != sink.version:
            _sink(world, sink)
            world.watch.versions[name] = sink.version
    _redo_log(world)
    _sealed(world)


def check_seal(world: World, epoch: int) -> None:
    """A lineage ends where nothing is left half done: every sink has all that was decided."""
    for decided, record in world.decided.items():
        if decided >= epoch:
            raise LawBroken(f"seal: epoch {decided} is decided, and the seal is at {epoch}")
        for sink in world.sinks.values():
            if not holds(sink, record):
                raise LawBroken(f"seal: at {epoch}, and {sink.name} does not have {decided}")
    world.watch.at_seal = {name: sink.version for name, sink in world.sinks.items()}


def _sealed(world: World) -> None:
    """Behind a seal nothing is decided, and no sink changes, whatever is still alive."""
    at_seal = world.watch.at_seal
    if at_seal is None:
        return
    if any(epoch >= min(world.seals) for epoch in world.decided if epoch not in world.pruned):
        raise LawBroken(f"seal: an epoch was decided behind the seal at {min(world.seals)}")
    for name, sink in world.sinks.items():
        if sink.version != at_seal[name]:
            raise LawBroken(f"seal: {name} changed after it")


def _decisions(world: World) -> None:
    """An epoch's input begins where the one before ends."""
    end = 0
    for epoch in sorted(world.decided):
        record = world.decided[epoch]
        start, stop = world.ranges[record.attempt]
        if start != end:
            raise LawBroken(f"input: epoch {epoch} begins at {start}, the one before ends at {end}")
        end = stop
        for sink in world.sinks:
            for part in record.parts_with_rows(sink):
                if (epoch, sink, part) not in world.watch.rows:
                    world.watch.rows[epoch, sink, part] = rows_of(
                        record, sink, part, world.staged.get
                    )
    world.watch.decisions = len(world.decided)


def _sink(world: World, sink: SimSink) -> None:
    seen: set[int] = set()
    for number, part in enumerate(sink.parts):
        for row in part.rows:
            record = world.decided.get(row.epoch)
            if record is None:
                raise LawBroken(
                    f"presumed abort: {sink.name}/{number} shows {row}; its epoch is undecided"
                )
            if row.attempt != record.attempt:
                raise LawBroken(
                    f"agreement: {sink.name}/{number} shows {row}; {record.attempt} is decided"
                )
            if row.offset in seen:
                raise LawBroken(f"once: {sink.name}/{number} shows input {row.offset} twice")
            seen.add(row.offset)
        epochs = [row.epoch for row in part.rows]
        if epochs != sorted(epochs):
            raise LawBroken(f"order: {sink.name}/{number} shows epochs {epochs}")
        _chain(world, sink, number, part)


def _chain(world: World, sink: SimSink, number: int, part: Part) -> None:
    """A part holds exactly the decided rows of all epochs up to its marker."""
    if part.marker is None and ("wiped" in world.events or not part.rows):
        return
    marker = part.marker or GENESIS
    decided = world.decided.get(marker.epoch)
    if marker != GENESIS and (decided is None or decided.attempt != marker.attempt):
        raise LawBroken(f"marker: {sink.name}/{number} says {marker}, which was never decided")
    due = [
        row
        for epoch in sorted(world.decided)
        if epoch <= marker.epoch and (epoch, sink.name) not in world.discards
        for row in world.watch.rows.get((epoch, sink.name, number), ())
    ]
    if [row for row in part.rows if (row.epoch, sink.name) not in world.discards] != due:
        raise LawBroken(
            f"chain: {sink.name}/{number} has marker {marker}, rows {part.rows}, not {due}"
        )


def _redo_log(world: World) -> None:
    """A kept decision can be redone: every staged object that it names is there."""
    for epoch, stored in world.records.items():
        record = world.decided[epoch]
        # a late request may put a pruned record back: its rows are gone, and nobody needs it
        if epoch in world.pruned or cached_decode(stored).attempt != record.attempt:
            continue
        for chunk in record.chunks:
            if chunk.name is not None and chunk.name not in world.staged:
                raise LawBroken(f"redo log: {chunk.name} of decided epoch {epoch} was removed")


def holds(sink: SimSink, record: EpochRecord) -> bool:
    """Say whether a sink has an epoch."""
    parts = (sink.parts[number].marker or GENESIS for number in record.parts_with_rows(sink.name))
    return all(marker.epoch >= record.epoch for marker in parts)


def check_commit(world: World, epoch: int) -> None:
    """Spark is told that an epoch is done only when every sink has it; overlapped, the one before."""
    if world.events & {"restored", "wiped", "checkpoint restored"}:
        return
    if epoch not in world.decided:
        raise LawBroken(f"commit: Spark commits epoch {epoch}, which is undecided")
    due = epoch - 1 if world.setting.overlap else epoch
    for sink in world.sinks.values():
        if due in world.decided and not holds(sink, world.decided[due]):
            raise LawBroken(f"commit: Spark commits epoch {epoch}; {sink.name} does not have {due}")


def check_death(world: World, driver: Driver, error: BaseException) -> None:
    """A driver dies only of what did happen to it."""
    crowded = driver.rivalled or "late" in world.events
    because: dict[type[BaseException], bool] = {
        SparkLogConflict: driver.rivalled,
        Sealed: "sealed" in world.events,
        EpochUnfinished: driver.seals,
        Fenced: crowded or "checkpoint restored" in world.events,
        Stuck: driver.faulted or crowded or bool(world.late),
        StoreUnavailable: driver.faulted,
        DecisionUnknown: driver.faulted,
        StageFailed: driver.faulted,
        SinkWentBack: "restored" in world.events,
        MarkerMismatch: bool(world.events & {"restored", "wiped", "checkpoint restored"}),
        # rows of a pruned epoch are removed: a late request has put its record back, or a driver that
        # was overtaken amid its apply goes on with it; a sink without the epoch lets them get so far
        EpochLogBroken: "restored" in world.events
        and (
            any(e in world.pruned for e in world.records)
            or (driver.rivalled and bool(world.pruned))
        ),
        OffsetLogDiverged: "offsets hazard" in world.events,
    }
    if not because.get(type(error), False):
        raise LawBroken(f"death: {driver.name} died of {error!r} without cause") from error


def redo_gap(world: World, sink: SimSink) -> bool:
    """Say whether a sink that went back needs a decision that is kept no more, or is at genesis."""
    for number, part in enumerate(sink.parts):
        at = max(
            (e for e in world.decided if number in world.decided[e].parts_with_rows(sink.name)),
            default=-1,
        )
        here = part.marker or GENESIS
        if here == GENESIS and at >= 0:
            return True
        while at > here.epoch:
            if at in world.pruned or at not in world.records:
                return True
            at = world.decided[at].prev_of(sink.name, number).epoch
    return False


def check_end(world: World) -> None:
    """At rest, every sink has every decided epoch, and every input once."""
    check(world)
    end = max(
        (stop for stop in (world.ranges[r.attempt][1] for r in world.decided.values())), default=0
    )
    for name, sink in world.sinks.items():
        for epoch, record in world.decided.items():
            if not holds(sink, record):
                raise LawBroken(f"atomicity: epoch {epoch} is decided and {name} does not have it")
        given_up = {
            offset
            for epoch, discarded in world.discards
            if discarded == name
            for offset in range(*world.ranges[world.decided[epoch].attempt])
        }
        shown = sorted(row.offset for part in sink.parts for row in part.rows)
        if set(range(end)) - given_up - set(shown):
            raise LawBroken(f"conservation: {name} shows {shown} of {end} inputs")
