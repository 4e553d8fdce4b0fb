"""The two-phase commit of one epoch: settle what is decided, then apply it.

Presumed abort with a redo log (DESIGN.md section 2; the rules' numbers are those there). Pure:
every touch of the world is an effect that is yielded. Callers: the Spark runtime, the CLI's
recovery, and the simulation in tests/unit/protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate.protocol.effects import (
    Apply,
    AwaitSettled,
    Begin,
    CheckState,
    CreateRecord,
    Feed,
    Finish,
    IsCommitted,
    IsFinished,
    NewestEpoch,
    Now,
    Pause,
    Reach,
    ReadDiscarded,
    ReadOffsets,
    ReadRecord,
    Stage,
    Steps,
    Tidy,
)
from sluicegate.protocol.errors import (
    AccessDenied,
    CheckpointOfAnotherJob,
    DecidedForAnotherJob,
    DecisionUnknown,
    EpochLogBroken,
    Fenced,
    OffsetLogDiverged,
    RowsLost,
    SinkRejected,
    SinkUnavailable,
    SinkWentBack,
    StoreUnavailable,
    Stuck,
)
from sluicegate.protocol.phases import Course, Phase
from sluicegate.protocol.ports import Staged
from sluicegate.protocol.record import AT_MOST_ONCE, EXACTLY_ONCE, EpochRecord, SinkBinding


@dataclass(frozen=True)
class Job:
    """What the coordinator knows of the job that it runs.

    Args:
        name: the job's name.
        lineage: the id of the checkpoint's history.
        first_epoch: the first epoch of this lineage; no record is expected before it.
        delivery: see `EpochRecord.delivery`.
        sinks: in the order in which they are applied.
        overlap: an epoch is applied while the next is staged. Spark is then told that it is done
            as soon as it is decided; `owed` makes that good.
        redoable: sinks that may be brought forward from kept records (rule 11).
        decide_tries: how often an unanswered creation is repeated, default 30.
        apply_tries: how often an apply in doubt is repeated, default 8.
        backoff_s: the first pause between tries, doubled up to 5 s, default 0.2.
    """

    name: str
    lineage: str
    sinks: Mapping[str, SinkBinding]
    first_epoch: int = 0
    delivery: str = EXACTLY_ONCE
    overlap: bool = False
    redoable: frozenset[str] = frozenset()
    decide_tries: int = 30
    apply_tries: int = 8
    backoff_s: float = 0.2

    def pause(self, tried: int) -> Pause:
        """Return the pause after `tried` tries."""
        return Pause(min(5.0, self.backoff_s * 2**tried))


@dataclass(frozen=True)
class Settled:
    """A decided epoch. `replayed` says that an earlier try had decided it."""

    record: EpochRecord
    replayed: bool
    course: Course


def run_epoch(job: Job, epoch: int) -> Steps[Settled]:
    """Take one epoch from Spark's call to every sink; the return lets Spark commit it."""
    settled = yield from settle(job, epoch)
    yield from apply(job, settled)
    return settled


def owed(job: Job) -> Steps[Settled | None]:
    """Find the epoch that Spark counts as done and a killed driver may not have applied.

    Before the query starts; to be given to `apply`. There is at most one: an epoch is decided only
    when the one before is in. Any other decided epoch is run again by Spark.
    """
    newest: int | None = yield NewestEpoch()
    record: EpochRecord | None = None if newest is None else (yield ReadRecord(newest))
    if record is None or not (yield IsCommitted(record.epoch)):
        return None
    return (yield from _owed_of(job, record))


def _owed_of(job: Job, record: EpochRecord) -> Steps[Settled | None]:
    """Return an overlapped epoch of another driver, unless that one noted that it is in."""
    if not record.overlapped or (yield IsFinished(record.epoch)):
        return None
    yield from recognise(job, record)
    settled = Settled(record, replayed=True, course=Course())
    settled.course.enter(Phase.DECIDED)
    return settled


def finish(settled: Settled) -> Steps[None]:
    """Note, when a driver ends well, that nothing is owed to any sink: they may be changed now."""
    if settled.record.overlapped:
        yield Finish(settled.record.epoch)


def settle(job: Job, epoch: int) -> Steps[Settled]:
    """Find the epoch's decision, or stage and decide it. Nothing is visible when this returns."""
    course = Course()
    record: EpochRecord | None = yield ReadRecord(epoch)
    yield from _no_later_decision(epoch, "before this epoch was run")
    if record is not None:
        yield from recognise(job, record)
        yield Feed(record.event_times)
        course.enter(Phase.DECIDED)
        return Settled(record, replayed=True, course=course)
    before = yield from _record_before(job, epoch)
    digest: str | None = yield ReadOffsets(epoch)
    if digest is None:
        # a driver that was paused for long finds its files pruned: that is Fenced, no broken log
        yield from _no_later_decision(epoch, "while this driver was paused")
        raise _diverged(epoch, "is not there, though Spark runs the epoch")
    course.enter(Phase.STAGING)
    attempt, traceparent = yield Begin()
    yield Reach("before-stage", epoch)
    staged: Staged = yield Stage(epoch, attempt)
    yield CheckState(epoch)
    yield Reach("after-stage", epoch)
    applied: int | None = yield AwaitSettled()
    if before is not None and before.epoch != applied:
        # another driver decided it, and may have died since this one looked for that at its start
        late = yield from _owed_of(job, before)
        if late is not None:
            yield from apply(job, late)
    course.enter(Phase.DECIDING)
    now: int = yield Now()
    record = EpochRecord(
        lineage=job.lineage,
        job=job.name,
        epoch=epoch,
        attempt=attempt,
        delivery=job.delivery,
        offsets_digest=digest,
        sinks=dict(job.sinks),
        prev=before.chain() if before else {},
        chunks=staged.chunks,
        event_times=staged.event_times,
        decided_at_ms=now,
        traceparent=traceparent,
        counts=dict(staged.counts),
        overlapped=job.overlap,
    )
    stored = yield from _decide(job, record)
    course.enter(Phase.DECIDED)
    return Settled(stored, replayed=False, course=course)


def apply(job: Job, settled: Settled) -> Steps[None]:
    """Write a decided epoch into every sink that has rows in it; a sink that has it skips.

    At-most-once, only the process that decided writes: what it did not finish is lost.
    """
    record = settled.record
    settled.course.enter(Phase.APPLYING)
    discarded: frozenset[str] = frozenset()
    if settled.replayed:
        discarded = yield ReadDiscarded(record.epoch)
    lost = settled.replayed and record.delivery == AT_MOST_ONCE
    for sink in record.sinks:
        parts = record.parts_with_rows(sink)
        if not parts or lost:
            continue
        yield Reach("before-apply", record.epoch, sink)
        yield from _apply_sink(job, record, sink, parts, discard=sink in discarded)
        yield Reach("after-apply", record.epoch, sink)
    settled.course.enter(Phase.DONE)
    yield Tidy(record)
    yield Reach("before-done", record.epoch)


# --- deciding -------------------------------------------------------------------------------


def _decide(job: Job, record: EpochRecord) -> Steps[EpochRecord]:
    """Create the record and read it back; rules 1 and 2."""
    yield Reach("before-decide", record.epoch)
    for tried in range(job.decide_tries):
        try:
            yield CreateRecord(record)
            # created or not, the object says whose it is; a 404 in between is no answer
            stored: EpochRecord | None = yield ReadRecord(record.epoch)
        except StoreUnavailable:
            stored = None
        if stored is not None:
            break
        yield job.pause(tried)
    else:
        raise DecisionUnknown(
            f"the store did not say, in {job.decide_tries} tries, whether epoch {record.epoch} is decided",
            data="nothing of it was applied; the next start finds out and goes on, nothing is lost",
            do="look at the checkpoint store; restart the driver",
        )
    if stored.attempt != record.attempt:
        raise _fenced(record.epoch, f"was decided by attempt {stored.attempt}, not by ours")
    yield from _no_later_decision(record.epoch, "after it was decided")
    yield Reach("after-decide", record.epoch)
    return stored


def _no_later_decision(epoch: int, when: str) -> Steps[None]:
    newest: int | None = yield NewestEpoch()
    if newest is not None and newest > epoch:
        yield ReadRecord(newest)  # a seal says so itself
        raise _fenced(epoch, f"is behind: epoch {newest} is decided already ({when})")


def _record_before(job: Job, epoch: int) -> Steps[EpochRecord | None]:
    """Return the record that carries the chain; a missing one is never skipped."""
    if epoch < job.first_epoch:
        raise _diverged(
            epoch, f"is older than the lineage, which begins with epoch {job.first_epoch}"
        )
    if epoch == job.first_epoch:
        return None
    before: EpochRecord | None = yield ReadRecord(epoch - 1)
    if before is None:
        yield from _no_later_decision(epoch, "while this driver was paused")
        raise EpochLogBroken(
            f"Spark runs epoch {epoch}, but epoch {epoch - 1} has no record",
            data="the epoch log lost a decision, or the checkpoint was put together from two; "
            "nothing was written",
            do="restore `epochs/` of the checkpoint, or start a new lineage",
        )
    _same_lineage(job, before)
    # Spark takes the start of this epoch from there: changed since, input is left out or repeated
    yield from _same_offsets(before)
    return before


def recognise(job: Job, record: EpochRecord) -> Steps[None]:
    """See that a found record is of this job and of these offsets; rules 3 and 4."""
    _same_lineage(job, record)
    yield from _same_offsets(record)
    for sink, binding in record.sinks.items():
        if record.parts_with_rows(sink) and job.sinks.get(sink) != binding:
            raise _for_another_job(record, sink, job.sinks.get(sink))


def _same_offsets(record: EpochRecord) -> Steps[None]:
    digest: str | None = yield ReadOffsets(record.epoch)
    if digest == record.offsets_digest:
        return
    yield from _no_later_decision(record.epoch, "while this driver was paused")
    how = "is not there" if digest is None else "has another content"
    raise _diverged(record.epoch, f"{how}, though the epoch is decided with it")


def _same_lineage(job: Job, record: EpochRecord) -> None:
    if record.delivery != job.delivery:
        raise DecidedForAnotherJob(
            f"epoch {record.epoch} was decided {record.delivery}, the job is {job.delivery}",
            data="nothing was written; which rows the sinks hold cannot be known by the new rules",
            do=f"set delivery to {record.delivery}, or start with a fresh checkpoint",
        )
    if record.lineage != job.lineage or record.job != job.name:
        raise CheckpointOfAnotherJob(
            f"epoch {record.epoch} was decided by job {record.job} (lineage {record.lineage}); "
            f"this is job {job.name} (lineage {job.lineage})",
            data="nothing was written",
            do="give each job a checkpoint of its own",
        )


def _for_another_job(
    record: EpochRecord, sink: str, here: SinkBinding | None
) -> DecidedForAnotherJob:
    return DecidedForAnotherJob(
        f"epoch {record.epoch} is decided for sink {sink} ({record.sinks[sink].target}); "
        f"this job has {here.target if here else 'no such sink'}",
        data="the epoch is decided and stays so; nothing was written by this start",
        do="start the job once with the sinks that it had; change them when the epoch is in",
    )


def _fenced(epoch: int, why: str) -> Fenced:
    return Fenced(
        f"epoch {epoch} {why}",
        data="another driver lives on this checkpoint; this one stops and has applied nothing of it",
        do="keep one driver per checkpoint; this one must not be restarted beside the other",
    )


def _diverged(epoch: int, how: str) -> OffsetLogDiverged:
    return OffsetLogDiverged(
        f"Spark's offsets/{epoch} {how}",
        data="which input belongs to the epoch is in doubt; nothing was written",
        do="restore `offsets/` of the checkpoint as it was; never edit it by hand",
    )


# --- applying -------------------------------------------------------------------------------


def _apply_sink(
    job: Job, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
) -> Steps[None]:
    """Apply until the sink has it; rule 14 when it will not. At-most-once there is one try."""
    for tried in range(job.apply_tries):
        try:
            yield from _apply_once(job, Apply(record, sink, parts, discard))
        except (SinkUnavailable, SinkRejected, AccessDenied) as error:
            if record.delivery == AT_MOST_ONCE:
                raise _lost(record, sink, error) from error
            if not isinstance(error, SinkUnavailable) or tried == job.apply_tries - 1:
                raise _stuck(record, sink, error) from error
            yield job.pause(tried)
        else:
            return


def _apply_once(job: Job, wanted: Apply) -> Steps[None]:
    """Apply, and bring the sink forward first where it has gone back."""
    try:
        yield wanted
    except SinkWentBack:
        if wanted.sink not in job.redoable:
            raise
        for part in wanted.parts:
            yield from _bring_forward(Apply(wanted.record, wanted.sink, (part,), wanted.discard))


def _bring_forward(wanted: Apply) -> Steps[None]:
    """Redo the kept records of one part in order, from where the sink stands (rule 11)."""
    missing: list[Apply] = []
    redo, sink, part = wanted, wanted.sink, wanted.parts[0]
    while True:
        try:
            yield redo
            break
        except SinkWentBack:
            missing.append(redo)
        prev = redo.record.prev_of(sink, part)
        found: EpochRecord | None = yield ReadRecord(prev.epoch)
        # where the decided record was pruned, a zombie's that came too late may lie
        if found is None or found.marker != prev:
            raise SinkWentBack(
                f"sink {sink} part {part} is older than epoch {redo.record.epoch}, the oldest record kept",
                data="epochs between are in no record any more; nothing was written",
                do="restore the sink from a newer backup, or rebuild it from the source",
            )
        if found.sinks[sink] != wanted.record.sinks[sink]:
            raise _for_another_job(found, sink, wanted.record.sinks[sink])
        discarded: frozenset[str] = yield ReadDiscarded(found.epoch)
        redo = Apply(found, sink, (part,), sink in discarded)
    for redo in reversed(missing):
        yield redo


def _stuck(record: EpochRecord, sink: str, error: Exception) -> Stuck:
    return Stuck(
        f"epoch {record.epoch} is decided and sink {sink} does not take it: {error}",
        data="the epoch stays decided and is applied when the sink takes it; later epochs wait; "
        "nothing is lost or repeated",
        do="mend the sink and restart; or give the rows up with `sluicegate epochs discard`",
    )


def _lost(record: EpochRecord, sink: str, error: Exception) -> RowsLost:
    return RowsLost(
        f"epoch {record.epoch} did not get into sink {sink}, and is not tried again: {error}",
        data=f"delivery is {AT_MOST_ONCE}: its {record.rows(sink)} rows may be lost to this sink",
        do="mend the sink; the next start goes on with the epoch after",
    )
