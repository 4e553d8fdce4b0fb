"""Names and labels of the pods that the operator creates, for driver, executors and Spark's settings."""

from __future__ import annotations

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api import labels as api_labels
from sluicegate_operator.api.crds import MAX_NAME_LENGTH
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.paths import is_reserved
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job

DEFAULT_SERVICE_ACCOUNT = "sluicegate-driver"
"""Created by the job chart. The namespace's own default account may not report progress, and a driver that
reports none would be restarted as stuck again and again. A missing account is an error at once."""


def driver_name(job: str, attempt: int) -> str:
    """Return the name of a driver's pod."""
    return f"{job}-{attempt}-driver"


def executor_prefix(job: str, attempt: int) -> str:
    """Return the prefix of an attempt's executors, to which Spark adds `-exec-N`."""
    return f"{job}-{attempt}"


def labels(job: Job, action: CreateDriver, role: str) -> dict[str, str]:
    """Return the labels by which the operator finds a pod."""
    standby = {api_labels.STANDBY: "true"} if action.standby else {}
    return {
        **standby,
        api_labels.JOB: job.name,
        api_labels.JOB_UID: job.uid,
        api_labels.ROLE: role,
        api_labels.ATTEMPT: str(action.attempt),
        api_labels.MODE: action.mode,
        api_labels.CHECKPOINT: str(action.checkpoint_number),
    }


def common_labels(job: Job, role: str) -> dict[str, str]:
    """Return the labels that dashboards use; a template may change them."""
    return {
        "app.kubernetes.io/name": "sluicegate-job",
        "app.kubernetes.io/instance": job.name,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "sluicegate-operator",
    }


def validate_name(job: str, path: str) -> SettingsInvalid | None:
    """Return why a job cannot have its name, or None. The API server enforces the same rules.

    `path` is spec.checkpoint.path; without one the name is the job's folder on its volume.
    """
    if len(job) > MAX_NAME_LENGTH:
        return SettingsInvalid(
            f"the name of StreamingJob {job} has {len(job)} characters; it is part of labels and pod "
            f"names and may have at most {MAX_NAME_LENGTH}",
            data=SPEC_REJECTED,
            do="create a job with a shorter name, restored from a savepoint of this one",
        )
    if not path and is_reserved(job):
        return SettingsInvalid(
            f"the operator uses the folder {job} on each volume, so it cannot be the job's",
            data=SPEC_REJECTED,
            do="set checkpoint.path, or create the job with another name",
        )
    return None
