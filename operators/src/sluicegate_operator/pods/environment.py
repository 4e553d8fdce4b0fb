"""Variables of the containers: what a driver and its executors are told.

Not here: what a driver does with them (`sluicegate.pod`). Called by `driver` and `executors`.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.pods.authority import authority_variables
from sluicegate_operator.pods.conf import IN_CLUSTER_MASTER, WORK, distributed_conf, local_conf
from sluicegate_operator.pods.memory import heap_mib
from sluicegate_operator.pods.place import Place
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources.addresses import environment
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import FINISH

OUTCOME_FILE = "/dev/termination-log"
"""Kubernetes' own default: the end of this file becomes the container's termination message."""

Variable = dict[str, Any]

_OF_THE_POD = {
    "SLUICEGATE_POD_NAME": "metadata.name",
    "SLUICEGATE_POD_NAMESPACE": "metadata.namespace",
    "SLUICEGATE_POD_UID": "metadata.uid",
    "SLUICEGATE_POD_IP": "status.podIP",
}


def is_distributed(spec: StreamingJobSpec, purpose: str) -> bool:
    """Say whether a driver has executors.

    One that only finishes has none: what is staged is in the store, so its own threads can apply
    it, and what keeps executors from starting does not keep a job from ending.
    """
    return spec.executor.instances > 0 and purpose != FINISH


def driver_variables(job: Job, action: CreateDriver, place: Place) -> list[Variable]:
    """Return the variables that are the operator's, those that others refer to first."""
    spec = job.spec
    newest = max(job.status.newest_checkpoint, action.checkpoint_number)
    restore_from = place.restore_from if action.purpose != FINISH else ""
    given = {
        "SLUICEGATE_JOB": f"{job.namespace}/{job.name}",
        "SLUICEGATE_ATTEMPT": str(action.attempt),
        "SLUICEGATE_PURPOSE": action.purpose,
        "SLUICEGATE_CHECKPOINT": place.checkpoint,
        "SLUICEGATE_NEWEST_CHECKPOINT": str(newest),
        "SLUICEGATE_RESTORE_FROM": restore_from,
        "SLUICEGATE_EPOCHS": json.dumps(_not_default(spec.epoch_settings()), sort_keys=True),
        "SLUICEGATE_DRIVER_MEMORY": f"{heap_mib(spec.driver)}m",
        "SLUICEGATE_DEAD_LETTER_TOPIC": spec.dead_letter_topic,
        "SLUICEGATE_OUTCOME": OUTCOME_FILE,
    }
    return [
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _OF_THE_POD.items()
        ),
        *({"name": name, "value": literal(value)} for name, value in given.items() if value),
        *_spark(job, action),
        *shared_variables(spec, place),
    ]


def shared_variables(spec: StreamingJobSpec, place: Place) -> list[Variable]:
    """Return what executors are told too: they stage to the store, and are in its traces."""
    given = environment(place.volume)
    if spec.tracing:
        given["OTEL_EXPORTER_OTLP_ENDPOINT"] = spec.tracing.endpoint
    secret = place.volume.credentials_secret
    keys = {"AWS_ACCESS_KEY_ID": "accessKeyId", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
    return [
        *({"name": name, "value": literal(value)} for name, value in given.items() if value),
        *(
            {
                "name": name,
                "valueFrom": {"secretKeyRef": {"name": secret, "key": key}},
            }
            for name, key in keys.items()
            if secret
        ),
    ]


def default_variables(place: Place) -> list[Variable]:
    """Return variables where a template has the last word."""
    return [
        *authority_variables(place.volume),
        {"name": "SPARK_LOCAL_DIRS", "value": WORK},
        {"name": "PYTHONUNBUFFERED", "value": "1"},  # or a killed driver's last words are lost
    ]


def literal(text: str) -> str:
    """Return a text that Kubernetes gives to the container as it is: `$` begins a reference."""
    return text.replace("$", "$$")


def _spark(job: Job, action: CreateDriver) -> list[Variable]:
    spec = job.spec
    if is_distributed(spec, action.purpose):
        master = IN_CLUSTER_MASTER
        conf = _literals(distributed_conf(job, action.attempt))
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "$(SLUICEGATE_POD_IP)"
    else:
        master = f"local[{spec.driver.cores}]"
        conf = _literals(local_conf(spec))
    return [
        {"name": "SLUICEGATE_MASTER", "value": master},
        {"name": "SLUICEGATE_SPARK_CONF", "value": json.dumps(conf, sort_keys=True)},
    ]


def _literals(conf: dict[str, str]) -> dict[str, str]:
    return {literal(key): literal(value) for key, value in conf.items()}


def _not_default(settings: EpochSettings) -> dict[str, Any]:
    default = EpochSettings()
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if getattr(settings, field.name) != getattr(default, field.name)
    }
