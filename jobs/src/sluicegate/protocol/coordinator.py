"""The commit protocol of one epoch: stage it, decide it, apply it to every sink.

Two-phase commit with presumed abort and a redo log (docs/concepts/protocol.md, which numbers the
rules). Pure: every access to the outside is a yielded effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sluicegate.errors import (
    AccessDenied,
    DecisionUnknown,
    EpochLogBroken,
    MarkerMismatch,
    RowsLost,
    SinkRegressed,
    SinkRejected,
    SinkUnavailable,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol import effects
from sluicegate.protocol.effects import Apply, ApplySteps, Effect, EpochSteps, LogSteps, Pause
from sluicegate.protocol.job import (
    Job,
    diverged,
    fenced,
    no_later_decision,
    verify_changed_sink,
    verify_previous,
    verify_record,
)
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.ports import LogPorts, Staged
from sluicegate.protocol.record import DecidedEpoch, EpochRecord
from sluicegate.settings.epoch import AT_MOST_ONCE, EXACTLY_ONCE


def run_epoch(job: Job, epoch: int) -> EpochSteps[DecidedEpoch]:
    """Run one epoch: stage, decide, apply. After it returns, Spark may commit the epoch.

    An epoch that is decided already is not staged again: its record is applied.
    """
    found = yield from _find_decision(job, epoch)
    if found is not None:
        yield effects.AwaitApplies()  # of the epoch before, which the start found unapplied
        record = found
    else:
        previous = yield from _previous_record(job, epoch)
        candidate = yield from _stage(job, epoch, previous)
        yield from _await_previous_apply(job, previous)
        candidate = yield from _seed_markers(job, candidate, previous)
        record = yield from _decide(job, candidate)
    decided = DecidedEpoch(record, replayed=found is not None)
    if job.applies_in_background(record):
        yield effects.StartApply(decided)
    else:
        yield from apply(job, decided)
    return decided


def _find_decision(job: Job, epoch: int) -> EpochSteps[EpochRecord | None]:
    """Return the epoch's record if an earlier attempt decided it."""
    record: EpochRecord | None = yield effects.ReadRecord(epoch)
    yield from no_later_decision(epoch, "before this epoch was run")
    if record is not None:
        yield from verify_record(job, record)
        yield effects.RestoreWatermark(record.event_times)
    return record


def _previous_record(job: Job, epoch: int) -> LogSteps[EpochRecord | None]:
    """Return the record with the chain of markers; a missing one is never skipped."""
    if epoch < job.first_epoch:
        raise diverged(epoch, f"is older than the lineage, which starts at epoch {job.first_epoch}")
    if epoch == job.first_epoch:
        return None
    previous: EpochRecord | None = yield effects.ReadRecord(epoch - 1)
    if previous is None:
        yield from no_later_decision(epoch, "while this driver was paused")
        raise EpochLogBroken(
            f"Spark runs epoch {epoch}, but epoch {epoch - 1} has no record",
            data="the epoch log lost a decision, or the checkpoint was assembled from two; nothing "
            "was written",
            do="restore `epochs/` of the checkpoint, or start a new lineage",
        )
    yield from verify_previous(job, previous)
    return previous


def _stage(job: Job, epoch: int, previous: EpochRecord | None) -> EpochSteps[EpochRecord]:
    """Run the plan under a new attempt id and return the record to decide."""
    digest: str | None = yield effects.ReadOffsets(epoch)
    if digest is None:
        # the files of a driver that was paused for long are pruned: it is fenced, the log is intact
        yield from no_later_decision(epoch, "while this driver was paused")
        raise diverged(epoch, "does not exist, but Spark runs the epoch")
    attempt, traceparent = yield effects.BeginAttempt()
    yield effects.HitFailpoint("before-stage", epoch)
    staged: Staged = yield effects.Stage(epoch, attempt)
    yield effects.CheckState(epoch)
    yield effects.HitFailpoint("after-stage", epoch)
    return EpochRecord(
        lineage=job.lineage,
        job=job.name,
        epoch=epoch,
        attempt=attempt,
        delivery=job.delivery,
        offsets_digest=digest,
        sinks=dict(job.sinks),
        prev=previous.chain() if previous else {},
        chunks=staged.chunks,
        event_times=staged.event_times,
        traceparent=traceparent,
        counts=dict(staged.counts),
        overlapped=job.overlap,
    )


def _await_previous_apply(job: Job, previous: EpochRecord | None) -> ApplySteps[None]:
    """Wait until every sink has the epoch before, so that at most one decided epoch is unapplied."""
    applied: int | None = yield effects.AwaitApplies()
    if previous is not None and previous.epoch != applied:
        # another driver decided it, and may have died after this one checked at its start
        pending = yield from overlapped_apply(job, previous)
        if pending is not None:
            yield from apply(job, pending)


def overlapped_apply(job: Job, record: EpochRecord) -> LogSteps[DecidedEpoch | None]:
    """Return an overlapped epoch of another driver, None if it is marked as applied."""
    if not record.overlapped or (yield effects.IsMarkedApplied(record.epoch)):
        return None
    return (yield from verified(job, record))


def verified(job: Job, record: EpochRecord) -> LogSteps[DecidedEpoch]:
    """Return the epoch of a record that was read to be applied, after verifying that it is of this job."""
    # where the decided record was pruned, a zombie may have created its own too late
    yield from no_later_decision(record.epoch, "while this driver was paused")
    yield from verify_record(job, record)
    return DecidedEpoch(record, replayed=True)


def _seed_markers(
    job: Job, candidate: EpochRecord, previous: EpochRecord | None
) -> ApplySteps[EpochRecord]:
    """Return the candidate with the markers that it will find; absent ones are seeded (rule 11).

    Every sink has the epoch before, so nothing is in doubt here. A marker that has expired is
    accepted only on the cluster that had it, and an older one only in the same sink.
    """
    if job.delivery != EXACTLY_ONCE:
        return candidate
    prev = {sink: dict(parts) for sink, parts in candidate.prev.items()}
    for sink, binding in candidate.sinks.items():
        parts = candidate.parts_with_rows(sink)
        if parts:
            before = previous.sinks.get(sink) if previous else None
            seed = effects.SeedMarkers(
                candidate,
                sink,
                parts,
                may_expire=before is not None and before.cluster == binding.cluster != "",
                may_regress=sink in job.redoable
                and (before is None or before.is_same_sink(binding)),
                durable=before is not None and before.durable_markers,
            )
            prev.setdefault(sink, {}).update((yield from _seed(job, seed)))
    return replace(candidate, prev=prev)


def _seed(job: Job, seed: effects.SeedMarkers) -> ApplySteps[Mapping[int, Marker]]:
    failed = 0
    while True:
        try:
            markers: Mapping[int, Marker] = yield seed
        except SinkUnavailable:
            failed += 1
            if failed == job.apply_tries:
                raise  # nothing is decided: the next start stages the epoch again
            yield job.pause(failed)
        except SinkRejected as error:  # the sink tells of an apply, which this is not
            raise SinkRejected(
                error.what,
                data="the epoch is undecided and nothing of it is visible; the next start stages it again",
                do=error.do,
            ) from error
        except MarkerMismatch:
            # it may be the marker of another attempt at this epoch, which is decided meanwhile
            yield from no_later_decision(seed.record.epoch - 1, "while this driver staged it")
            raise
        else:
            return markers


def _decide(job: Job, candidate: EpochRecord) -> LogSteps[EpochRecord]:
    """Create the record and read it back: the commit point (rules 1 and 2)."""
    now: int = yield effects.Now()
    record = replace(candidate, decided_at_ms=now)
    yield effects.HitFailpoint("before-decide", record.epoch)
    stored: EpochRecord | None = yield from create_and_read_back(
        effects.CreateRecord(record),
        effects.ReadRecord(record.epoch),
        map(job.pause, range(1, job.decide_tries + 1)),
    )
    if stored is None:
        raise DecisionUnknown(
            f"the store did not confirm in {job.decide_tries} attempts whether epoch {record.epoch} "
            "is decided",
            data="nothing of it was applied; the next start finds out and continues, and nothing is lost",
            do="check the checkpoint store, then restart the driver",
        )
    if stored.attempt != record.attempt:
        raise fenced(record.epoch, f"was decided by attempt {stored.attempt}, not by ours")
    yield from no_later_decision(record.epoch, "after it was decided")
    yield effects.HitFailpoint("after-decide", record.epoch)
    return stored


def create_and_read_back(
    create: Effect[LogPorts], read: Effect[LogPorts], pauses: Iterable[Pause]
) -> LogSteps[Any]:
    """Create an object unless it exists, and return what is stored; None if the store never tells.

    Whether the object was created or not, the stored one shows who won. A 404 is no answer.
    """
    for pause in pauses:
        try:
            yield create
            stored = yield read
        except StoreUnavailable:
            stored = None
        if stored is not None:
            return stored
        yield pause
    return None


def apply(job: Job, decided: DecidedEpoch) -> ApplySteps[None]:
    """Write a decided epoch to every sink for which it has rows; a sink that has it skips it.

    With at-most-once only the process that decided the epoch writes it, once to each sink; other rows
    are lost.
    """
    record = decided.record
    discarded: frozenset[str] = frozenset()
    if decided.replayed:
        if (yield effects.IsMarkedApplied(record.epoch)):
            return  # without reading the markers, which may have expired since
        discarded = yield effects.ReadDiscarded(record.epoch)
        yield effects.RefreshMarkers(record)
    given_up = decided.replayed and record.delivery == AT_MOST_ONCE
    lost: list[RowsLost] = []
    for sink in record.sinks:
        parts = record.parts_with_rows(sink)
        if not parts or given_up:
            continue
        yield effects.HitFailpoint("before-apply", record.epoch, sink)
        try:
            yield from _apply_sink(job, record, sink, parts, discard=sink in discarded)
        except RowsLost as error:
            lost.append(error)  # no later start tries the other sinks
            continue
        yield effects.HitFailpoint("after-apply", record.epoch, sink)
    if lost:
        raise _all_lost(lost)
    yield effects.PruneLog(record)
    yield effects.HitFailpoint("before-done", record.epoch)


def retry_apply(job: Job, record: EpochRecord) -> ApplySteps[DecidedEpoch]:
    """Apply a decided epoch after this process has failed to, as the next driver would."""
    decided = yield from verified(job, record)
    yield from apply(job, decided)
    return decided


def _apply_sink(
    job: Job, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
) -> ApplySteps[None]:
    """Apply until the sink has the epoch (rule 14); with at-most-once, try only once."""
    for failed in range(1, job.apply_tries + 1):
        try:
            yield from _apply_once(job, Apply(record, sink, parts, discard))
        except (SinkUnavailable, SinkRejected, AccessDenied, StoreUnavailable) as error:
            if record.delivery == AT_MOST_ONCE:
                raise _lost(record, sink, error) from error
            if isinstance(error, StoreUnavailable):
                raise
            if not isinstance(error, SinkUnavailable) or failed == job.apply_tries:
                raise _stuck(record, sink, error) from error
            yield job.pause(failed)
        else:
            return


def _apply_once(job: Job, effect: Apply) -> ApplySteps[None]:
    """Apply; to a redoable sink that regressed, apply the epochs that it lacks first."""
    try:
        try:
            yield effect
        except SinkRegressed:
            if effect.sink not in job.redoable:
                raise
            for part in effect.parts:
                yield from _redo_missing(replace(effect, parts=(part,)))
    except EpochLogBroken:
        # the staged rows of a driver that was paused for long are pruned: it is fenced
        yield from no_later_decision(effect.record.epoch, "while this driver was paused")
        raise


def _redo_missing(newest: Apply) -> ApplySteps[None]:
    """Redo the retained records of one part in order, starting after the sink's marker (rule 11)."""
    missing: list[Apply] = []
    redo, sink, part = newest, newest.sink, newest.parts[0]
    while True:
        try:
            yield redo
            break
        except SinkRegressed:
            missing.append(redo)
        prev = redo.record.prev_of(sink, part)
        found: EpochRecord | None = yield effects.ReadRecord(prev.epoch)
        # where the decided record was pruned, a zombie may have created its own too late
        if found is None or found.marker != prev:
            raise SinkRegressed(
                f"sink {sink} part {part} is older than epoch {redo.record.epoch}, the oldest "
                "retained record",
                data="no record has the epochs in between any more; nothing was written",
                do="restore the sink from a newer backup, or rebuild it from the source",
            )
        if not found.sinks[sink].is_same_sink(newest.record.sinks[sink]):
            yield from verify_changed_sink(found, sink, newest.record.sinks[sink])
        discarded: frozenset[str] = yield effects.ReadDiscarded(found.epoch)
        redo = Apply(found, sink, (part,), sink in discarded)
    for redo in reversed(missing):
        yield redo


def _stuck(record: EpochRecord, sink: str, error: Exception) -> Stuck:
    return Stuck(
        f"epoch {record.epoch} is decided and sink {sink} does not accept it: {error}",
        data="the epoch stays decided and is applied when the sink accepts it; later epochs wait; "
        "nothing is lost or repeated",
        do="repair the sink and restart; if it needs more time, raise apply-timeout-s; or give up the "
        "rows with `sluicegate epochs discard`",
    )


def _lost(record: EpochRecord, sink: str, error: Exception) -> RowsLost:
    return RowsLost(
        f"epoch {record.epoch} did not reach sink {sink} and is not retried: {error}",
        data=f"sink {sink} may have lost {record.rows(sink)} rows, because delivery is {AT_MOST_ONCE}",
        do="repair the sink; the next start continues with the following epoch",
    )


def _all_lost(lost: list[RowsLost]) -> RowsLost:
    """Return one error for the sinks that an epoch may not have reached."""
    first, *others = lost
    if not others:
        return first
    what, data = ("; ".join(parts) for parts in ((e.what for e in lost), (e.data for e in lost)))
    return RowsLost(what, data=data, do=first.do)
