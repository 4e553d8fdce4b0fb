"""Environment variables of the driver's and the executors' containers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.deployment.environment import APPLY_ONLY as APPLY_ONLY_MODE
from sluicegate.deployment.environment import (
    EVENT_LOG,
    EVENT_LOG_FOLDER,
    EVENT_LOGS,
    DriverVariable,
)
from sluicegate.deployment.environment import RUN as RUN_MODE
from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.labels import DRIVER
from sluicegate_operator.api.locations import environment, volume_address
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY
from sluicegate_operator.pods.security import authority_variables
from sluicegate_operator.pods.spark_conf import (
    IN_CLUSTER_MASTER,
    SCRATCH_FOLDER,
    distributed_conf,
    heap_mib,
    local_conf,
)
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job


@dataclass(frozen=True)
class CheckpointLocation:
    """Where a driver works: the address of a checkpoint, and its volume."""

    checkpoint: str
    volume: CheckpointVolumeSpec
    restore_from: str = ""
    """Address of the savepoint that the checkpoint starts from, on the same store; empty: none."""


TERMINATION_FILE = "/dev/termination-log"
"""Kubernetes' default: the end of this file becomes the container's termination message."""

Variable = dict[str, Any]

_POD_FIELDS = {
    DriverVariable.POD_NAME: "metadata.name",
    DriverVariable.POD_NAMESPACE: "metadata.namespace",
    DriverVariable.POD_UID: "metadata.uid",
    DriverVariable.POD_IP: "status.podIP",
}

_PROGRESS_INTERVAL_S = 60
"""Longest interval of progress reports: each costs a request of the driver and one of the operator."""

_REQUESTS = {
    DriverVariable.POD_CPU: {"resource": "requests.cpu", "divisor": "1m"},
    DriverVariable.POD_MEMORY: {"resource": "requests.memory", "divisor": "1Mi"},
}
"""From the pod itself, because a template may change them."""


def is_distributed(spec: StreamingJobSpec, mode: str) -> bool:
    """Return whether a driver has executors.

    An apply-only driver has none. Everything staged is in the store, so its own threads can apply it, and a
    problem that prevents executors from starting cannot prevent a job from ending.
    """
    return spec.executor.instances > 0 and mode != APPLY_ONLY


def progress_interval_s(spec: StreamingJobSpec) -> int:
    """Return the interval at which a driver reports progress: four reports must fit in the deadline."""
    deadline_s = spec.progress_deadline_s or math.inf
    return int(max(1, min(_PROGRESS_INTERVAL_S, deadline_s / 4)))


def driver_variables(
    job: Job, action: CreateDriver, location: CheckpointLocation
) -> list[Variable]:
    """Return the variables that a template cannot change, in an order that allows references."""
    spec = job.spec
    newest = max(job.status.latest_checkpoint_number, action.checkpoint_number)
    restore_from = location.restore_from if action.mode != APPLY_ONLY else ""
    given: dict[str, str] = {
        DriverVariable.JOB: f"{job.namespace}/{job.name}",
        DriverVariable.ATTEMPT: str(action.attempt),
        DriverVariable.MODE: APPLY_ONLY_MODE if action.mode == APPLY_ONLY else RUN_MODE,
        DriverVariable.STANDBY: "true" if action.standby else "",
        DriverVariable.CHECKPOINT: location.checkpoint,
        DriverVariable.NEWEST_CHECKPOINT: str(newest),
        DriverVariable.RESTORE_FROM: restore_from,
        DriverVariable.EPOCHS: json.dumps(_not_default(spec.epoch_settings()), sort_keys=True),
        DriverVariable.PROGRESS_INTERVAL: str(progress_interval_s(spec)),
        DriverVariable.DRIVER_MEMORY: f"{heap_mib(spec.driver)}m",
        DriverVariable.DEAD_LETTER_TOPIC: spec.dead_letter_topic,
        DriverVariable.TERMINATION_FILE: TERMINATION_FILE,
    }
    pod_fields = [
        {"name": str(name), "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _POD_FIELDS.items()
    ]
    requests = [
        {"name": str(name), "valueFrom": {"resourceFieldRef": {"containerName": DRIVER, **field}}}
        for name, field in _REQUESTS.items()
    ]
    return [
        *pod_fields,
        *requests,
        *_constants(given),
        *_spark_variables(job, action, location),
        *shared_variables(spec, location),
    ]


def shared_variables(spec: StreamingJobSpec, location: CheckpointLocation) -> list[Variable]:
    """Return the variables that executors need too: they write to the store and to its traces."""
    given = environment(location.volume)
    if spec.tracing:
        given["OTEL_EXPORTER_OTLP_ENDPOINT"] = spec.tracing.endpoint
    secret = location.volume.credentials_secret
    keys = {"AWS_ACCESS_KEY_ID": "accessKeyId", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
    references = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, key in keys.items()
    ]
    return [*_constants(given), *(references if secret else ())]


def default_variables(location: CheckpointLocation) -> list[Variable]:
    """Return the variables that a template may change."""
    return [
        *authority_variables(location.volume),
        {"name": "SPARK_LOCAL_DIRS", "value": SCRATCH_FOLDER},
        # otherwise a killed driver loses its last log lines
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]


def _constants(given: Mapping[str, str]) -> list[Variable]:
    """Return the variables that have a value."""
    return [{"name": str(name), "value": literal(value)} for name, value in given.items() if value]


def literal(text: str) -> str:
    """Escape a text that Kubernetes must pass on unchanged: `$` starts a reference."""
    return text.replace("$", "$$")


def _spark_variables(
    job: Job, action: CreateDriver, location: CheckpointLocation
) -> list[Variable]:
    spec = job.spec
    distributed = is_distributed(spec, action.mode)
    master = IN_CLUSTER_MASTER if distributed else f"local[{spec.driver.cores}]"
    settings = distributed_conf(job, action.attempt) if distributed else local_conf(spec)
    if spec.spark_conf.get(EVENT_LOG, "").lower() == "true":
        settings.setdefault(EVENT_LOG_FOLDER, f"{volume_address(location.volume)}/{EVENT_LOGS}")
    conf = {literal(key): literal(value) for key, value in settings.items()}
    if distributed:
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = f"$({DriverVariable.POD_IP})"
    return [
        {"name": str(DriverVariable.MASTER), "value": master},
        {"name": str(DriverVariable.SPARK_CONF), "value": json.dumps(conf, sort_keys=True)},
    ]


def _not_default(settings: EpochSettings) -> dict[str, Any]:
    default = dataclasses.asdict(EpochSettings())
    given = dataclasses.asdict(settings)
    return {name: value for name, value in given.items() if value != default[name]}
