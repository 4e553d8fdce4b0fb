"""StreamingJob's status: the operator's write-ahead log, and what people see.

Each field is written before the act that it announces (`reconcile`). Not here: how it changes.
Called by `kinds` and `reconcile`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.resources.conditions import Condition
from sluicegate_operator.resources.declaring import Instant, Template, described

NONE, ASKED, ALIVE, ENDED = "None", "Asked", "Alive", "Ended"
"""A driver's states: none yet; its pod is to be made; its pod was seen; its end was accounted for."""

RUN, FINISH = "run", "finish"
"""What a driver is for: the job, or only to apply what is decided."""

PHASES = (
    "Pending",
    "Starting",
    "Running",
    "Stopping",
    "Restarting",
    "Upgrading",
    "Suspended",
    "Waiting",
    "Finished",
    "Failed",
    "Deleting",
)


@dataclass(frozen=True)
class DriverStatus:
    """The newest attempt's driver."""

    state: str = described("how far it is", default=NONE, choices=(NONE, ASKED, ALIVE, ENDED))
    purpose: str = described("what it is for", default=RUN, choices=(RUN, FINISH))
    uid: str = described("of its pod, once that was seen", default="")
    asked_at: Instant | None = described("when its pod was last asked for", default=None)
    tries: int = described("how often its pod was asked for", default=0)
    running_at: Instant | None = described("since when its container runs", default=None)
    spec_hash: str = described("of the spec that it runs", default="")
    stopping: str = described("why it was asked to stop; empty: it was not", default="")
    stopping_at: Instant | None = described("when", default=None)


@dataclass(frozen=True)
class FailureStatus:
    """One driver that failed, or several that are too long ago to be told apart."""

    kind: str = described("whose budget it is of")
    at: Instant = described("when it ended; of several: the last")
    count: int = described("how many they are", default=1)
    ran_s: float = described("how long it had run, in seconds; of several: the first", default=0.0)


@dataclass(frozen=True)
class UpgradeStatus:
    """A change of the spec that waits for the old driver's end."""

    mode: str = described("of the upgrade, as of when it began")
    savepoint: str = described("name of the Savepoint that it takes", default="")


@dataclass(frozen=True)
class GoodStatus:
    """The last spec with which a driver has made an epoch, and the checkpoint that it goes on with."""

    spec: Template = described("what a driver sees of it; empty: too large to be kept")
    spec_hash: str = described("its digest")
    checkpoint_number: int = described("of its checkpoint, or of that one's successor by savepoint")
    restored_from: str = described("the Savepoint that this checkpoint began with", default="")
    epoch: int | None = described("one that was made with this checkpoint", default=None)
    given_up: tuple[str, ...] = described(
        "Savepoints that may seal this checkpoint yet, as of when it was left", default=()
    )


@dataclass(frozen=True)
class RollbackStatus:
    """A spec that was given up for the last good one."""

    spec_hash: str = described("of the spec that was given up")
    reason: str = described("why, in one word")
    arrived: bool = described(
        "whether its driver has ended, and the job is back on the good checkpoint", default=False
    )


@dataclass(frozen=True)
class StreamingJobStatus:
    """What the operator writes below `status`."""

    observed_generation: int = described("of the spec that was last acted on", default=0)
    phase: str = described("in one word", default="Pending", choices=PHASES, shown=True)
    conditions: tuple[Condition, ...] = described("in detail", default=())
    attempt: int = described("number of the newest driver", default=0, shown=True)
    driver: DriverStatus = described("the newest driver", default=DriverStatus())
    may_be_alive: tuple[int, ...] = described(
        "attempts that were replaced without proof that they are dead", default=()
    )
    checkpoint_number: int = described(
        "of the checkpoint; an upgrade may begin a new one", default=1
    )
    restored_from: str = described("the Savepoint that this checkpoint began with", default="")
    newest_checkpoint: int = described(
        "the highest number that a checkpoint was given; a number is given once", default=1
    )
    given_up: tuple[str, ...] = described(
        "Savepoints of this checkpoint that upgrades did not wait for; they may seal it yet",
        default=(),
    )
    settled: bool = described(
        "whether every decided epoch is known to be in all sinks", default=True
    )
    last_epoch: int | None = described("the newest epoch that was reported", default=None)
    last_epoch_time: Instant | None = described("when progress was last reported", default=None)
    restarts: int = described("drivers that were started after a failure", default=0, shown=True)
    failures: tuple[FailureStatus, ...] = described(
        "what the restart budgets count, the oldest first", default=()
    )
    next_start_time: Instant | None = described("when the next driver starts", default=None)
    finish_failures: int = described(
        "how often a deleted job's decided epoch could not be applied", default=0
    )
    failed: str = described("why no driver is started any more, in one word", default="")
    last_error: str = described("of the last driver that failed", default="")
    handled_nonce: int = described("the restartNonce that was last acted on", default=0)
    upgrade: UpgradeStatus | None = described("a change of the spec on its way", default=None)
    good: GoodStatus | None = described("what a rollback goes back to", default=None)
    rollback: RollbackStatus | None = described("a spec that was given up", default=None)
    tried_since: Instant | None = described(
        "when a driver of a spec that has made no epoch yet was first asked for", default=None
    )
    last_schedule_time: Instant | None = described("of the last run by schedule", default=None)
    finished: bool = described("whether a batch job's run is done", default=False)
