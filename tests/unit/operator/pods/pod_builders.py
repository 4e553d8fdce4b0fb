"""Builders of drivers' pods, and access to their parts."""

from __future__ import annotations

import json
from typing import Any

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import checkpoint_address
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import ExecutorSettings, PodSettings
from sluicegate_operator.pods.driver import driver_pod
from sluicegate_operator.pods.environment import CheckpointLocation
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from tests.unit.operator.builders import job, spec

ALONE = ExecutorSettings(instances=0)
VOLUME = CheckpointVolumeSpec(
    bucket="streams", prefix="team", endpoint="http://s3:7070", credentials_secret="keys"
)


def action(**changes: Any) -> CreateDriver:
    """Return the action that creates attempt 3 on checkpoint 2."""
    given = {
        "attempt": 3,
        "mode": "Run",
        "spec_hash": "abc",
        "checkpoint_number": 2,
        "restore_from": "",
        "spec": spec(),
    }
    return CreateDriver(**{**given, **changes})


def templated(template: dict[str, Any]) -> StreamingJobSpec:
    """Return a spec whose driver has a template and no executors."""
    return spec(driver=PodSettings(template=template), executor=ALONE)


def pod_of(
    job_spec: StreamingJobSpec,
    volume: CheckpointVolumeSpec = VOLUME,
    restore_from: str = "",
    **changes: Any,
) -> dict[str, Any]:
    """Return the driver's pod of the job shop/clicks."""
    a_job: Job = job(job_spec)
    act = action(spec=job_spec, **changes)
    checkpoint = checkpoint_address(volume, a_job.name, job_spec, act.checkpoint_number)
    return driver_pod(a_job, act, CheckpointLocation(checkpoint, volume, restore_from))


def container_of(pod: dict[str, Any], name: str = "driver") -> dict[str, Any]:
    """Return the only container of a name."""
    (found,) = (c for c in pod["spec"]["containers"] if c["name"] == name)
    assert isinstance(found, dict)
    return found


def env_of(pod: dict[str, Any], name: str = "driver") -> dict[str, Any]:
    """Return the variables by name: their text or their source."""
    return {
        one["name"]: one["value"] if "value" in one else one.get("valueFrom", "")
        for one in container_of(pod, name).get("env", ())
    }


def conf_of(pod: dict[str, Any]) -> dict[str, str]:
    """Return the Spark settings that the driver receives."""
    found = json.loads(env_of(pod)["SLUICEGATE_SPARK_CONF"])
    assert isinstance(found, dict)
    return found
