"""Finishing: what is decided reaches every sink, and no epoch follows.

For a job that will not be started again on its checkpoint. `coordinator.owed` is the other case: a
query follows, and Spark itself runs again what it does not count as done. Pure. Called by the Spark
runtime, and by a driver's pod to see whether it may say that it ended well.
"""

from __future__ import annotations

from sluicegate.protocol.coordinator import Job, Settled, recognise
from sluicegate.protocol.effects import (
    Finish,
    IsCommitted,
    IsFinished,
    NewestEpoch,
    ReadSeal,
    Steps,
)
from sluicegate.protocol.phases import Course, Phase
from sluicegate.protocol.record import EpochRecord
from sluicegate.protocol.seal import Seal


def unfinished() -> Steps[EpochRecord | None]:
    """Return the newest decision unless it is known to be in every sink.

    There is at most one such epoch: one is decided only when the one before is in. Behind a seal
    there is none.
    """
    newest: int | None = yield NewestEpoch()
    found: Seal | EpochRecord | None = None if newest is None else (yield ReadSeal(newest))
    if not isinstance(found, EpochRecord):
        return None
    if not found.overlapped and (yield IsCommitted(found.epoch)):
        return None
    return None if (yield IsFinished(found.epoch)) else found


def unapplied(job: Job) -> Steps[Settled | None]:
    """Return the same for `coordinator.apply`.

    Raises:
        DecidedForAnotherJob, CheckpointOfAnotherJob, OffsetLogDiverged: it is not of this job.
    """
    record: EpochRecord | None = yield from unfinished()
    if record is None:
        return None
    yield from recognise(job, record)
    settled = Settled(record, replayed=True, course=Course())
    settled.course.enter(Phase.DECIDED)
    return settled


def note(record: EpochRecord) -> Steps[None]:
    """Note that an applied epoch is in every sink, so that nobody looks for its commit by Spark."""
    yield Finish(record.epoch)
