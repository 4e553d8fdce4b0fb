"""Sealing: after it no epoch of a lineage can be decided any more, and none is left half done.

The seal takes the place in the epoch log that the next decision would take, so it races fairly with
a living driver: whichever is created first stands. It is created only when every sink holds the
epoch before, so nothing that was decided waits behind it. Whoever reads it stops with `Sealed`.
Pure; called by a driver that was asked to stop, and by the CLI for a job that is stopped.
"""

from __future__ import annotations

from sluicegate.protocol.effects import (
    CreateSeal,
    IsCommitted,
    IsFinished,
    NewestEpoch,
    Pause,
    Reach,
    ReadRecord,
    ReadSeal,
    Steps,
)
from sluicegate.protocol.errors import DecisionUnknown, EpochUnfinished, Fenced, StoreUnavailable
from sluicegate.protocol.record import EpochRecord
from sluicegate.protocol.seal import Seal

_TRIES = 30
_LONGEST_PAUSE_S = 5.0
_FIRST_PAUSE_S = 0.2


def seal_after(seal: Seal) -> Steps[None]:
    """Seal a lineage at `seal.epoch`; nothing else is decided there, and all before is applied.

    Raises:
        EpochUnfinished: the newest decision is not known to be in every sink, or is not the epoch
            before; nothing was sealed.
        Fenced: a living driver has decided the epoch; nothing is sealed.
        Sealed: somebody else has sealed it.
        DecisionUnknown: the store did not say; a later try, or the next driver, finds out.
    """
    yield from all_applied(seal)
    yield Reach("before-seal", seal.epoch)
    for tried in range(_TRIES):
        try:
            yield CreateSeal(seal)
            stored: Seal | EpochRecord | None = yield ReadSeal(seal.epoch)
        except StoreUnavailable:
            stored = None
        if stored is not None:
            break
        yield Pause(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**tried))
    else:
        raise DecisionUnknown(
            f"the store did not say, in {_TRIES} tries, whether lineage {seal.lineage} is sealed",
            data="everything decided is in every sink; whether the job can go on is unknown",
            do="look at the checkpoint store; start the job, or take the savepoint again",
        )
    if isinstance(stored, EpochRecord):
        raise _outrun(seal, f"was decided by attempt {stored.attempt}")
    if stored.id != seal.id:
        raise stored.error()
    newest: int | None = yield NewestEpoch()
    if newest != seal.epoch:
        # a sealer that was paused for long: where it has sealed, decisions were pruned
        raise _outrun(seal, f"is behind: epoch {newest} is decided already")
    yield Reach("after-seal", seal.epoch)


def all_applied(seal: Seal) -> Steps[None]:
    """See that the newest decision is the one before the seal, and is in every sink.

    Raises:
        EpochUnfinished, Sealed: see `seal_after`.
    """
    newest: int | None = yield NewestEpoch()
    if newest is None or newest != seal.epoch - 1:
        if newest is not None:
            yield ReadRecord(newest)  # a seal that is there already says so itself
        raise EpochUnfinished(
            f"epoch {newest} is the newest decision, and the lineage was to be sealed after "
            f"epoch {seal.epoch - 1}",
            data="nothing was sealed and nothing was lost",
            do="start the job once more so that it finishes what is decided, then stop it",
        )
    record: EpochRecord | None = yield ReadRecord(newest)
    done: bool = yield IsCommitted(newest)
    if done and record is not None and record.overlapped:
        done = yield IsFinished(newest)
    if not done:
        raise EpochUnfinished(
            f"epoch {newest} is decided and may not be in every sink yet",
            data="nothing was sealed and nothing was lost; the next start of the job applies it",
            do="start the job once more (it finishes the epoch), then stop it",
        )


def _outrun(seal: Seal, why: str) -> Fenced:
    return Fenced(
        f"epoch {seal.epoch} {why}: a driver of lineage {seal.lineage} is alive",
        data="nothing was sealed; the job goes on and nothing of it is lost",
        do="let the running driver do it: `sluicegate stop CHECKPOINT --savepoint FOLDER`",
    )
