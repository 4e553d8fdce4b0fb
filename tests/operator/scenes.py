"""What the tests of StreamingJobs share: a volume, and waiting for a status.

Not collected by itself. Called by the tests of this folder.
"""

from collections.abc import Callable
from typing import Any

from infra.embedded import S3Endpoint
from sluicegate_operator.resources.kinds import CHECKPOINT_VOLUME
from tests.operator.api import Api, eventually
from tests.operator.behaviours import Behaviour
from tests.operator.rest import Object

REPORTS = Behaviour(progress_every_s=0.5)
"""A driver that runs, and reports epochs."""

Status = Callable[[dict[str, Any]], object]


def make_volume(api: Api, namespace: str, bucket: S3Endpoint, endpoint: str = "") -> str:
    """Make a CheckpointVolume of the namespace's own, and its Secret; return its name."""
    keys = {"accessKeyId": bucket.access_key, "secretAccessKey": bucket.secret_key}
    api.make(namespace, "secrets", {"metadata": {"name": "keys"}, "stringData": keys})
    spec = {
        "endpoint": endpoint or bucket.endpoint,
        "bucket": bucket.url.removeprefix("s3://").partition("/")[0],
        "prefix": namespace,
        "credentialsSecret": "keys",
    }
    api.create(namespace, "store", spec, CHECKPOINT_VOLUME)
    return "store"


def volume_ready(api: Api, namespace: str) -> bool:
    """Return whether the namespace's own volume is ready."""
    found = api.get(namespace, "store", CHECKPOINT_VOLUME)
    return bool(found.get("status", {}).get("phase") == "Ready")


def job_when(
    api: Api, namespace: str, true: Status, name: str = "clicks", *, within_s: float = 60.0
) -> Object:
    """Wait until something is true of a job's status; return the job."""

    def look() -> Object | None:
        found = api.get(namespace, name)
        return found if true(found.get("status", {})) else None

    return eventually(look, within_s=within_s)


def phase(wanted: str) -> Status:
    """Return whether a status has a phase."""
    return lambda status: status.get("phase") == wanted


def running(attempt: int) -> Status:
    """Return whether an attempt runs."""
    return lambda status: status.get("attempt") == attempt and status.get("phase") == "Running"


def drivers_alive(api: Api, namespace: str) -> list[str]:
    """Return the names of drivers' pods that have not ended."""
    found = api.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [
        pod["metadata"]["name"]
        for pod in found
        if pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def condition(found: Object, kind: str) -> tuple[str, str]:
    """Return status and reason of a resource's condition; empty if it is not there."""
    conditions = found.get("status", {}).get("conditions", ())
    one: Object = next((c for c in conditions if c["type"] == kind), {})
    return one.get("status", ""), one.get("reason", "")
