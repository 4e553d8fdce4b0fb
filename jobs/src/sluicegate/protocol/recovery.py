"""What a crash has left: a decided epoch that may not be in every sink, or an attempt without a decision.

There is at most one epoch to apply, because an epoch is decided only after the one before is applied.
`pending_apply` is for a start of the query: Spark itself runs an epoch again unless it has committed
it, so only an overlapped epoch is left to apply. That may go on while the query starts. `unapplied`
is for a run that starts no query.
"""

from __future__ import annotations

from sluicegate.protocol import effects
from sluicegate.protocol.coordinator import overlapped_apply, verified
from sluicegate.protocol.effects import LogSteps
from sluicegate.protocol.job import Job
from sluicegate.protocol.record import DecidedEpoch, EpochRecord, Seal


def pending_apply(job: Job) -> LogSteps[DecidedEpoch | None]:
    """Return the epoch that Spark has committed and that a killed driver may not have applied."""
    newest: int | None = yield effects.LatestEpoch()
    record: EpochRecord | None = None if newest is None else (yield effects.ReadRecord(newest))
    if record is None or not (yield effects.IsCommitted(record.epoch)):
        return None
    return (yield from overlapped_apply(job, record))


def undecided_attempt(job: Job) -> LogSteps[int | None]:
    """Return the epoch that an earlier driver has attempted and not decided, None if there is none."""
    newest: int | None = yield effects.LatestEpoch()
    epoch = job.first_epoch if newest is None else newest + 1
    planned: str | None = yield effects.ReadOffsets(epoch)
    # Spark commits no undecided epoch: the records are incomplete, and nothing is known of this one
    if planned is None or (yield effects.IsCommitted(epoch)):
        return None
    return epoch


def unapplied_record() -> LogSteps[EpochRecord | None]:
    """Return the newest decision unless every sink is known to have it; None after a seal."""
    newest: int | None = yield effects.LatestEpoch()
    found: Seal | EpochRecord | None = None if newest is None else (yield effects.ReadSeal(newest))
    if not isinstance(found, EpochRecord):
        return None
    if not found.overlapped and (yield effects.IsCommitted(found.epoch)):
        return None
    return None if (yield effects.IsMarkedApplied(found.epoch)) else found


def unapplied(job: Job) -> LogSteps[DecidedEpoch | None]:
    """Return the epoch of `unapplied_record` after verifying that it is of this job."""
    record: EpochRecord | None = yield from unapplied_record()
    return None if record is None else (yield from verified(job, record))


def mark_applied(decided: DecidedEpoch) -> LogSteps[None]:
    """Mark an applied epoch, so that nobody needs Spark's commit to know; its sinks may change now."""
    yield effects.MarkApplied(decided.record.epoch)
