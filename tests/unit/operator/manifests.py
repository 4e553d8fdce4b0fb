"""Pods for the tests of `pods`. Called by them only."""

from __future__ import annotations

import json
from typing import Any

from sluicegate_operator.pods.driver import driver_pod
from sluicegate_operator.pods.place import Place
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources.addresses import checkpoint_address
from sluicegate_operator.resources.job import ExecutorSettings, PodSettings, StreamingJobSpec
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

from .made import job, spec

ALONE = ExecutorSettings(instances=0)
VOLUME = CheckpointVolumeSpec(
    bucket="streams", prefix="team", endpoint="http://s3:7070", credentials_secret="keys"
)


def action(**changes: Any) -> CreateDriver:
    """Return the creation of attempt 3 on checkpoint 2."""
    given = {
        "attempt": 3,
        "purpose": "run",
        "spec_hash": "abc",
        "checkpoint_number": 2,
        "restore_from": "",
        "spec": spec(),
    }
    return CreateDriver(**{**given, **changes})


def templated(template: dict[str, Any]) -> StreamingJobSpec:
    """Return a spec whose driver, which works alone, has a template."""
    return spec(driver=PodSettings(template=template), executor=ALONE)


def pod_of(
    wanted: StreamingJobSpec,
    volume: CheckpointVolumeSpec = VOLUME,
    restore_from: str = "",
    **changes: Any,
) -> dict[str, Any]:
    """Return the driver's pod of the job shop/clicks."""
    a_job: Job = job(wanted)
    act = action(spec=wanted, **changes)
    checkpoint = checkpoint_address(volume, a_job.name, wanted, act.checkpoint_number)
    return driver_pod(a_job, act, Place(checkpoint, volume, restore_from))


def container_of(pod: dict[str, Any], name: str = "driver") -> dict[str, Any]:
    """Return a container, of which there must be one."""
    (found,) = (c for c in pod["spec"]["containers"] if c["name"] == name)
    assert isinstance(found, dict)
    return found


def env_of(pod: dict[str, Any], name: str = "driver") -> dict[str, Any]:
    """Return variables by name: their text, or where they are from."""
    return {
        one["name"]: one["value"] if "value" in one else one.get("valueFrom", "")
        for one in container_of(pod, name).get("env", ())
    }


def conf_of(pod: dict[str, Any]) -> dict[str, str]:
    """Return the settings that Spark gets."""
    found = json.loads(env_of(pod)["SLUICEGATE_SPARK_CONF"])
    assert isinstance(found, dict)
    return found
