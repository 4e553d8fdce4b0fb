"""The environment variables that configure a driver, and how they override a job's code.

The operator sets these variables (docs/concepts/operator.md, "The driver contract"); they may
also be set by hand. They win over the code, because the resource decides where a job runs.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sluicegate.errors import SettingsInvalid
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.formats import SETTINGS
from sluicegate.settings.schema import NOTHING_STARTED

log = logging.getLogger("sluicegate.environment")


class DriverVariable(enum.StrEnum):
    """The variables of a driver's container. Unset and empty mean the same."""

    CHECKPOINT = "SLUICEGATE_CHECKPOINT"
    """Address of the checkpoint."""
    NEWEST_CHECKPOINT = "SLUICEGATE_NEWEST_CHECKPOINT"
    """Highest number that the resource has given to a checkpoint."""
    RESTORE_FROM = "SLUICEGATE_RESTORE_FROM"
    """Address of a savepoint to restore into a checkpoint without a lineage."""
    EPOCHS = "SLUICEGATE_EPOCHS"
    """A JSON object of epoch settings, such as {"min_pause_ms": 100}."""
    MODE = "SLUICEGATE_MODE"
    """`run` (default) runs the job; `apply-only` applies the decided epochs, then ends."""
    MASTER = "SLUICEGATE_MASTER"
    """Spark's master URL."""
    SPARK_CONF = "SLUICEGATE_SPARK_CONF"
    """A JSON object of Spark settings."""
    DRIVER_MEMORY = "SLUICEGATE_DRIVER_MEMORY"
    """Heap of the driver's JVM, such as 2g; Spark's default is 1g."""
    PROGRESS_INTERVAL = "SLUICEGATE_PROGRESS_INTERVAL"
    """Least time between two reports of progress, in whole seconds; default 10."""
    DEAD_LETTER_TOPIC = "SLUICEGATE_DEAD_LETTER_TOPIC"
    """Topic for the dead letters of a packaged job."""
    TERMINATION_FILE = "SLUICEGATE_TERMINATION_FILE"
    """File to which the driver writes why it ended."""
    SUPERVISOR = "SLUICEGATE_SUPERVISOR"
    """File descriptor of a pipe that ends with the supervisor; `sluicegate run` sets it."""
    STARTED = "SLUICEGATE_STARTED"
    """File descriptor of a pipe to which the driver writes after its first epoch; `sluicegate run` sets it."""
    TURN = "SLUICEGATE_TURN"
    """File descriptor of a pipe by which a standby learns that it is its turn; `sluicegate run` sets it."""
    RESTARTS = "SLUICEGATE_RESTARTS"
    """Number of drivers that `sluicegate run` has started after a failure, for metrics; it sets this."""
    STANDBY = "SLUICEGATE_STANDBY"
    """`true`: the driver warms up, and waits until its pod is promoted; the operator sets it."""
    JOB = "SLUICEGATE_JOB"
    """namespace/name of the resource, for logs."""
    ATTEMPT = "SLUICEGATE_ATTEMPT"
    """Number of this driver among the drivers of its job, for logs."""
    POD_NAME = "SLUICEGATE_POD_NAME"
    """Name of the driver's own pod."""
    POD_NAMESPACE = "SLUICEGATE_POD_NAMESPACE"
    """Namespace of the driver's own pod."""
    POD_UID = "SLUICEGATE_POD_UID"
    """UID of the driver's own pod."""
    POD_IP = "SLUICEGATE_POD_IP"
    """IP address of the driver's own pod, at which executors reach it."""
    POD_CPU = "SLUICEGATE_POD_CPU"
    """CPU request of the driver's own container, in thousandths of a core; 0: none."""
    POD_MEMORY = "SLUICEGATE_POD_MEMORY"
    """Memory request of the driver's own container, in MiB; 0: none."""


RUN = "run"
"""Mode of a driver that runs the job."""
APPLY_ONLY = "apply-only"
"""Mode of a driver that applies the decided epochs to every sink, starts no query and ends."""

EVENT_LOG, EVENT_LOG_FOLDER = "spark.eventLog.enabled", "spark.eventLog.dir"
"""Spark's settings of its event log."""

EVENT_LOGS = "spark-events"
"""Folder of a CheckpointVolume for event logs, unless a job names another one."""

PROGRESS_ANNOTATION = "sluicegate.dev/progress"
"""Annotation of the driver's own pod: a JSON object of `epoch`, `at` and `verdict` (`progress`)."""

EXECUTORS_ANNOTATION = "sluicegate.dev/executors"
"""Annotation of the driver's own pod: a JSON object of `running` and `wanted` (`executors`)."""

PROMOTED_ANNOTATION = "sluicegate.dev/promoted"
"""Annotation of a standby's pod, of any value: it takes over now."""

STANDBY_READY_ANNOTATION = "sluicegate.dev/standby-ready"
"""Annotation of a standby's own pod, of any value: it is warm, and waits."""

S = TypeVar("S", bound=EpochSettings)


@dataclass(frozen=True)
class DriverEnvironment:
    """The settings that a driver's environment gives; an empty value means that it gives none.

    Args:
        checkpoint: address of the checkpoint.
        epochs: settings of `EpochSettings`, by name.
        mode: RUN or APPLY_ONLY.
        restore_from: address of a savepoint, for a checkpoint without a lineage.
        master: Spark's master URL.
        spark_conf: Spark settings.
        dead_letter_topic: topic for the dead letters of a packaged job.
        job: namespace/name of the resource.
        attempt: number of this driver among the drivers of its job.
        newest_checkpoint: highest number that the resource has given to a checkpoint; 0: unknown.
        progress_interval_s: least time between two reports of progress, in seconds; 0: the default.
        pod_cpu_millis: CPU request of the driver's container in thousandths of a core; 0: unknown.
        pod_memory_mib: memory request of the driver's container in MiB; 0: unknown.
        restarts: drivers that `sluicegate run` has started after a failure; None: it did not start
            this one.
    """

    checkpoint: str = ""
    epochs: Mapping[str, object] = field(default_factory=dict)
    mode: str = RUN
    restore_from: str = ""
    master: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    dead_letter_topic: str = ""
    job: str = ""
    attempt: str = ""
    newest_checkpoint: int = 0
    progress_interval_s: int = 0
    pod_cpu_millis: int = 0
    pod_memory_mib: int = 0
    restarts: int | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> DriverEnvironment:
        """Parse an environment; default: this process's.

        Raises:
            SettingsInvalid: a variable is malformed or has an invalid value.
        """
        env = os.environ if environment is None else environment
        mode = env.get(DriverVariable.MODE) or RUN
        if mode not in (RUN, APPLY_ONLY):
            raise _invalid(f"{DriverVariable.MODE} is {mode!r}", f"use {RUN} or {APPLY_ONLY}")
        return cls(
            checkpoint=env.get(DriverVariable.CHECKPOINT, ""),
            epochs=_epochs(_json_object(env, DriverVariable.EPOCHS)),
            mode=mode,
            restore_from=env.get(DriverVariable.RESTORE_FROM, ""),
            master=env.get(DriverVariable.MASTER, ""),
            spark_conf={
                key: _spark_text(key, value)
                for key, value in _json_object(env, DriverVariable.SPARK_CONF).items()
            },
            dead_letter_topic=env.get(DriverVariable.DEAD_LETTER_TOPIC, ""),
            job=env.get(DriverVariable.JOB, ""),
            attempt=env.get(DriverVariable.ATTEMPT, ""),
            newest_checkpoint=_whole_number(env, DriverVariable.NEWEST_CHECKPOINT),
            progress_interval_s=_whole_number(env, DriverVariable.PROGRESS_INTERVAL),
            pod_cpu_millis=_whole_number(env, DriverVariable.POD_CPU),
            pod_memory_mib=_whole_number(env, DriverVariable.POD_MEMORY),
            restarts=_whole_number(env, DriverVariable.RESTARTS)
            if env.get(DriverVariable.RESTARTS)
            else None,
        )

    @property
    def apply_only(self) -> bool:
        """Whether the driver only applies decided epochs and starts no query."""
        return self.mode == APPLY_ONLY

    def override(self, checkpoint: str, settings: S) -> tuple[str, S]:
        """Return a job's checkpoint and settings with those of the environment in their place.

        Logs in one line what it changes.

        Raises:
            SettingsInvalid: the resulting settings are invalid.
        """
        address = self.checkpoint or checkpoint
        changed: dict[str, Any] = {
            name: value for name, value in self.epochs.items() if getattr(settings, name) != value
        }
        logged = {**({"checkpoint": address} if address != checkpoint else {}), **changed}
        if logged:
            log.info(
                "overridden by the environment: %s",
                ", ".join(f"{name}={value}" for name, value in logged.items()),
            )
        return address, dataclasses.replace(settings, **changed) if changed else settings


def _epochs(values: Mapping[str, object]) -> dict[str, object]:
    settings = SETTINGS.parse(EpochSettings, values, DriverVariable.EPOCHS)
    names = [name.replace("-", "_") for name in values]
    return {name: getattr(settings, name) for name in names}


def _json_object(env: Mapping[str, str], variable: DriverVariable) -> Mapping[str, object]:
    """Return the JSON object in a variable; an empty one if it is not set."""
    try:
        value = json.loads(env.get(variable) or "{}")
    except ValueError as error:
        raise _invalid(f"{variable} is not valid JSON: {error}", "set a JSON object") from error
    if not isinstance(value, dict):
        raise _invalid(f"{variable} contains a {type(value).__name__}", "set a JSON object")
    return value


def _whole_number(env: Mapping[str, str], variable: DriverVariable) -> int:
    text = env.get(variable) or "0"
    if not text.isdecimal():
        raise _invalid(f"{variable} is {text!r}", "set a whole number")
    return int(text)


def _spark_text(key: str, value: object) -> str:
    """Return the value of a Spark setting as Spark writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _invalid(
        f"{DriverVariable.SPARK_CONF}: {key} is {value!r}", "use text, a number, true or false"
    )


def _invalid(what: str, do: str) -> SettingsInvalid:
    return SettingsInvalid(what, data=NOTHING_STARTED, do=do)
