"""Sealing a lineage: no epoch of it can be decided any more, and none is left unapplied.

The seal is created under the name of the next record, so it races fairly with a running driver: the
first to be created wins. It is created only after every sink has the epoch before, so no decided
epoch is left unapplied. Everyone who reads it stops with `Sealed`.
"""

from __future__ import annotations

from sluicegate.errors import DecisionUnknown, EpochUnfinished, Fenced
from sluicegate.protocol import effects
from sluicegate.protocol.coordinator import create_and_read_back
from sluicegate.protocol.effects import LogSteps, Pause
from sluicegate.protocol.record import EpochRecord, Seal
from sluicegate.settings.backoff import backoff_s

_TRIES = 30
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.2, 5.0
_LET_IT_APPLY = (
    "if the job runs, let its driver do it: `sluicegate stop CHECKPOINT --savepoint FOLDER`; if not, "
    "start it so that it applies what is decided, then stop it"
)


def seal_after(seal: Seal) -> LogSteps[None]:
    """Seal a lineage at `seal.epoch`, after the newest decision.

    Raises:
        EpochUnfinished: the newest decision is not known to be in every sink, or is not the epoch
            before the seal; nothing was sealed.
        Fenced: a running driver has decided the epoch; nothing was sealed.
        Sealed: the lineage has another seal.
        DecisionUnknown: the store did not reply; another attempt, or the next driver, finds out.
    """
    yield from all_applied(seal)
    yield effects.HitFailpoint("before-seal", seal.epoch)
    pauses = (Pause(backoff_s(n, _FIRST_PAUSE_S, _MAX_PAUSE_S)) for n in range(1, _TRIES + 1))
    stored: Seal | EpochRecord | None = yield from create_and_read_back(
        effects.CreateSeal(seal), effects.ReadSeal(seal.epoch), pauses
    )
    if stored is None:
        raise DecisionUnknown(
            f"the store did not confirm in {_TRIES} attempts whether lineage {seal.lineage} is sealed",
            data="every decided epoch is in every sink; it is unknown whether the job can continue",
            do="check the checkpoint store; start the job, or take the savepoint again",
        )
    if isinstance(stored, EpochRecord):
        raise _overtaken(seal, f"was decided by attempt {stored.attempt}")
    if stored.id != seal.id:
        raise stored.error()
    newest: int | None = yield effects.LatestEpoch()
    if newest != seal.epoch:
        # this process was paused for long: decisions were pruned where it created the seal
        raise _overtaken(seal, f"is outdated: epoch {newest} is already decided")
    yield effects.HitFailpoint("after-seal", seal.epoch)


def all_applied(seal: Seal) -> LogSteps[None]:
    """Check that the newest decision is the epoch before the seal, and is in every sink; see `seal_after`."""
    newest: int | None = yield effects.LatestEpoch()
    last = seal.epoch - 1
    if newest != last:
        if newest is not None:
            yield effects.ReadRecord(newest)  # raises Sealed if it is a seal
        raise EpochUnfinished(
            f"the newest decision is epoch {newest}, but the lineage should be sealed after "
            f"epoch {last}",
            data="nothing was sealed and nothing is lost",
            do=_LET_IT_APPLY,
        )
    record: EpochRecord | None = yield effects.ReadRecord(last)
    applied: bool = yield effects.IsCommitted(last)
    if applied and record is not None and record.overlapped:
        applied = yield effects.IsMarkedApplied(last)
    if not applied:
        raise EpochUnfinished(
            f"epoch {last} is decided and may not be in every sink yet",
            data="nothing was sealed and nothing is lost; the job's driver, or its next start, applies "
            "the epoch",
            do=_LET_IT_APPLY,
        )


def _overtaken(seal: Seal, why: str) -> Fenced:
    return Fenced(
        f"epoch {seal.epoch} {why}: a driver of lineage {seal.lineage} is running",
        data="nothing was sealed; the job continues and loses nothing",
        do="let the running driver do it: `sluicegate stop CHECKPOINT --savepoint FOLDER`",
    )
