"""What settings the last drivers of a checkpoint started with, `starts/…`: for people.

It is information only, like the report of an epoch: no decision reads it. A store that does not answer
soon costs the record, not the start. Nothing that may be a secret is recorded: of a job's own settings
only numbers, flags and choices, of Spark's only those of `_SPARK_PREFIXES`, and of both no value whose
name or content looks like one.
"""

from __future__ import annotations

import dataclasses
import logging
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from sluicegate.deployment.environment import DriverEnvironment
from sluicegate.errors import SluicegateError
from sluicegate.protocol.record import SinkBinding
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.schema import choices_of, key_of
from sluicegate.storage.driver_failure import RETRY_S, put_newest
from sluicegate.storage.epoch_report import finite, read_parsed
from sluicegate.storage.object_store import ObjectStore, open_store

log = logging.getLogger("sluicegate.starts")

FOLDER = "starts/"
HIDDEN = "(hidden)"
"""What is recorded in the place of a value that may be a secret."""

SPARK_VERSION = "spark.version"
"""The name under which the version of Spark is recorded, among its settings."""

JOB = "kubernetes.job"
"""The name under which namespace/name of the StreamingJob is recorded. A writer of the checkpoint can
record any name, so it says which resource to read, and never who may change it."""
DRIVER_CPU, DRIVER_MEMORY = "kubernetes.driver.cpu", "kubernetes.driver.memory"
"""The names of the requests of the driver's container, such as 1500m and 1434Mi."""

EXECUTORS = "spark.executor.instances"
"""The name of how many executors a driver requests."""

_SPARK_PREFIXES = (
    "spark.cores.max",
    "spark.default.parallelism",
    "spark.driver.cores",
    "spark.driver.memory",
    "spark.dynamicAllocation.",
    "spark.executor.cores",
    EXECUTORS,
    "spark.executor.memory",
    "spark.executor.pyspark.memory",
    "spark.kubernetes.executor.container.image",
    "spark.kubernetes.executor.limit.",
    "spark.kubernetes.executor.request.",
    "spark.master",
    "spark.memory.",
    "spark.shuffle.",
    "spark.sql.adaptive.",
    "spark.sql.execution.",
    "spark.sql.shuffle.",
    "spark.sql.streaming.",
    "spark.task.",
    SPARK_VERSION,
)
"""Spark's settings that are recorded; those of catalogs, of Hadoop and of the environment are not."""

DEAD_LETTERS, NO_SINK = "dead-letters", "none"
"""The setting that names the sink of dead letters, and its value if the job has none."""

SECRET_WORDS = r"pass(?:word|wd|phrase)?|secret|token|credential|auth(?!ors?\b)|(?:access|api|private)[-_.]?key"  # noqa: S105 - words
"""A regular expression of what names a secret."""

_SECRET_NAME = re.compile(rf"{SECRET_WORDS}|key$", re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"(?:{SECRET_WORDS})\w*\s*[=:]|://.*@", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class DriverStart:
    """A driver that started its query.

    Args:
        started_at_ms: when, in ms since 1970.
        settings: what it runs with, by name, without secrets.
        seconds: how long each part of its start took, by name; empty if its version did not say it.
    """

    started_at_ms: int
    settings: Mapping[str, str]
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def now(cls, settings: Mapping[str, str], seconds: Mapping[str, float]) -> DriverStart:
        """Return the start of a driver whose query has just started."""
        rounded = {part: round(took_s, 3) for part, took_s in seconds.items()}
        return cls(time.time_ns() // 1_000_000, settings, rounded)


def effective_settings(
    settings: EpochSettings,
    sinks: Mapping[str, SinkBinding],
    dead_letters: str | None,
    output_mode: str,
    spark: Mapping[str, str],
) -> dict[str, str]:
    """Return what a driver runs with, by name, without secrets.

    Args:
        settings: of the job, after the environment has overridden them.
        sinks: by id.
        dead_letters: the id of the sink of dead letters, None if the job has none.
        output_mode: as Spark's.
        spark: all settings of the Spark session, and SPARK_VERSION.
    """
    found = {
        "version.sluicegate": version("sluicegate"),
        "version.python": platform.python_version(),
        "output-mode": output_mode,
    }
    found[DEAD_LETTERS] = dead_letters or NO_SINK
    own = {field.name for field in dataclasses.fields(EpochSettings)}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        # a text that a job declares itself may be a password or the address of a server with one
        if field.name in own or isinstance(value, bool | int | float) or choices_of(field):
            found[key_of(field.name)] = _text(value)
    for id_, binding in sinks.items():
        found[f"sink.{id_}"] = f"{binding.target}, parts: {binding.parts}"
    found |= {key: text for key, text in spark.items() if key.startswith(_SPARK_PREFIXES)}
    return {name: _without_secrets(name, text) for name, text in sorted(found.items())}


def deployment_settings(environment: DriverEnvironment) -> dict[str, str]:
    """Return what a driver's environment says about its resource and its pod, by name."""
    cpu, memory = environment.pod_cpu_millis, environment.pod_memory_mib
    return {
        **({JOB: environment.job} if environment.job else {}),
        **({DRIVER_CPU: f"{cpu}m"} if cpu else {}),
        **({DRIVER_MEMORY: f"{memory}Mi"} if memory else {}),
    }


def write_start(address: str, start: DriverStart) -> None:
    """Write a start into the checkpoint at an address, and delete those that are too old.

    A failure to write is logged and changes nothing.
    """
    try:
        checkpoint = open_store(address, retry_timeout_s=RETRY_S)
        put_newest(checkpoint, FOLDER, start.started_at_ms, asdict(start))
    except SluicegateError as error:
        log.warning("the settings of this driver were not recorded for the console: %s", error.what)


def read_start(checkpoint: ObjectStore, name: str) -> DriverStart | None:
    """Return the start in an object of FOLDER, None if it was deleted meanwhile.

    Raises:
        ValueError: the object is damaged, or has the format of another version.
        StoreUnavailable: the store did not answer.
    """
    return read_parsed(checkpoint, name, _parsed)


def _parsed(fields: Mapping[str, Any]) -> DriverStart:
    settings = {str(key): str(value) for key, value in fields["settings"].items()}
    seconds = {str(part): finite(took_s) for part, took_s in fields.get("seconds", {}).items()}
    return DriverStart(int(fields["started_at_ms"]), settings, seconds)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_secrets(name: str, text: str) -> str:
    return HIDDEN if _SECRET_NAME.search(name) or _SECRET_VALUE.search(text) else text
