"""StreamingJob's spec: what a job is, and how its driver is kept alive.

A batch job is one whose trigger ends by itself. Not here: its status (`job_status`), what is done
about it (`reconcile`). Called by `kinds` and `reconcile`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.resources.declaring import Rule, Template, described, name_of
from sluicegate_operator.resources.parsing import render

INTERVAL, ONCE = "interval", "once"
TRIGGERS = (INTERVAL, "availableNow", ONCE)

SAVEPOINT, LAST_STATE, STATELESS = "savepoint", "last-state", "stateless"
UPGRADE_MODES = (LAST_STATE, SAVEPOINT, STATELESS)

PROOF, RESTART = "wait-for-proof", "restart"


@dataclass(frozen=True)
class PodSettings:
    """The driver's pod, or each executor's."""

    cores: int = described("CPU cores that Spark uses", default=1, at_least=1)
    memory: str = described("heap of the JVM", default="1g", pattern=r"^[0-9]+[kmgtKMGT]?$")
    memory_overhead: str = described(
        "memory beside the heap, for Python; Spark's own default if not given",
        default="",
        pattern=r"^[0-9]+[kmgtKMGT]?$",
    )
    template: Template = described(
        "a PodTemplateSpec that the pod is merged into; its container is named driver or executor",
        made=dict,
    )


@dataclass(frozen=True)
class ExecutorSettings(PodSettings):
    """The executors."""

    instances: int = described("how many; 0: the driver does the work", default=1, at_least=0)


@dataclass(frozen=True)
class CheckpointSettings:
    """Where the job's checkpoint is."""

    volume: str = described("the CheckpointVolume, in the same namespace")
    path: str = described("below the volume's prefix; default: the job's name", default="")
    restore_from: str = described(
        "a Savepoint that the job's first checkpoint is restored from", default=""
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.volume == oldSelf.volume && has(self.path) == has(oldSelf.path) && "
            "(!has(self.path) || self.path == oldSelf.path)",
            "volume and path cannot change: a job is moved by a Savepoint and a new StreamingJob",
        ),
    )


@dataclass(frozen=True)
class Schedule:
    """When a batch job runs."""

    cron: str = described(
        "five fields: minute, hour, day, month, weekday", pattern=r"^\S+(\s+\S+){4}$"
    )
    time_zone: str = described("IANA name that the fields are read in", default="UTC")
    starting_deadline_s: float = described(
        "a run that is later than this is left out; 0: none is", default=0.0, at_least=0
    )


@dataclass(frozen=True)
class StartSettings:
    """Budgets for drivers that never came to run, apart from the application's own."""

    image_timeout_s: float = described(
        "a pod whose image is not there after this is given up", default=300.0, at_least=0
    )
    image_attempts: int = described(
        "pods in a row that may be given up for their image", default=5, at_least=0
    )
    scheduling_timeout_s: float = described(
        "a pod that no node has taken after this is given up; 0: it waits", default=0.0, at_least=0
    )
    scheduling_attempts: int = described(
        "pods in a row that may be given up for want of a node", default=5, at_least=0
    )


@dataclass(frozen=True)
class LostNode:
    """What to do when the driver's node does not answer."""

    deadline_s: float = described(
        "how long a node may be silent before the driver is replaced", default=60.0, at_least=0
    )
    stateful: str = described(
        "a stateful job is replaced only when its driver is proven dead, or after the deadline too "
        "(state may be corrupted by a driver that still runs)",
        default=PROOF,
        choices=(PROOF, RESTART),
    )


@dataclass(frozen=True)
class RollbackSettings:
    """Whether a new spec that does not work is given up for the last one that did."""

    enabled: bool = described(
        "go back to the last spec with which a driver has made an epoch, if the new one fails for "
        "good or makes none in time",
        default=False,
    )
    deadline_s: float = described(
        "how long after its first driver was asked for a new spec may take to its first epoch",
        default=600.0,
        at_least=1,
    )


@dataclass(frozen=True)
class Tracing:
    """Where traces go."""

    endpoint: str = described("OTLP over HTTP, such as http://collector:4318")


@dataclass(frozen=True)
class StreamingJobSpec:
    """What the user writes below `spec`."""

    image: str = described("image of driver and executors")
    image_pull_policy: str = described(
        "as of a container",
        default="IfNotPresent",
        choices=("IfNotPresent", "Always", "Never"),
    )
    image_pull_secrets: tuple[str, ...] = described("names of Secrets", default=())
    main_file: str = described("Python file in the image; this or mainModule", default="")
    main_module: str = described("Python module in the image; this or mainFile", default="")
    arguments: tuple[str, ...] = described(
        "arguments of the main file or module; $(NAME) is a variable of the container, $$ is $",
        default=(),
    )
    spark_conf: Mapping[str, str] = described("Spark's own settings", made=dict)
    service_account: str = described(
        "that the pods run as; default: sluicegate-driver, of operators/deploy/job", default=""
    )
    driver: PodSettings = described("the driver's pod", default=PodSettings())
    executor: ExecutorSettings = described("the executors' pods", default=ExecutorSettings())
    checkpoint: CheckpointSettings = described("where the checkpoint is")
    trigger: str = described(
        "interval: for ever, an epoch each epochs.interval; availableNow: what is there, then end; "
        "once: a batch",
        default=INTERVAL,
        choices=TRIGGERS,
    )
    epochs: EpochSettings = described("how epochs are run", default=EpochSettings())
    stateful: bool = described(
        "whether the query keeps state, which two drivers at a time could corrupt", default=True
    )
    dead_letter_topic: str = described("for rows that a sink would refuse", default="")
    tracing: Tracing | None = described("traces of epochs", default=None)
    grace_s: float = described(
        "how long a driver that is asked to stop may take to end its epoch",
        default=180.0,
        at_least=1,
    )
    suspend: bool = described("stop the driver and start none", default=False, restarts=False)
    restart_nonce: int = described(
        "another number than before restarts the driver, also of a failed job",
        default=0,
        restarts=False,
    )
    schedule: Schedule | None = described(
        "when a batch job runs; without one it runs once", default=None, restarts=False
    )
    upgrade_mode: str = described(
        "how a change of the spec reaches the driver: with its checkpoint, with a savepoint of it, "
        "or with a new, empty checkpoint",
        default=LAST_STATE,
        choices=UPGRADE_MODES,
        restarts=False,
    )
    savepoint_timeout_s: float = described(
        "an upgrade whose savepoint takes longer goes on with the checkpoint",
        default=600.0,
        at_least=1,
        restarts=False,
    )
    rollback: RollbackSettings = described(
        "what to do about a new spec that does not work",
        default=RollbackSettings(),
        restarts=False,
    )
    restart: RestartSettings = dataclasses.field(
        default=RestartSettings(),
        kw_only=True,
        metadata={"help": "when a failed driver is started again", "restarts": False},
    )
    start: StartSettings = described(
        "limits of image pulls and scheduling", default=StartSettings(), restarts=False
    )
    stuck_after_s: float = described(
        "a driver that reports no progress for longer is restarted; 0: none is",
        default=600.0,
        at_least=0,
        restarts=False,
    )
    lost_node: LostNode = described(
        "when the driver's node does not answer", default=LostNode(), restarts=False
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.mainFile) != has(self.mainModule)",
            "give one of mainFile and mainModule",
            lambda spec: bool(spec.main_file) != bool(spec.main_module),
        ),
        Rule(
            "!has(self.schedule) || self.trigger != 'interval'",
            "a schedule needs a trigger that ends by itself: availableNow or once",
            lambda spec: spec.schedule is None or spec.trigger != INTERVAL,
        ),
        Rule(
            "self.trigger == 'interval' || self.upgradeMode != 'savepoint'",
            "a job that ends by itself has no upgradeMode savepoint: it is upgraded between runs",
            lambda spec: spec.trigger == INTERVAL or spec.upgrade_mode != SAVEPOINT,
        ),
        Rule(
            "self.trigger == 'interval' || !self.rollback.enabled",
            "a job that ends by itself has no rollback: switch it off, or use trigger interval",
            lambda spec: spec.trigger == INTERVAL or not spec.rollback.enabled,
        ),
        Rule(
            "self.upgradeMode == 'stateless' || (self.epochs.delivery == oldSelf.epochs.delivery "
            "&& self.epochs.stateBackend == oldSelf.epochs.stateBackend)",
            "delivery and stateBackend belong to the checkpoint: only upgradeMode stateless, which "
            "begins a new one, can change them",
        ),
    )

    @property
    def finite(self) -> bool:
        """Whether the job ends by itself."""
        return self.trigger != INTERVAL

    def epoch_settings(self) -> EpochSettings:
        """Return the settings that the driver gets: the trigger is an interval to the library."""
        if self.trigger == "availableNow":
            return dataclasses.replace(self.epochs, interval=AVAILABLE_NOW)
        return self.epochs

    def seen_by_driver(self) -> dict[str, Any]:
        """Return all that needs a new driver when it changes, as the API takes it."""
        kept = render(self)
        for field in dataclasses.fields(self):
            if not field.metadata["restarts"]:
                kept.pop(name_of(type(self), field.name), None)
        return kept

    def running_hash(self) -> str:
        """Return a digest of all that needs a new driver when it changes."""
        text = json.dumps(self.seen_by_driver(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def controlled_by(self, other: StreamingJobSpec) -> StreamingJobSpec:
        """Return this spec with all that no driver sees of another: suspend, budgets, limits."""
        controls = [f.name for f in dataclasses.fields(self) if not f.metadata["restarts"]]
        return dataclasses.replace(self, **{name: getattr(other, name) for name in controls})
