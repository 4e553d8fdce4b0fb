"""StreamingJob's status: the operator's write-ahead log, and what people see.

Each field is written before the act that it announces (`reconcile`). Not here: how it changes.
Called by `kinds` and `reconcile`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.resources.conditions import Condition
from sluicegate_operator.resources.declaring import Instant, described

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
    """One driver that failed."""

    kind: str = described("whose budget it is of")
    at: Instant = described("when it ended")
    ran_s: float = described("how long it had run, in seconds", default=0.0)


@dataclass(frozen=True)
class UpgradeStatus:
    """A change of the spec that waits for the old driver's end."""

    mode: str = described("of the upgrade, as of when it began")
    savepoint: str = described("name of the Savepoint that it takes", default="")


@dataclass(frozen=True)
class StreamingJobStatus:
    """What the operator writes below `status`."""

    observed_generation: int = described("of the spec that was last acted on", default=0)
    phase: str = described("in one word", default="Pending", choices=PHASES)
    conditions: tuple[Condition, ...] = described("in detail", default=())
    attempt: int = described("number of the newest driver", default=0)
    driver: DriverStatus = described("the newest driver", default=DriverStatus())
    may_be_alive: tuple[int, ...] = described(
        "attempts that were replaced without proof that they are dead", default=()
    )
    checkpoint_number: int = described(
        "of the checkpoint; an upgrade may begin a new one", default=1
    )
    restored_from: str = described("the Savepoint that this checkpoint began with", default="")
    settled: bool = described(
        "whether every decided epoch is known to be in all sinks", default=True
    )
    last_epoch: int | None = described("the newest epoch that was reported", default=None)
    last_epoch_time: Instant | None = described("when progress was last reported", default=None)
    restarts: int = described("drivers that were started after a failure", default=0)
    failures: tuple[FailureStatus, ...] = described(
        "what the restart budgets count, the oldest first", default=()
    )
    next_start_time: Instant | None = described("when the next driver starts", default=None)
    failed: str = described("why no driver is started any more, in one word", default="")
    last_error: str = described("of the last driver that failed", default="")
    handled_nonce: int = described("the restartNonce that was last acted on", default=0)
    upgrade: UpgradeStatus | None = described("a change of the spec on its way", default=None)
    last_schedule_time: Instant | None = described("of the last run by schedule", default=None)
    finished: bool = described("whether a batch job's run is done", default=False)
