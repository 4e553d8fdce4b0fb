"""The job, and whether a record, the offsets and the log are its own (rules 2, 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate.errors import (
    CheckpointOfAnotherJob,
    Fenced,
    OffsetLogDiverged,
    RecordOfAnotherJob,
)
from sluicegate.protocol import effects
from sluicegate.protocol.effects import LogSteps, Pause
from sluicegate.protocol.record import EpochRecord, SinkBinding
from sluicegate.settings.backoff import backoff_s
from sluicegate.settings.epoch import EXACTLY_ONCE

_MAX_PAUSE_S = 5.0


@dataclass(frozen=True)
class Job:
    """What the coordinator knows about the job.

    Args:
        name: the job's name.
        lineage: the id of the checkpoint's history.
        first_epoch: the first epoch of this lineage; no record is expected before it.
        delivery: see `EpochRecord.delivery`.
        sinks: in the order in which they are applied.
        overlap: the apply strategy. False: `run_epoch` applies the epoch. True: it starts the
            apply, which runs while the next epoch is staged. Spark then commits an epoch that is
            decided but not applied; after a crash `recovery.pending_apply` applies it.
        redoable: sinks to which epochs that they lack are applied again from the retained records
            (rule 11).
        decide_tries: attempts to create a record while the store does not reply.
        apply_tries: attempts at an apply whose result is unknown.
        backoff_s: the first pause between attempts in seconds, doubled up to 5 s.
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

    def applies_in_background(self, record: EpochRecord) -> bool:
        """Return whether Spark may commit the epoch before it is applied.

        Only if the record says so as well: the next driver finds a pending apply by the record. An
        earlier driver with other settings may have decided the epoch.
        """
        return self.overlap and record.overlapped

    def pause(self, failed: int) -> Pause:
        """Return the pause after `failed` attempts."""
        return Pause(backoff_s(failed, self.backoff_s, _MAX_PAUSE_S))


def verify_record(job: Job, record: EpochRecord) -> LogSteps[None]:
    """Check that a record in the log belongs to this job and to these offsets (rules 3 and 4)."""
    _verify_lineage(job, record)
    yield from _verify_offsets(record)
    for sink, binding in record.sinks.items():
        if record.parts_with_rows(sink) and not binding.is_same_sink(job.sinks.get(sink)):
            yield from verify_changed_sink(record, sink, job.sinks.get(sink))


def verify_changed_sink(record: EpochRecord, sink: str, ours: SinkBinding | None) -> LogSteps[None]:
    """Check that rows for a sink that was changed are discarded: then only its markers move (rule 14)."""
    discarded: frozenset[str] = yield effects.ReadDiscarded(record.epoch)
    before = record.sinks[sink]
    if sink not in discarded or ours is None or not before.has_same_markers(ours):
        raise sink_changed(record, sink, ours)


def verify_previous(job: Job, previous: EpochRecord) -> LogSteps[None]:
    """Check that the record before an undecided epoch belongs to this job and to these offsets."""
    _verify_lineage(job, previous)
    _verify_clusters(job, previous)
    # the epoch's input starts where those offsets end: changed ones would skip or repeat input
    yield from _verify_offsets(previous)


def _verify_lineage(job: Job, record: EpochRecord) -> None:
    if record.delivery != job.delivery:
        raise RecordOfAnotherJob(
            f"epoch {record.epoch} was decided with delivery {record.delivery}, but the job has "
            f"{job.delivery}",
            data="nothing was written; with another guarantee the rows in the sinks would be unknown",
            do=f"set delivery to {record.delivery}, or start with a fresh checkpoint",
        )
    if record.lineage != job.lineage or record.job != job.name:
        raise CheckpointOfAnotherJob(
            f"epoch {record.epoch} was decided by job {record.job} (lineage {record.lineage}); "
            f"this is job {job.name} (lineage {job.lineage})",
            data="nothing was written",
            do="give each job its own checkpoint",
        )


def _verify_clusters(job: Job, previous: EpochRecord) -> None:
    """Check that each sink with markers is still on the cluster that stores them.

    On another cluster they are absent, which must not look as if they had expired.
    """
    if job.delivery != EXACTLY_ONCE:
        return
    for sink in previous.chain():
        before, ours = previous.sinks.get(sink), job.sinks.get(sink)
        if before and ours and before.is_other_cluster(ours):
            raise RecordOfAnotherJob(
                f"sink {sink} ({ours.target}) is on cluster {ours.cluster}; up to epoch "
                f"{previous.epoch} it was on cluster {before.cluster}",
                data="nothing was written; the rows and the markers so far are on the former cluster",
                do="give the job the address of the former cluster; to go on with another one, give "
                "the sink another id, or start a new lineage",
            )


def _verify_offsets(record: EpochRecord) -> LogSteps[None]:
    digest: str | None = yield effects.ReadOffsets(record.epoch)
    if digest == record.offsets_digest:
        return
    yield from no_later_decision(record.epoch, "while this driver was paused")
    how = "does not exist" if digest is None else "has other content"
    raise diverged(record.epoch, f"{how}, but the epoch was decided with it")


def no_later_decision(epoch: int, when: str) -> LogSteps[None]:
    """Raise Fenced if another driver has decided a later epoch (rule 2)."""
    newest: int | None = yield effects.LatestEpoch()
    if newest is not None and newest > epoch:
        yield effects.ReadRecord(newest)  # raises Sealed if it is a seal
        raise fenced(epoch, f"is outdated: epoch {newest} is already decided ({when})")


def fenced(epoch: int, why: str) -> Fenced:
    """Return the error of a driver that another one has overtaken."""
    return Fenced(
        f"epoch {epoch} {why}",
        data="another driver runs on this checkpoint; this one stops and applied nothing of the epoch",
        do="run one driver per checkpoint; do not restart this one next to the other",
    )


def diverged(epoch: int, how: str) -> OffsetLogDiverged:
    """Return the error of offsets that are not those of the decision."""
    return OffsetLogDiverged(
        f"Spark's offsets/{epoch} {how}",
        data="it is unclear which input belongs to the epoch; nothing was written",
        do="restore `offsets/` of the checkpoint; never edit it by hand",
    )


def sink_changed(record: EpochRecord, sink: str, ours: SinkBinding | None) -> RecordOfAnotherJob:
    """Return the error of a decided epoch that the job's sink would write elsewhere."""
    return RecordOfAnotherJob(
        f"epoch {record.epoch} is decided for sink {sink} ({record.sinks[sink].target}); "
        f"this job has {ours.target if ours else 'no such sink'}",
        data="the epoch stays decided; this start wrote nothing",
        do="start the job once with its former sinks; change them after the epoch is applied",
    )
