"""StreamingJob's status: the operator's write-ahead log, and what people read.

The operator writes each field before the action that the field announces (`reconcile.actions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.settings.schema import option
from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.fields import Instant, PackedObject, Template

NONE, REQUESTED, ACTIVE, TERMINATED = "None", "Requested", "Active", "Terminated"
"""States of a driver: none yet; its pod is being created; its pod was observed; its end was recorded."""

STARTING, READY = "Starting", "Ready"
"""Further states of a standby, which has no ACTIVE: its pod was observed; it waits for its promotion."""

RUN_RUNNING, RUN_FINISHED, RUN_FAILED, RUN_MISSED = "Running", "Finished", "Failed", "Missed"
RUN_REPLACED = "Replaced"
"""How a run of a batch ended, or that it has not."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverStatus:
    """The driver of the latest attempt."""

    state: str = option(
        NONE,
        "State of the driver. None: there was none yet. Requested: its pod is being created. Active: "
        "its pod was observed. Terminated: its end was observed and recorded.",
        choices=(NONE, REQUESTED, ACTIVE, TERMINATED),
    )
    mode: str = option(
        RUN,
        "Run: the driver runs the job. ApplyOnly: it applies epochs that are decided but not yet in "
        "every sink, and exits.",
        choices=(RUN, APPLY_ONLY),
    )
    uid: str = option("", "UID of the driver's pod, once it was observed.")
    request_time: Instant | None = option(
        None, "Time of the latest request to create the driver's pod."
    )
    requests: int = option(
        0,
        "Number of requests to create the driver's pod. More than one means that earlier requests "
        "were refused or lost.",
    )
    start_time: Instant | None = option(
        None,
        "Time at which the driver's container started; of a promoted standby, when it was promoted.",
    )
    spec_hash: str = option("", "Digest of the spec that the driver runs.")
    stop_reason: str = option(
        "", "Why the driver was stopped, such as Suspend or Upgrade. Empty if it was not."
    )
    stop_time: Instant | None = option(None, "Time at which the operator requested the stop.")


@dataclass(frozen=True, kw_only=True, slots=True)
class StandbyStatus:
    """The standby: a second driver that goes on when the driver has ended."""

    state: str = option(
        NONE,
        "State of the standby. None: there is none now. Requested: its pod is being created. Starting: "
        "its pod was observed. Ready: it has started, and waits for its promotion.",
        choices=(NONE, REQUESTED, STARTING, READY),
        always_written=True,
    )
    attempt: int = option(
        0,
        "Number of the newest standby. Its pod is named <job>-<attempt>-driver, also when promoted.",
    )
    uid: str = option("", "UID of the standby's pod, once it was observed.")
    request_time: Instant | None = option(
        None, "Time of the latest request to create the standby's pod."
    )
    requests: int = option(0, "Number of requests to create the standby's pod.")
    start_time: Instant | None = option(
        None, "Time at which the operator first observed that the standby's container runs."
    )
    failures: int = option(
        0,
        "Number of standbys in a row that ended before their promotion. They have no restart budget.",
    )
    next_start_time: Instant | None = option(
        None, "Earliest time of the next standby after one that ended."
    )
    message: str = option(
        "", "Why the standby does not run, or how the last one ended. Empty once one is ready."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupStatus:
    """Why the newest driver does not start."""

    reason: str = option(
        ...,
        "Why the pod was not created or does not run, in one CamelCase word: Kubernetes' own, such as "
        "ImagePullBackOff, CreateContainerConfigError or Unschedulable, or QuotaExceeded, "
        "PodSecurityViolation, ServiceAccountMissing, WebhookDenied, PodInvalid or another refusal of "
        "the API server.",
    )
    message: str = option("", "Details for people, such as the answer of the API server.")
    since: Instant = option(..., "Time at which the operator first observed this reason.")
    tries: int = option(1, "Number of tries to start a driver since one last ran.")


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictStatus:
    """What bounds a job."""

    reason: str = option(
        ...,
        "What takes most of the time of an epoch, in one CamelCase word: BoundBySource, "
        "BoundByPlanning (Spark's, of each epoch), BoundByPlan, BoundByState, BoundBySink, "
        "BoundByStore (the checkpoint's object store), Waits (for input or its trigger) or Unknown.",
    )
    message: str = option("", "Which sink and step it is, and whether more executors would help.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorsStatus:
    """The executors of the newest driver, as it reports them."""

    running: int = option(
        0, "Number of executors that are connected to the driver.", always_written=True
    )
    wanted: int = option(
        0,
        "Number that the driver has requested: the spec.executor.instances that it was started with.",
        always_written=True,
    )
    time: Instant = option(..., "Time at which the operator wrote these numbers.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointStatus:
    """A checkpoint of the job, and how far it is."""

    number: int = option(
        1,
        "Number of the checkpoint: the last part of its path on the CheckpointVolume. Upgrades with "
        "mode Savepoint or Stateless start a new checkpoint.",
        always_written=True,
    )
    restored_from: str = option(
        "", "Name of the Savepoint that the checkpoint was restored from. Empty for none."
    )
    last_epoch: int | None = option(
        None, "The latest epoch of this checkpoint that a driver has reported."
    )
    last_epoch_time: Instant | None = option(
        None,
        "Time of the driver's latest progress report. An idle stream reports progress without an "
        "epoch.",
    )
    abandoned_savepoints: tuple[str, ...] = option(
        (),
        "Names of Savepoints of this checkpoint that an upgrade stopped waiting for. If one is "
        "completed late it seals this checkpoint, and the job continues from it.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureStatus:
    """A failed driver, or several old failures merged into one entry."""

    kind: str = option(
        ...,
        "Whose restart budget the failure counts against: Application (spec.restart), Image, "
        "Scheduling or Startup (spec.startup), Access, Disrupted or Fenced (unlimited).",
    )
    time: Instant = option(..., "Time of the failure; of merged failures, the last.")
    count: int = option(1, "Number of merged failures.")
    run_s: float = option(
        0.0, "How long the driver had run, in seconds; of merged failures, the first."
    )
    volume_access: str = option(
        "",
        "For kind Access: digest of the volume's endpoint and Secrets that the driver failed with. "
        "Another one is tried at once.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """A run of a batch job with a schedule."""

    schedule_time: Instant = option(
        ..., "Time at which the run was due, or at which a restartNonce requested it."
    )
    result: str = option(
        ...,
        "Running: it has not ended. Finished: every sink has its rows. Failed: its restart budget is used "
        "up, or a restartNonce requested another run in its place. Replaced: the next run was due before it "
        "had ended, and continues from its last epoch. Missed: it was too late and was skipped.",
        choices=(RUN_RUNNING, RUN_FINISHED, RUN_FAILED, RUN_REPLACED, RUN_MISSED),
    )
    attempt: int = option(0, "Number of its latest driver. 0 before the first.")
    finish_time: Instant | None = option(None, "Time at which the operator recorded its end.")


@dataclass(frozen=True, kw_only=True, slots=True)
class UpgradeStatus:
    """A spec change that is waiting for the old driver to end."""

    mode: str = option(..., "The spec.upgradeMode with which the upgrade began.")
    savepoint: str = option("", "Name of the Savepoint that the upgrade takes.")


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedSpecStatus:
    """The newest valid spec."""

    generation: int = option(..., "The metadata.generation of the spec.")
    spec_hash: str = option(
        ...,
        "Digest of the fields that need a new driver. It stays the same until one of them is edited, "
        "also when a new release of the operator has other defaults.",
    )
    spec: Template = option(
        dict,
        "The spec with all of its defaults. The job runs it while a newer spec is invalid. Empty if it "
        "is too large to be stored.",
    )

    def __post_init__(self) -> None:
        """Store the spec as text."""
        object.__setattr__(self, "spec", PackedObject(self.spec))


@dataclass(frozen=True, kw_only=True, slots=True)
class StableSpecStatus:
    """The last spec with which a driver has completed an epoch, and its checkpoint."""

    spec: Template = option(
        ...,
        "The spec, without the fields that do not need a new driver. Empty if it is too large to "
        "be stored.",
    )
    spec_hash: str = option(..., "Digest of the spec.")
    checkpoint: CheckpointStatus = option(
        ...,
        "The checkpoint that a rollback continues with: the one of this spec, or its successor if a "
        "savepoint sealed it.",
    )

    def __post_init__(self) -> None:
        """Store the spec as text."""
        object.__setattr__(self, "spec", PackedObject(self.spec))


@dataclass(frozen=True, kw_only=True, slots=True)
class RollbackStatus:
    """A spec that was replaced by the last stable one."""

    spec_hash: str = option(..., "Digest of the spec that failed.")
    reason: str = option(..., "Why it was replaced, in one CamelCase word.")
    completed: bool = option(
        default=False,
        text="Whether the failed spec's driver has ended and the job uses the last stable spec again.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingJobStatus:
    """Observed state of a StreamingJob. Only the operator writes it."""

    observed_generation: int = option(
        0, "The metadata.generation of the spec that the operator last acted on."
    )
    phase: str = option(
        "Pending",
        "Summary of the job's state; the conditions have the details.",
        choices=PHASES,
        always_written=True,
    )
    conditions: tuple[Condition, ...] = option(
        (),
        "Accepted, Ready, VolumeReady, Bound, Failed, Fenced, NodeLost, RolledBack, UpgradeQueued and "
        "Paused.",
    )
    accepted: AcceptedSpecStatus | None = option(
        None, "The newest valid spec. It differs from spec while that is invalid."
    )
    attempt: int = option(
        0,
        "Number of the latest driver. Its pod is named <job>-<attempt>-driver.",
        always_written=True,
    )
    driver: DriverStatus = option(DriverStatus(), "The driver of the latest attempt.")
    standby: StandbyStatus | None = option(
        None, "The standby. Absent if the job never had spec.standby."
    )
    startup: StartupStatus | None = option(
        None, "Why the newest driver does not start. Absent once it runs."
    )
    unconfirmed_attempts: tuple[int, ...] = option(
        (),
        "Attempts that were replaced without confirmation that their drivers are dead, because "
        "their nodes did not respond.",
    )
    checkpoint: CheckpointStatus = option(
        CheckpointStatus(), "The current checkpoint.", always_written=True
    )
    verdict: VerdictStatus | None = option(
        None,
        "What bounds the job, by the last epochs of its driver. Absent while no driver reports it.",
    )
    executors: ExecutorsStatus | None = option(
        None,
        "The executors of the driver. Absent while no driver reports them, and with executor.instances 0.",
    )
    latest_checkpoint_number: int = option(
        1,
        "The highest number that a checkpoint of the job was given. A number is never given twice.",
    )
    all_epochs_applied: bool = option(
        default=True, text="Whether every decided epoch is known to be applied to every sink."
    )
    restarts: int = option(
        0,
        "Number of drivers that were started because their predecessor failed.",
        always_written=True,
    )
    failures: tuple[FailureStatus, ...] = option(
        (), "Failures that count against the restart budgets, oldest first."
    )
    next_start_time: Instant | None = option(
        None, "Time at which the next driver starts, after its restart delay."
    )
    apply_failures: int = option(
        0,
        "For a job that is being deleted: number of drivers that failed permanently to apply its "
        "decided epochs.",
    )
    failure_reason: str = option(
        "",
        "Why no further driver is started, in one CamelCase word. Empty unless the job is Failed.",
    )
    last_error: str = option("", "Error of the latest driver that failed.")
    observed_restart_nonce: int = option(
        0, "The spec.restartNonce that the operator last acted on."
    )
    upgrade: UpgradeStatus | None = option(None, "The upgrade in progress.")
    last_stable_spec: StableSpecStatus | None = option(
        None,
        "The last spec with which a driver has completed an epoch. Recorded if spec.rollback is "
        "enabled.",
    )
    rollback: RollbackStatus | None = option(
        None, "The rollback in effect: the failed spec that the last stable one replaces."
    )
    trial_start_time: Instant | None = option(
        None, "Time at which the first driver of a spec that has no epoch yet was requested."
    )
    last_schedule_time: Instant | None = option(
        None, "Scheduled time of the latest run of a job with a schedule."
    )
    runs: tuple[RunStatus, ...] = option(
        (), "The last ten runs of a job with a schedule, oldest first."
    )
    finished: bool = option(default=False, text="Whether the batch job's run is complete.")
    finish_time: Instant | None = option(
        None,
        "Time at which the job became Finished or Failed. Absent while it runs, is suspended or is to be "
        "started again.",
    )
