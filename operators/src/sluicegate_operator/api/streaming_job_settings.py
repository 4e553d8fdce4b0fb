"""The groups of settings inside a StreamingJob's spec: its pods, its checkpoint, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate.settings.schema import option
from sluicegate_operator.api.fields import Rule, Template
from sluicegate_operator.api.paths import (
    PATH_PATTERN,
    RESERVED_CEL,
    RESERVED_MESSAGE,
    is_reserved,
)

WAIT_FOR_CONFIRMATION, RESTART = "WaitForConfirmation", "Restart"

_MEMORY = r"^[0-9]+[kmgtKMGT]?$"


@dataclass(frozen=True, kw_only=True, slots=True)
class PodSettings:
    """The driver's pod, or each executor's pod."""

    cores: int = option(
        1, "Number of CPU cores that Spark uses in the pod; also the pod's CPU request.", at_least=1
    )
    memory: str = option(
        "1g", "Heap of the JVM in Spark's notation, such as 512m or 4g.", pattern=_MEMORY
    )
    memory_overhead: str = option(
        "",
        "Memory outside the heap, for Python workers and native libraries, in Spark's notation. "
        "Defaults to Spark's own rule.",
        pattern=_MEMORY,
    )
    template: Template = option(
        dict,
        "A PodTemplateSpec that the operator merges its own pod into: node selectors, volumes, "
        "sidecars, environment variables. The container of Spark is named driver or executor.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorSettings(PodSettings):
    """The executors."""

    instances: int = option(
        1,
        "Number of executor pods. With 0 the driver does the work itself (Spark's local mode).",
        at_least=0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSettings:
    """Where the job's checkpoint is stored."""

    volume: str = option(
        ...,
        "Name of the CheckpointVolume, in the same namespace, that stores the checkpoint. "
        "Immutable.",
    )
    path: str = option(
        "",
        "Path of the job's checkpoints below the volume's prefix, with the characters of a prefix. "
        "No other job may have the same path, or one that contains it. Defaults to the job's name. "
        "Immutable.",
        pattern=PATH_PATTERN,
    )
    restore_from: str = option(
        "",
        "Name of a Savepoint, in the same namespace, from which the job's first checkpoint is "
        "restored. It has no effect after the first start.",
        restarts_driver=False,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.volume == oldSelf.volume && has(self.path) == has(oldSelf.path) && "
            "(!has(self.path) || self.path == oldSelf.path)",
            "volume and path cannot change; to move a job, take a Savepoint and create a new "
            "StreamingJob that restores it",
        ),
        Rule(
            f"!has(self.path) || !self.path.matches('{RESERVED_CEL}')",
            RESERVED_MESSAGE,
            lambda checkpoint: not is_reserved(checkpoint.path),
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupSettings:
    """Limits for driver pods that do not get to run.

    These failures have their own budgets and never count against the restart strategy.
    """

    image_pull_timeout_s: float = option(
        300.0, "A driver pod whose image cannot be pulled within this time is deleted.", at_least=0
    )
    image_pull_attempts: int = option(
        5,
        "Number of further driver pods that are created when the image cannot be pulled. "
        "The next failure makes the job Failed.",
        at_least=0,
    )
    scheduling_timeout_s: float = option(
        0.0,
        "A driver pod that is not scheduled to a node within this time is deleted. "
        "0: it waits without limit.",
        at_least=0,
    )
    scheduling_attempts: int = option(
        5,
        "Number of further driver pods that are created after schedulingTimeoutSeconds. "
        "The next failure makes the job Failed.",
        at_least=0,
    )
    start_timeout_s: float = option(
        900.0,
        "A driver pod whose container does not run within this time after the pod was scheduled is "
        "deleted: because a volume, Secret or ConfigMap is missing, or an init container takes longer. "
        "0: it waits without limit.",
        at_least=0,
    )
    start_attempts: int = option(
        5,
        "Number of further driver pods that are created after startTimeoutSeconds. "
        "The next failure makes the job Failed.",
        at_least=0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLostSettings:
    """What happens when the driver's node stops responding."""

    deadline_s: float = option(
        60.0, "Time for which a node may be unresponsive before its driver is replaced.", at_least=0
    )
    stateful_policy: str = option(
        WAIT_FOR_CONFIRMATION,
        "What happens to a stateful job after deadlineSeconds. WaitForConfirmation: the driver is "
        "replaced only when it is certain to be dead (its node responds again, is deleted, or has "
        "the taint node.kubernetes.io/out-of-service). Restart: it is replaced after the deadline; "
        "if the old driver still runs, two drivers can corrupt the state. Jobs with stateful: false "
        "are always replaced after the deadline.",
        choices=(WAIT_FOR_CONFIRMATION, RESTART),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RollbackSettings:
    """Whether a new spec that does not work is replaced by the last stable one."""

    enabled: bool = option(
        default=False,
        text="Whether the job returns to its last stable spec, with which a driver has completed an "
        "epoch, if the driver of a new spec fails permanently or completes no epoch within "
        "deadlineSeconds. Only for trigger Interval.",
    )
    deadline_s: float = option(
        600.0,
        "Time that a new spec has for its first epoch, from the request of its first driver.",
        at_least=1,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracing:
    """Where traces are sent."""

    endpoint: str = option(
        ...,
        "URL of an OpenTelemetry collector that accepts OTLP over HTTP, such as "
        "http://collector:4318.",
    )
