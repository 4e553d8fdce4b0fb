"""StreamingJob's status: the operator's write-ahead log, and what people read.

The operator writes each field before the action that the field announces (`reconcile.actions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.fields import Instant, Template, spec_field

NONE, REQUESTED, ACTIVE, TERMINATED = "None", "Requested", "Active", "Terminated"
"""States of a driver: none yet; its pod is being created; its pod was observed; its end was recorded."""

RUN, APPLY_ONLY = "Run", "ApplyOnly"
"""What a driver does: it runs the job, or it only applies decided epochs to the sinks."""

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
    """The driver of the latest attempt."""

    state: str = spec_field(
        "State of the driver. None: there was none yet. Requested: its pod is being created. Active: "
        "its pod was observed. Terminated: its end was observed and recorded.",
        default=NONE,
        choices=(NONE, REQUESTED, ACTIVE, TERMINATED),
    )
    mode: str = spec_field(
        "Run: the driver runs the job. ApplyOnly: it applies epochs that are decided but not yet in "
        "every sink, and exits.",
        default=RUN,
        choices=(RUN, APPLY_ONLY),
    )
    uid: str = spec_field("UID of the driver's pod, once it was observed.", default="")
    request_time: Instant | None = spec_field(
        "Time of the latest request to create the driver's pod.", default=None
    )
    requests: int = spec_field(
        "Number of requests to create the driver's pod. More than one means that earlier requests "
        "were lost.",
        default=0,
    )
    start_time: Instant | None = spec_field(
        "Time at which the driver's container started.", default=None
    )
    spec_hash: str = spec_field("Digest of the spec that the driver runs.", default="")
    stop_reason: str = spec_field(
        "Why the driver was stopped, such as Suspend or Upgrade. Empty if it was not.",
        default="",
    )
    stop_time: Instant | None = spec_field(
        "Time at which the operator requested the stop.", default=None
    )


@dataclass(frozen=True)
class CheckpointStatus:
    """A checkpoint of the job, and how far it is."""

    number: int = spec_field(
        "Number of the checkpoint: the last part of its path on the CheckpointVolume. Upgrades with "
        "mode Savepoint or Stateless start a new checkpoint.",
        default=1,
        always_written=True,
    )
    restored_from: str = spec_field(
        "Name of the Savepoint that the checkpoint was restored from. Empty for none.", default=""
    )
    last_epoch: int | None = spec_field(
        "The latest epoch of this checkpoint that a driver has reported.", default=None
    )
    last_epoch_time: Instant | None = spec_field(
        "Time of the driver's latest progress report. An idle stream reports progress without an "
        "epoch.",
        default=None,
    )
    abandoned_savepoints: tuple[str, ...] = spec_field(
        "Names of Savepoints of this checkpoint that an upgrade stopped waiting for. If one is "
        "completed late it seals this checkpoint, and the job continues from it.",
        default=(),
    )


@dataclass(frozen=True)
class FailureStatus:
    """A failed driver, or several old failures merged into one entry."""

    kind: str = spec_field(
        "Whose restart budget the failure counts against: Application (spec.restart), Image or "
        "Scheduling (spec.startup), Disrupted or Fenced (unlimited)."
    )
    time: Instant = spec_field("Time of the failure; of merged failures, the last.")
    count: int = spec_field("Number of merged failures.", default=1)
    run_s: float = spec_field(
        "How long the driver had run, in seconds; of merged failures, the first.", default=0.0
    )


@dataclass(frozen=True)
class UpgradeStatus:
    """A spec change that is waiting for the old driver to end."""

    mode: str = spec_field("The spec.upgradeMode with which the upgrade began.")
    savepoint: str = spec_field("Name of the Savepoint that the upgrade takes.", default="")


@dataclass(frozen=True)
class StableSpecStatus:
    """The last spec with which a driver has completed an epoch, and its checkpoint."""

    spec: Template = spec_field(
        "The spec, without the fields that do not need a new driver. Empty if it is too large to "
        "be stored."
    )
    spec_hash: str = spec_field("Digest of the spec.")
    checkpoint: CheckpointStatus = spec_field(
        "The checkpoint that a rollback continues with: the one of this spec, or its successor if a "
        "savepoint sealed it."
    )


@dataclass(frozen=True)
class RollbackStatus:
    """A spec that was replaced by the last stable one."""

    spec_hash: str = spec_field("Digest of the spec that failed.")
    reason: str = spec_field("Why it was replaced, in one CamelCase word.")
    completed: bool = spec_field(
        "Whether the failed spec's driver has ended and the job uses the last stable spec again.",
        default=False,
    )


@dataclass(frozen=True)
class StreamingJobStatus:
    """Observed state of a StreamingJob. Only the operator writes it."""

    observed_generation: int = spec_field(
        "The metadata.generation of the spec that the operator last acted on.", default=0
    )
    phase: str = spec_field(
        "Summary of the job's state; the conditions have the details.",
        default="Pending",
        choices=PHASES,
        always_written=True,
    )
    conditions: tuple[Condition, ...] = spec_field(
        "Accepted, Ready, VolumeReady, Failed, Fenced, NodeLost and RolledBack.", default=()
    )
    attempt: int = spec_field(
        "Number of the latest driver. Its pod is named <job>-<attempt>-driver.",
        default=0,
        always_written=True,
    )
    driver: DriverStatus = spec_field("The driver of the latest attempt.", default=DriverStatus())
    unconfirmed_attempts: tuple[int, ...] = spec_field(
        "Attempts that were replaced without confirmation that their drivers are dead, because "
        "their nodes did not respond.",
        default=(),
    )
    checkpoint: CheckpointStatus = spec_field(
        "The current checkpoint.", default=CheckpointStatus(), always_written=True
    )
    latest_checkpoint_number: int = spec_field(
        "The highest number that a checkpoint of the job was given. A number is never given twice.",
        default=1,
    )
    all_epochs_applied: bool = spec_field(
        "Whether every decided epoch is known to be applied to every sink.", default=True
    )
    restarts: int = spec_field(
        "Number of drivers that were started because their predecessor failed.",
        default=0,
        always_written=True,
    )
    failures: tuple[FailureStatus, ...] = spec_field(
        "Failures that count against the restart budgets, oldest first.", default=()
    )
    next_start_time: Instant | None = spec_field(
        "Time at which the next driver starts, after its restart delay.", default=None
    )
    apply_failures: int = spec_field(
        "For a job that is being deleted: number of drivers that failed permanently to apply its "
        "decided epochs.",
        default=0,
    )
    failure_reason: str = spec_field(
        "Why no further driver is started, in one CamelCase word. Empty unless the job is Failed.",
        default="",
    )
    last_error: str = spec_field("Error of the latest driver that failed.", default="")
    observed_restart_nonce: int = spec_field(
        "The spec.restartNonce that the operator last acted on.", default=0
    )
    upgrade: UpgradeStatus | None = spec_field("The upgrade in progress.", default=None)
    last_stable_spec: StableSpecStatus | None = spec_field(
        "The last spec with which a driver has completed an epoch. Recorded if spec.rollback is "
        "enabled.",
        default=None,
    )
    rollback: RollbackStatus | None = spec_field(
        "The rollback in effect: the failed spec that the last stable one replaces.", default=None
    )
    trial_start_time: Instant | None = spec_field(
        "Time at which the first driver of a spec that has no epoch yet was requested.",
        default=None,
    )
    last_schedule_time: Instant | None = spec_field(
        "Scheduled time of the latest run of a job with a schedule.", default=None
    )
    finished: bool = spec_field("Whether the batch job's run is complete.", default=False)
