"""Helpers of tests with StreamingJobs: volumes, statuses and pods."""

from collections.abc import Callable
from typing import Any

from infra.local_services import S3Endpoint
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME
from tests.integration.operator.api import Api, eventually
from tests.integration.operator.container_script import Behavior
from tests.integration.operator.rest_client import Object

REPORTS = Behavior(progress_every_s=0.5)
"""A driver that runs and reports epochs."""

Status = Callable[[dict[str, Any]], object]


def make_volume(api: Api, namespace: str, bucket: S3Endpoint, endpoint: str = "") -> str:
    """Create a CheckpointVolume for the namespace, and its Secret; return its name."""
    keys = {"accessKeyId": bucket.access_key, "secretAccessKey": bucket.secret_key}
    api.create_core(namespace, "secrets", {"metadata": {"name": "keys"}, "stringData": keys})
    spec = {
        "endpoint": endpoint or bucket.endpoint,
        "bucket": bucket.bucket,
        "prefix": bucket.prefix(namespace),
        "credentialsSecret": "keys",
    }
    api.create(namespace, "store", spec, CHECKPOINT_VOLUME)
    return "store"


def volume_ready(api: Api, namespace: str) -> bool:
    """Return whether the namespace's volume is ready."""
    resource = api.get(namespace, "store", CHECKPOINT_VOLUME)
    return bool(resource.get("status", {}).get("phase") == "Ready")


def job_when(
    api: Api, namespace: str, matches: Status, name: str = "clicks", *, within_s: float = 60.0
) -> Object:
    """Wait until a job's status matches; return the job."""

    def poll() -> Object | None:
        job = api.get(namespace, name)
        return job if matches(job.get("status", {})) else None

    return eventually(poll, within_s=within_s)


def phase(expected: str) -> Status:
    """Return a predicate: the status has a phase."""
    return lambda status: status.get("phase") == expected


def running(attempt: int) -> Status:
    """Return a predicate: an attempt is running."""
    return lambda status: status.get("attempt") == attempt and status.get("phase") == "Running"


def image_of(api: Api, namespace: str, attempt: int) -> str:
    """Return the image of an attempt's driver."""
    pod = api.get_pod(namespace, f"clicks-{attempt}-driver")
    assert pod is not None
    return str(pod["spec"]["containers"][0]["image"])


def drivers_alive(api: Api, namespace: str) -> list[str]:
    """Return the names of drivers' pods that have not ended."""
    pods = api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def condition(resource: Object, kind: str) -> tuple[str, str]:
    """Return the status and reason of a resource's condition; empty if there is none."""
    conditions = resource.get("status", {}).get("conditions", ())
    match: Object = next((c for c in conditions if c["type"] == kind), {})
    return match.get("status", ""), match.get("reason", "")
