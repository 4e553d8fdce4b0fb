"""StreamingJob's spec: what a job runs, and how its driver is kept alive.

A batch job is a StreamingJob whose trigger ends by itself.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.settings import epoch
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.codec import render
from sluicegate_operator.api.fields import Rule, Template, spec_field
from sluicegate_operator.api.library_settings import field_name

INTERVAL, AVAILABLE_NOW, ONCE = "Interval", "AvailableNow", "Once"
TRIGGERS = (INTERVAL, AVAILABLE_NOW, ONCE)

LAST_STATE, SAVEPOINT, STATELESS = "LastState", "Savepoint", "Stateless"
UPGRADE_MODES = (LAST_STATE, SAVEPOINT, STATELESS)

WAIT_FOR_CONFIRMATION, RESTART = "WaitForConfirmation", "Restart"

_MEMORY = r"^[0-9]+[kmgtKMGT]?$"


@dataclass(frozen=True)
class PodSettings:
    """The driver's pod, or each executor's pod."""

    cores: int = spec_field(
        "Number of CPU cores that Spark uses in the pod; also the pod's CPU request.",
        default=1,
        at_least=1,
    )
    memory: str = spec_field(
        "Heap of the JVM in Spark's notation, such as 512m or 4g.", default="1g", pattern=_MEMORY
    )
    memory_overhead: str = spec_field(
        "Memory outside the heap, for Python workers and native libraries, in Spark's notation. "
        "Defaults to Spark's own rule.",
        default="",
        pattern=_MEMORY,
    )
    template: Template = spec_field(
        "A PodTemplateSpec that the operator merges its own pod into: node selectors, volumes, "
        "sidecars, environment variables. The container of Spark is named driver or executor.",
        default_factory=dict,
    )


@dataclass(frozen=True)
class ExecutorSettings(PodSettings):
    """The executors."""

    instances: int = spec_field(
        "Number of executor pods. With 0 the driver does the work itself (Spark's local mode).",
        default=1,
        at_least=0,
    )


@dataclass(frozen=True)
class CheckpointSettings:
    """Where the job's checkpoint is stored."""

    volume: str = spec_field(
        "Name of the CheckpointVolume, in the same namespace, that stores the checkpoint. "
        "Immutable."
    )
    path: str = spec_field(
        "Path of the job's checkpoints below the volume's prefix. Defaults to the job's name. "
        "Immutable.",
        default="",
    )
    restore_from: str = spec_field(
        "Name of a Savepoint, in the same namespace, from which the job's first checkpoint is "
        "restored. It has no effect after the first start.",
        default="",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.volume == oldSelf.volume && has(self.path) == has(oldSelf.path) && "
            "(!has(self.path) || self.path == oldSelf.path)",
            "volume and path cannot change; to move a job, take a Savepoint and create a new "
            "StreamingJob that restores it",
        ),
    )


@dataclass(frozen=True)
class Schedule:
    """When a batch job runs, or when savepoints are taken."""

    cron: str = spec_field(
        "Cron expression with five fields: minute, hour, day of month, month, day of week.",
        pattern=r"^\S+(\s+\S+){4}$",
    )
    time_zone: str = spec_field(
        "Time zone of the cron expression: an IANA name such as Europe/Berlin.", default="UTC"
    )
    starting_deadline_s: float = spec_field(
        "A run that cannot start within this time after its scheduled time is skipped. "
        "0: it starts however late it is.",
        default=0.0,
        at_least=0,
    )


@dataclass(frozen=True)
class StartupSettings:
    """Limits for driver pods that do not get to run.

    These failures have their own budgets and never count against the restart strategy.
    """

    image_pull_timeout_s: float = spec_field(
        "A driver pod whose image cannot be pulled within this time is deleted.",
        default=300.0,
        at_least=0,
    )
    image_pull_attempts: int = spec_field(
        "Number of further driver pods that are created when the image cannot be pulled. "
        "The next failure makes the job Failed.",
        default=5,
        at_least=0,
    )
    scheduling_timeout_s: float = spec_field(
        "A driver pod that is not scheduled to a node within this time is deleted. "
        "0: it waits without limit.",
        default=0.0,
        at_least=0,
    )
    scheduling_attempts: int = spec_field(
        "Number of further driver pods that are created after schedulingTimeoutSeconds. "
        "The next failure makes the job Failed.",
        default=5,
        at_least=0,
    )


@dataclass(frozen=True)
class NodeLostSettings:
    """What happens when the driver's node stops responding."""

    deadline_s: float = spec_field(
        "Time for which a node may be unresponsive before its driver is replaced.",
        default=60.0,
        at_least=0,
    )
    stateful_policy: str = spec_field(
        "What happens to a stateful job after deadlineSeconds. WaitForConfirmation: the driver is "
        "replaced only when it is certain to be dead (its node responds again, is deleted, or has "
        "the taint node.kubernetes.io/out-of-service). Restart: it is replaced after the deadline; "
        "if the old driver still runs, two drivers can corrupt the state. Jobs with stateful: false "
        "are always replaced after the deadline.",
        default=WAIT_FOR_CONFIRMATION,
        choices=(WAIT_FOR_CONFIRMATION, RESTART),
    )


@dataclass(frozen=True)
class RollbackSettings:
    """Whether a new spec that does not work is replaced by the last stable one."""

    enabled: bool = spec_field(
        "Whether the job returns to its last stable spec, with which a driver has completed an "
        "epoch, if the driver of a new spec fails permanently or completes no epoch within "
        "deadlineSeconds. Only for trigger Interval.",
        default=False,
    )
    deadline_s: float = spec_field(
        "Time that a new spec has for its first epoch, from the request of its first driver.",
        default=600.0,
        at_least=1,
    )


@dataclass(frozen=True)
class Tracing:
    """Where traces are sent."""

    endpoint: str = spec_field(
        "URL of an OpenTelemetry collector that accepts OTLP over HTTP, such as "
        "http://collector:4318."
    )


@dataclass(frozen=True)
class StreamingJobSpec:
    """Desired state of a StreamingJob."""

    image: str = spec_field("Container image of the driver and the executors.")
    image_pull_policy: str = spec_field(
        "Pull policy of the image, as in a container.",
        default="IfNotPresent",
        choices=("IfNotPresent", "Always", "Never"),
    )
    image_pull_secrets: tuple[str, ...] = spec_field(
        "Names of Secrets with credentials for pulling the image, in the same namespace.",
        default=(),
    )
    main_file: str = spec_field(
        "Path of the Python file in the image that the driver runs. Exactly one of mainFile and "
        "mainModule is required.",
        default="",
    )
    main_module: str = spec_field(
        "Name of the Python module in the image that the driver runs, as with python -m. Exactly "
        "one of mainFile and mainModule is required.",
        default="",
    )
    arguments: tuple[str, ...] = spec_field(
        "Command-line arguments of the main file or module. $(NAME) is replaced by the container's "
        "environment variable NAME; $$ is a literal $.",
        default=(),
    )
    spark_conf: Mapping[str, str] = spec_field(
        "Spark properties by name. Properties that exactly-once delivery or the operator depends on "
        "are rejected.",
        default_factory=dict,
    )
    service_account: str = spec_field(
        "Name of the ServiceAccount that the pods run as. It must be allowed to patch its own pod "
        "and, with executors, to manage pods. Defaults to sluicegate-driver.",
        default="",
    )
    driver: PodSettings = spec_field(
        "Resources and pod template of the driver.", default=PodSettings()
    )
    executor: ExecutorSettings = spec_field(
        "Number, resources and pod template of the executors.", default=ExecutorSettings()
    )
    checkpoint: CheckpointSettings = spec_field(
        "Where the job's checkpoint is stored, and which Savepoint it is restored from."
    )
    trigger: str = spec_field(
        "When epochs run. Interval: continuously, one epoch every epochs.interval. AvailableNow: "
        "processes the data that is available at the start, in several epochs, and ends. Once: "
        "processes it in one epoch and ends.",
        default=INTERVAL,
        choices=TRIGGERS,
    )
    epochs: EpochSettings = spec_field(
        "Interval, delivery guarantee and limits of epochs (micro-batches).",
        default=EpochSettings(),
    )
    stateful: bool = spec_field(
        "Whether the query keeps state between epochs. Two drivers at a time could corrupt state, "
        "so the driver of a stateful job is not replaced while it may still run; see nodeLost.",
        default=True,
    )
    dead_letter_topic: str = spec_field(
        "Kafka topic for rows that a sink would reject. Without it such a row fails the epoch.",
        default="",
    )
    tracing: Tracing | None = spec_field(
        "Export of OpenTelemetry traces of epochs. Disabled by default.", default=None
    )
    termination_grace_period_s: float = spec_field(
        "Time that a driver has to complete its epoch when it is stopped, before it is "
        "killed: the terminationGracePeriodSeconds of its pod.",
        default=180.0,
        at_least=1,
    )
    suspend: bool = spec_field(
        "Stops the driver and starts none until it is false again. The checkpoint is kept.",
        default=False,
        restarts_driver=False,
    )
    restart_nonce: int = spec_field(
        "Any change of this number restarts the driver, also that of a Failed job.",
        default=0,
        restarts_driver=False,
    )
    schedule: Schedule | None = spec_field(
        "When a batch job (trigger AvailableNow or Once) runs. Without a schedule it runs once.",
        default=None,
        restarts_driver=False,
    )
    upgrade_mode: str = spec_field(
        "How a changed spec takes effect. LastState: the driver is stopped and the new one continues "
        "with the same checkpoint. Savepoint: a savepoint is taken first and the new driver starts "
        "from it, with a new checkpoint. Stateless: the new driver starts with an empty "
        "checkpoint.",
        default=LAST_STATE,
        choices=UPGRADE_MODES,
        restarts_driver=False,
    )
    savepoint_timeout_s: float = spec_field(
        "Time that an upgrade waits for its savepoint. After that it continues as LastState.",
        default=600.0,
        at_least=1,
        restarts_driver=False,
    )
    rollback: RollbackSettings = spec_field(
        "Automatic return to the last stable spec.",
        default=RollbackSettings(),
        restarts_driver=False,
    )
    restart: RestartSettings = spec_field(
        "Restart strategy for a driver that failed.",
        default=RestartSettings(),
        restarts_driver=False,
    )
    startup: StartupSettings = spec_field(
        "Limits for driver pods whose image cannot be pulled or that cannot be scheduled.",
        default=StartupSettings(),
        restarts_driver=False,
    )
    progress_deadline_s: float = spec_field(
        "A driver that reports no progress for longer is restarted. An idle stream reports "
        "progress too. 0 disables the check.",
        default=600.0,
        at_least=0,
        restarts_driver=False,
    )
    node_lost: NodeLostSettings = spec_field(
        "What happens when the driver's node stops responding.",
        default=NodeLostSettings(),
        restarts_driver=False,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.mainFile) != has(self.mainModule)",
            "set exactly one of mainFile and mainModule",
            lambda spec: bool(spec.main_file) != bool(spec.main_module),
        ),
        Rule(
            "!has(self.schedule) || self.trigger != 'Interval'",
            "a schedule needs a trigger that ends by itself: AvailableNow or Once",
            lambda spec: spec.schedule is None or spec.trigger != INTERVAL,
        ),
        Rule(
            "self.trigger == 'Interval' || self.upgradeMode != 'Savepoint'",
            "upgradeMode Savepoint needs trigger Interval: a job that ends by itself is upgraded "
            "between its runs",
            lambda spec: spec.trigger == INTERVAL or spec.upgrade_mode != SAVEPOINT,
        ),
        Rule(
            "self.trigger == 'Interval' || !self.rollback.enabled",
            "rollback needs trigger Interval: disable rollback for a job that ends by itself",
            lambda spec: spec.trigger == INTERVAL or not spec.rollback.enabled,
        ),
        Rule(
            "self.upgradeMode == 'Stateless' || (self.epochs.delivery == oldSelf.epochs.delivery "
            "&& self.epochs.stateBackend == oldSelf.epochs.stateBackend)",
            "delivery and stateBackend belong to the checkpoint: only upgradeMode Stateless, which "
            "starts an empty checkpoint, can change them",
        ),
    )

    @property
    def finite(self) -> bool:
        """Whether the job ends by itself."""
        return self.trigger != INTERVAL

    def epoch_settings(self) -> EpochSettings:
        """Return the settings for the driver. In the library the trigger is part of the interval."""
        if self.trigger == AVAILABLE_NOW:
            return dataclasses.replace(self.epochs, interval=epoch.AVAILABLE_NOW)
        return self.epochs

    def seen_by_driver(self) -> dict[str, Any]:
        """Return, as JSON, the part of the spec whose change needs a new driver."""
        kept = render(self)
        for declared in dataclasses.fields(self):
            if not declared.metadata["restarts_driver"]:
                kept.pop(field_name(type(self), declared.name), None)
        return kept

    def running_hash(self) -> str:
        """Return a digest of the part of the spec whose change needs a new driver."""
        text = json.dumps(self.seen_by_driver(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def controlled_by(self, other: StreamingJobSpec) -> StreamingJobSpec:
        """Return this spec with another spec's fields that drivers do not see (suspend, limits)."""
        controls = [f.name for f in dataclasses.fields(self) if not f.metadata["restarts_driver"]]
        return dataclasses.replace(self, **{name: getattr(other, name) for name in controls})
