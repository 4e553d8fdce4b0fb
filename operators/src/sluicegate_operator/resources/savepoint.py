"""Savepoint: a copy of a job's checkpoint, once or by schedule, to restore into another job.

Not here: what is done about it (`volumes`). Called by `kinds` and `volumes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate_operator.resources.conditions import Condition
from sluicegate_operator.resources.declaring import Instant, Rule, described
from sluicegate_operator.resources.job import Schedule
from sluicegate_operator.resources.volume import DELETE, RETAIN


@dataclass(frozen=True)
class SavepointSpec:
    """What the user writes below `spec`."""

    job: str = described("the StreamingJob, in the same namespace")
    volume: str = described("the CheckpointVolume to copy to; default: the job's", default="")
    stop: bool = described(
        "end the job there and seal its checkpoint, so that the savepoint can move it",
        default=False,
    )
    schedule: Schedule | None = described("take one again and again", default=None)
    history: int = described(
        "of a schedule: the newest savepoints that are kept", default=5, at_least=1
    )
    reclaim_policy: str = described(
        "what becomes of the data when the Savepoint is deleted",
        default=RETAIN,
        choices=(RETAIN, DELETE),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.stop && has(self.schedule))",
            "stop ends the job; it cannot be on a schedule",
            lambda spec: not (spec.stop and spec.schedule),
        ),
        Rule(
            "self.job == oldSelf.job && has(self.volume) == has(oldSelf.volume) && "
            "(!has(self.volume) || self.volume == oldSelf.volume)",
            "job and volume cannot change: make another Savepoint",
        ),
    )


@dataclass(frozen=True)
class TakenStatus:
    """One savepoint that was taken."""

    location: str = described("its address")
    epoch: int = described("the last epoch that is in it")
    taken_time: Instant = described("when")
    sealed: bool = described("whether it can move its job", default=False)


@dataclass(frozen=True)
class DisposalStatus:
    """The removal of data, while it fails."""

    tries: int = described("that failed, in a row", default=0)
    tried_time: Instant | None = described("when the last of them ended", default=None)
    next_try_time: Instant | None = described("when it is tried again", default=None)
    failed: str = described("why it failed, in one word", default="")
    last_error: str = described("of the last try that failed", default="")


@dataclass(frozen=True)
class SavepointStatus:
    """What the operator writes below `status`."""

    observed_generation: int = described("of the spec that was last acted on", default=0)
    phase: str = described(
        "in one word",
        default="Pending",
        choices=("Pending", "Taking", "Ready", "Failed", "Deleting"),
        shown=True,
    )
    conditions: tuple[Condition, ...] = described("in detail", default=())
    taken: tuple[TakenStatus, ...] = described("the newest first", default=())
    last_error: str = described("of the last try that failed", default="")
    last_schedule_time: Instant | None = described("of the last one by schedule", default=None)
    volume: str = described("the CheckpointVolume that it is copied to", default="")
    folder: str = described("where one is being taken; empty: none is", default="")
    tries: int = described("at the one that is being taken, which came to nothing", default=0)
    failures: int = described("of these tries, those that a further one may not mend", default=0)
    tried_time: Instant | None = described("when the last of them ended", default=None)
    next_try_time: Instant | None = described("when it is tried again", default=None)
    failed: str = described("why it is not tried any more, in one word", default="")
    doomed: tuple[str, ...] = described(
        "addresses of savepoints that are to be removed", default=()
    )
    disposal: DisposalStatus = described("their removal", default=DisposalStatus())
    disposed: bool = described("whether all that it named was removed", default=False)
