"""StreamingJob's spec: what a job runs, and how its driver is kept alive.

A batch job is a StreamingJob whose trigger ends by itself.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluicegate.settings import epoch
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate.settings.schema import option
from sluicegate_operator.api import spark_properties
from sluicegate_operator.api.codec import API, render
from sluicegate_operator.api.fields import Rule
from sluicegate_operator.api.schedule import RunSchedule
from sluicegate_operator.api.streaming_job_settings import (
    CheckpointSettings,
    ExecutorSettings,
    NodeLostSettings,
    PodSettings,
    RollbackSettings,
    StartupSettings,
    Tracing,
)

INTERVAL, AVAILABLE_NOW, ONCE = "Interval", "AvailableNow", "Once"
TRIGGERS = (INTERVAL, AVAILABLE_NOW, ONCE)

LAST_STATE, SAVEPOINT, STATELESS = "LastState", "Savepoint", "Stateless"
UPGRADE_MODES = (LAST_STATE, SAVEPOINT, STATELESS)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingJobSpec:
    """Desired state of a StreamingJob."""

    image: str = option(..., "Container image of the driver and the executors.")
    image_pull_policy: str = option(
        "IfNotPresent",
        "Pull policy of the image, as in a container.",
        choices=("IfNotPresent", "Always", "Never"),
    )
    image_pull_secrets: tuple[str, ...] = option(
        (), "Names of Secrets with credentials for pulling the image, in the same namespace."
    )
    main_file: str = option(
        "",
        "Path of the Python file in the image that the driver runs. Exactly one of mainFile and "
        "mainModule is required.",
    )
    main_module: str = option(
        "",
        "Name of the Python module in the image that the driver runs, as with python -m. Exactly "
        "one of mainFile and mainModule is required.",
    )
    arguments: tuple[str, ...] = option(
        (),
        "Command-line arguments of the main file or module. $(NAME) is replaced by the container's "
        "environment variable NAME; $$ is a literal $.",
    )
    spark_conf: Mapping[str, str] = option(
        dict,
        "Spark properties by name. Properties that exactly-once delivery or the operator depends on "
        "are rejected.",
    )
    service_account: str = option(
        "",
        "Name of the ServiceAccount that the pods run as. It must be allowed to patch its own pod "
        "and, with executors, to manage pods. Defaults to sluicegate-driver.",
    )
    driver: PodSettings = option(PodSettings(), "Resources and pod template of the driver.")
    executor: ExecutorSettings = option(
        ExecutorSettings(), "Number, resources and pod template of the executors."
    )
    checkpoint: CheckpointSettings = option(
        ..., "Where the job's checkpoint is stored, and which Savepoint it is restored from."
    )
    trigger: str = option(
        INTERVAL,
        "When epochs run. Interval: continuously, one epoch every epochs.interval. AvailableNow: "
        "processes the data that is available at the start, in several epochs, and ends. Once: for a "
        "main that calls `batch(...)`, which is one epoch and ends; it does not end a stream.",
        choices=TRIGGERS,
    )
    epochs: EpochSettings = option(
        EpochSettings(), "Interval, delivery guarantee and limits of epochs (micro-batches)."
    )
    stateful: bool = option(
        default=True,
        text="Whether the query keeps state between epochs. Two drivers at a time could corrupt state, "
        "so the driver of a stateful job is not replaced while it may still run; see nodeLost.",
    )
    standby: int = option(
        0,
        "Number of standbys, 0 or 1: a second driver pod that has loaded and built the job, and goes on "
        "when the driver has ended. It requests the resources of a driver. Only for trigger Interval and "
        "executor.instances 0.",
        at_least=0,
        at_most=1,
        restarts_driver=False,
    )
    dead_letter_topic: str = option(
        "",
        "Kafka topic for the dead letters of a packaged job, instead of its own default. A main of "
        "your own names its sink in `epochs(dead_letters=...)`: the field has no effect there.",
    )
    tracing: Tracing | None = option(
        None, "Export of OpenTelemetry traces of epochs. Disabled by default."
    )
    termination_grace_period_s: float = option(
        180.0,
        "Time that a driver has to complete its epoch when it is stopped, before it is "
        "killed: the terminationGracePeriodSeconds of its pod.",
        at_least=1,
    )
    suspend: bool = option(
        default=False,
        text="Stops the driver and starts none until it is false again. The checkpoint is kept.",
        restarts_driver=False,
    )
    restart_nonce: int = option(
        0,
        "Any change of this number restarts the driver, also that of a Failed job.",
        restarts_driver=False,
    )
    schedule: RunSchedule | None = option(
        None,
        "When a batch job (trigger AvailableNow or Once) runs. Without a schedule it runs once.",
        restarts_driver=False,
    )
    ttl_seconds_after_finished: int | None = option(
        None,
        "Time after which a job that has ended, because it is Finished or Failed, is deleted, as with "
        "kubectl delete. A job that is suspended, or that another spec or restartNonce has started "
        "again, is not deleted. By default no job is.",
        at_least=0,
        restarts_driver=False,
    )
    upgrade_mode: str = option(
        LAST_STATE,
        "How a changed spec takes effect. LastState: the driver is stopped and the new one continues "
        "with the same checkpoint. Savepoint: a savepoint is taken first and the new driver starts "
        "from it, with a new checkpoint. Stateless: the new driver starts with an empty "
        "checkpoint.",
        choices=UPGRADE_MODES,
        restarts_driver=False,
    )
    savepoint_timeout_s: float = option(
        600.0,
        "Time that an upgrade waits for its savepoint, from when it begins to be taken: waiting for the "
        "savepoints of other jobs does not count. After that it continues as LastState.",
        at_least=1,
        restarts_driver=False,
    )
    upgrade_savepoint_history: int = option(
        5,
        "Number of Savepoints of upgrades that are kept; older ones are deleted with their data, unless "
        "the job may still have to start from them.",
        at_least=1,
        restarts_driver=False,
    )
    rollback: RollbackSettings = option(
        RollbackSettings(), "Automatic return to the last stable spec.", restarts_driver=False
    )
    restart: RestartSettings = option(
        RestartSettings(), "Restart strategy for a driver that failed.", restarts_driver=False
    )
    startup: StartupSettings = option(
        StartupSettings(),
        "Limits for driver pods that are not scheduled or whose containers do not start.",
        restarts_driver=False,
    )
    progress_deadline_s: float = option(
        600.0,
        "A driver that reports no progress for longer is restarted. An idle stream reports "
        "progress too. 0 disables the check.",
        at_least=0,
        restarts_driver=False,
    )
    node_lost: NodeLostSettings = option(
        NodeLostSettings(),
        "What happens when the driver's node stops responding.",
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
            "!has(self.schedule) || !has(self.ttlSecondsAfterFinished)",
            "a job with a schedule runs again, so ttlSecondsAfterFinished cannot be set",
            lambda spec: spec.schedule is None or spec.ttl_seconds_after_finished is None,
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
            "self.standby == 0 || self.trigger == 'Interval'",
            "a standby needs trigger Interval: a job that ends by itself has no driver to replace",
            lambda spec: spec.standby == 0 or spec.trigger == INTERVAL,
        ),
        Rule(
            "self.standby == 0 || self.executor.instances == 0",
            "a standby needs executor.instances 0: the executors of a standby would only wait",
            lambda spec: spec.standby == 0 or spec.executor.instances == 0,
        ),
        Rule(
            "self.upgradeMode == 'Stateless' || (self.epochs.delivery == oldSelf.epochs.delivery "
            "&& self.epochs.stateBackend == oldSelf.epochs.stateBackend)",
            "delivery and stateBackend belong to the checkpoint: only upgradeMode Stateless, which "
            "starts an empty checkpoint, can change them",
        ),
    )
    FIELD_RULES: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"spark_conf": spark_properties.RULES}

    @property
    def finite(self) -> bool:
        """Whether the job ends by itself."""
        return self.trigger != INTERVAL

    def epoch_settings(self) -> EpochSettings:
        """Return the settings for the driver. In the library the trigger is part of the interval."""
        if self.trigger == AVAILABLE_NOW:
            return dataclasses.replace(self.epochs, interval=epoch.AVAILABLE_NOW)
        return self.epochs

    def complete(self) -> dict[str, Any]:
        """Return the spec as JSON with the values of all fields."""
        return render(self, defaults=True)

    def seen_by_driver(self) -> dict[str, Any]:
        """Return, as JSON with all values, the part of the spec whose change needs a new driver."""
        return seen_by_driver(self.complete())

    def running_hash(self) -> str:
        """Return a digest of the part of the spec whose change needs a new driver."""
        return digest(self.seen_by_driver())

    def controlled_by(self, other: StreamingJobSpec) -> StreamingJobSpec:
        """Return this spec with another spec's fields that drivers do not see (suspend, limits)."""
        controls = [
            f.name for f in dataclasses.fields(self) if not f.metadata.get("restarts_driver", True)
        ]
        return dataclasses.replace(self, **{name: getattr(other, name) for name in controls})


def seen_by_driver(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a spec, as JSON, whose change needs a new driver."""
    seen, checkpoint = dict(spec), dict(spec.get("checkpoint") or {})
    for part, kind in ((seen, StreamingJobSpec), (checkpoint, CheckpointSettings)):
        for name in _control_fields(kind):
            part.pop(name, None)
    return {**seen, "checkpoint": checkpoint}


@functools.cache
def _control_fields(kind: type[Any]) -> frozenset[str]:
    """Return the API names of the fields that no driver sees."""
    return frozenset(
        API.key(kind, one.name)
        for one in dataclasses.fields(kind)
        if not one.metadata.get("restarts_driver", True)
    )


def digest(spec: Mapping[str, Any]) -> str:
    """Return a digest of JSON, the same after the API server has stored it: it writes 180.0 as 180."""
    text = json.dumps(_with_integers(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _with_integers(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        return {key: _with_integers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_integers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
