"""The invariants of exactly-once, checked on a simulated world after every step.

The message of `InvariantBroken` states the invariant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluicegate.errors import (
    DecisionUnknown,
    EpochLogBroken,
    EpochUnfinished,
    Fenced,
    MarkerMismatch,
    OffsetLogDiverged,
    RowsLost,
    Sealed,
    SinkRegressed,
    SinkUnavailable,
    StageFailed,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol.markers import NO_MARKER, is_seed_of
from sluicegate.settings.epoch import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from tests.robustness.model.protocol.simulated_sinks import Row, cached_decode, rows_of

if TYPE_CHECKING:
    from sluicegate.protocol.record import EpochRecord
    from tests.robustness.model.protocol.drivers import Driver
    from tests.robustness.model.protocol.simulated_sinks import Part, SimulatedSink
    from tests.robustness.model.protocol.world import World


class InvariantBroken(AssertionError):
    """Raised if the world is in a state that the protocol rules out."""


LAWS: dict[str, str] = {
    "agreement": "A sink shows only rows of the attempt that was decided.",
    "atomicity": "At the end every sink has every decided epoch.",
    "chain": "A part has exactly the decided rows of all epochs up to its marker.",
    "commit of an undecided epoch": "Spark commits an epoch only after its decision.",
    "commit of an unapplied epoch": "Spark commits an epoch only when every sink has it; with overlap, the one "
    "before it.",
    "conservation": "At the end every input is in every sink.",
    "death": "A driver ends only with an error that something in its world has caused.",
    "discard": "No sink shows rows of an epoch that was discarded for it.",
    "input": "The input of an epoch starts where that of the one before ends.",
    "marker": "The marker of a part is that of a decided attempt.",
    "once": "No sink shows an input twice.",
    "presumed abort": "No sink shows rows of an epoch that is not decided.",
    "progress": "A driver that runs alone comes to an end.",
    "redo": "A sink that lacks epochs whose records exist gets them.",
    "redo log": "Every staged object that a retained record names exists.",
    "seal that stands": "A process that says it has sealed has created the object after the newest decision.",
    "seal of an unapplied epoch": "A checkpoint is sealed only when every sink has every decided epoch.",
    "decision after the seal": "After a seal nothing is decided.",
    "change after the seal": "After a seal no sink changes.",
}
"""The laws that are checked, and what each says. `test_each_law` breaks each alone."""


def violated(law: str, how: str) -> None:
    """Raise that a law is broken, if it is checked."""
    if law in LAWS:
        raise InvariantBroken(f"{law}: {how}")


class SparkLogConflict(Exception):
    """Raised when Spark finds a file of another writer in its log, and stops."""


@dataclass
class Watch:
    """What was checked already, so that it is not checked again."""

    versions: dict[str, int] = field(default_factory=dict)
    sealed_at: int | None = None
    at_seal: dict[str, int] = field(default_factory=dict)
    decisions: int = 0
    rows: dict[tuple[int, str, int], list[Row]] = field(default_factory=dict)


def check(world: World) -> None:
    """Check every invariant that holds in every state."""
    if world.watch.decisions != len(world.decided):
        _decisions(world)
    for name, sink in world.sinks.items():
        if world.watch.versions.get(name) != sink.version:
            _sink(world, sink)
            world.watch.versions[name] = sink.version
    _redo_log(world)
    _sealed(world)


def check_seal(world: World, epoch: int) -> None:
    """Check that a seal leaves nothing unapplied: every sink has every decided epoch."""
    for decided, record in world.decided.items():
        for sink in world.sinks.values():
            if not has_epoch(sink, record):
                violated(
                    "seal of an unapplied epoch",
                    f"at {epoch}, and {sink.name} does not have {decided}",
                )
    world.watch.sealed_at = epoch
    world.watch.at_seal = {name: sink.version for name, sink in world.sinks.items()}


def _sealed(world: World) -> None:
    """Check that after a seal nothing is decided and no sink changes, whichever process still runs.

    Without markers a paused driver may write again: that is what the weaker deliveries allow.
    """
    sealed_at = world.watch.sealed_at
    if sealed_at is None:
        return
    if any(epoch >= sealed_at for epoch in world.decided if epoch not in world.pruned):
        violated("decision after the seal", f"an epoch is decided, sealed at {sealed_at}")
    if world.config.delivery != EXACTLY_ONCE:
        return
    for name, sink in world.sinks.items():
        if sink.version != world.watch.at_seal[name]:
            violated("change after the seal", f"{name} changed")


def _decisions(world: World) -> None:
    """Check that each epoch's input starts where the previous one ends."""
    end = 0
    for epoch in sorted(world.decided):
        record = world.decided[epoch]
        start, stop = world.ranges[record.attempt]
        if start != end:
            violated("input", f"epoch {epoch} starts at {start}, the previous one ends at {end}")
        end = stop
        for sink in world.sinks:
            for part in record.parts_with_rows(sink):
                if (epoch, sink, part) not in world.watch.rows:
                    world.watch.rows[epoch, sink, part] = rows_of(
                        record, sink, part, world.staged.get
                    )
    world.watch.decisions = len(world.decided)


def _sink(world: World, sink: SimulatedSink) -> None:
    seen: set[int] = set()
    for number, part in enumerate(sink.parts):
        for row in part.rows:
            record = world.decided.get(row.epoch)
            if record is None:
                violated(
                    "presumed abort", f"{sink.name}/{number} shows {row}; its epoch is undecided"
                )
                continue
            if row.epoch in part.discarded:
                violated("discard", f"{sink.name}/{number} shows {row}, which was discarded")
            if row.attempt != record.attempt:
                violated(
                    "agreement", f"{sink.name}/{number} shows {row}; {record.attempt} is decided"
                )
            if row.offset in seen and world.config.delivery != AT_LEAST_ONCE:
                violated("once", f"{sink.name}/{number} shows input {row.offset} twice")
            seen.add(row.offset)
        if world.config.delivery != EXACTLY_ONCE:
            continue
        _chain(world, sink, number, part)


def _chain(world: World, sink: SimulatedSink, number: int, part: Part) -> None:
    """Check that a part has exactly the decided rows of all epochs up to its marker."""
    lost, found = "wiped" in world.events, part.marker or part.durable
    if found is None and (lost or not part.rows):
        return
    marker = found or NO_MARKER
    decided = world.decided.get(marker.epoch)
    if is_seed_of(marker, decided.marker if decided else NO_MARKER):
        if lost:  # it may be the seed of a driver that lost the decision, which no record names
            return
    elif marker != NO_MARKER and (decided is None or decided.attempt != marker.attempt):
        violated("marker", f"{sink.name}/{number} has {marker}, which was never decided")
    expected = [
        row
        for epoch in sorted(world.decided)
        if epoch <= max(marker.epoch, part.lost_marker) and (epoch, sink.name) not in world.discards
        for row in world.watch.rows.get((epoch, sink.name, number), ())
    ]
    if [row for row in part.rows if (row.epoch, sink.name) not in world.discards] != expected:
        violated(
            "chain", f"{sink.name}/{number} has marker {marker}, rows {part.rows}, not {expected}"
        )


def _redo_log(world: World) -> None:
    """Check that a retained decision can be redone: every staged object that it names exists."""
    for epoch, stored in world.records.items():
        record = world.decided[epoch]
        # a late request may create a pruned record again; its rows are gone and nobody needs them
        if epoch in world.pruned or cached_decode(stored).attempt != record.attempt:
            continue
        for chunk in record.chunks:
            if chunk.name is not None and chunk.name not in world.staged:
                violated("redo log", f"{chunk.name} of decided epoch {epoch} was removed")


def has_epoch(sink: SimulatedSink, record: EpochRecord) -> bool:
    """Return whether a sink has an epoch. With at-most-once it may have lost it."""
    if record.delivery == AT_MOST_ONCE:
        return True
    if record.delivery == AT_LEAST_ONCE:
        return all(
            record.epoch in sink.parts[number].epochs
            for number in record.parts_with_rows(sink.name)
        )
    parts = (sink.parts[number] for number in record.parts_with_rows(sink.name))
    markers = (part.marker or part.durable or NO_MARKER for part in parts)
    return all(marker.epoch >= record.epoch for marker in markers)


def check_commit(world: World, epoch: int) -> None:
    """Check that Spark commits an epoch only when every sink has it, or, overlapped, the previous one."""
    if world.events & {"restored", "markers lost", "wiped", "checkpoint restored"}:
        return
    if epoch not in world.decided:
        violated("commit of an undecided epoch", f"Spark commits epoch {epoch}")
        return
    required = epoch - 1 if world.decided[epoch].overlapped else epoch
    for sink in world.sinks.values():
        if required in world.decided and not has_epoch(sink, world.decided[required]):
            violated(
                "commit of an unapplied epoch",
                f"Spark commits {epoch}; {sink.name} does not have {required}",
            )


def check_death(world: World, driver: Driver, error: BaseException) -> None:
    """Check that a driver dies only of errors that the events of the world can cause."""
    contended = driver.rivalled or "late" in world.events
    allowed: dict[type[BaseException], bool] = {
        SparkLogConflict: driver.rivalled,
        # a seal that was created where decisions were pruned stops only a driver that was paused there
        Sealed: world.is_sealed or (contended and bool(world.seals)),
        EpochUnfinished: driver.seals,
        Fenced: contended or "checkpoint restored" in world.events,
        RowsLost: world.config.delivery == AT_MOST_ONCE
        and (driver.faulted or contended or bool(world.late)),
        Stuck: driver.faulted or contended or bool(world.late),
        StoreUnavailable: driver.faulted,
        DecisionUnknown: driver.faulted,
        StageFailed: driver.faulted,
        # a sink without any epoch is not older: its first record names a seed that it does not have
        SinkRegressed: "markers lost" in world.events
        or ("restored" in world.events and "emptied" not in world.events),
        MarkerMismatch: bool(world.events & {"restored", "wiped", "checkpoint restored"}),
        SinkUnavailable: driver.faulted or contended,
        # the rows of a pruned epoch are removed: a late request created its record again, and a sink
        # that was restored lacks the epoch
        EpochLogBroken: "restored" in world.events
        and any(e in world.pruned for e in world.records),
        # where offsets were pruned, another driver that was paused may have written its own
        OffsetLogDiverged: "offsets hazard" in world.events
        or (driver.rivalled and max(driver.memory, default=-1) in world.pruned),
    }
    if not allowed.get(type(error), False):
        violated("death", f"{driver.name} died of {error!r} without cause")


def check_sealer(world: World, sealer: Driver) -> None:
    """Check that a sealer that ended without an error has sealed, right after the newest decision."""
    if not any(
        seal.id == sealer.name and seal.epoch == max(world.decided, default=-1) + 1
        for seal in world.seals.values()
    ):
        violated("seal that stands", f"{sealer.name} says that it sealed, at {sorted(world.seals)}")


def check_recovery(world: World, driver: Driver) -> None:
    """Check how a world ends whose sinks may have been restored: complete, or stopped for a reason.

    Raises:
        BaseException: what the driver died of, if it is no reason.
    """
    if driver.error is None or (world.is_sealed and isinstance(driver.error, Sealed)):
        check_end(world)
    elif not isinstance(driver.error, SinkRegressed | MarkerMismatch | EpochLogBroken):
        raise driver.error
    elif "wiped" in world.events and isinstance(driver.error, MarkerMismatch):
        return  # nothing tells what the sink has
    elif not any(redo_gap(world, sink) for sink in world.sinks.values()):
        violated(
            "redo", "the records exist, but the epochs that the sink lacks were not applied again"
        )


def redo_gap(world: World, sink: SimulatedSink) -> bool:
    """Return whether a sink that regressed needs a pruned decision, has no marker, or is not redoable."""
    if sink.name not in world.job.redoable:
        return "markers lost" in world.events
    for number, part in enumerate(sink.parts):
        epoch = max(
            (
                decided
                for decided in world.decided
                if number in world.decided[decided].parts_with_rows(sink.name)
            ),
            default=-1,
        )
        marker = part.marker or NO_MARKER
        if marker.epoch < 0 <= epoch:
            return True
        while epoch > marker.epoch:
            if epoch in world.pruned or epoch not in world.records:
                return True
            epoch = world.decided[epoch].prev_of(sink.name, number).epoch
    return False


def check_end(world: World) -> None:
    """Check that at the end every sink has every decided epoch and every input once."""
    check(world)
    end = max(
        (stop for stop in (world.ranges[r.attempt][1] for r in world.decided.values())), default=0
    )
    for name, sink in world.sinks.items():
        for epoch, record in world.decided.items():
            if not has_epoch(sink, record):
                violated("atomicity", f"epoch {epoch} is decided and {name} does not have it")
        discarded_offsets = {
            offset
            for epoch, discarded in world.discards
            if discarded == name
            for offset in range(*world.ranges[world.decided[epoch].attempt])
        }
        if world.config.delivery == AT_MOST_ONCE:
            continue
        visible = sorted(row.offset for part in sink.parts for row in part.rows)
        if set(range(end)) - discarded_offsets - set(visible):
            violated("conservation", f"{name} shows {visible} of {end} inputs")
