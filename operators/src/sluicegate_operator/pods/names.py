"""Names and labels of pods, as the operator gives them.

Not here: what labels are called (`resources.marks`). Called by the other modules of `pods`.
"""

from __future__ import annotations

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.declaring import LEFT_ALONE
from sluicegate_operator.resources.kinds import LONGEST_NAME

DEFAULT_SERVICE_ACCOUNT = "sluicegate-driver"
"""Of operators/deploy/job. Not the namespace's own: it may not report progress, and a driver that
reports none is restarted as stuck, over and over, where a missing account is an error at once."""


def driver_name(job: str, attempt: int) -> str:
    """Return the name of a driver's pod."""
    return f"{job}-{attempt}-driver"


def executor_prefix(job: str, attempt: int) -> str:
    """Return what Spark puts in front of `-exec-N` in the names of an attempt's executors."""
    return f"{job}-{attempt}"


def labels(job: Job, action: CreateDriver, role: str) -> dict[str, str]:
    """Return the labels that the operator finds a pod by."""
    return {
        marks.JOB: job.name,
        marks.JOB_UID: job.uid,
        marks.ROLE: role,
        marks.ATTEMPT: str(action.attempt),
        marks.PURPOSE: action.purpose,
        marks.CHECKPOINT: str(action.checkpoint_number),
    }


def common_labels(job: Job, role: str) -> dict[str, str]:
    """Return the labels that dashboards look for; a template may change them."""
    return {
        "app.kubernetes.io/name": "sluicegate-job",
        "app.kubernetes.io/instance": job.name,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "sluicegate-operator",
    }


def refused_name(job: str) -> SettingsInvalid | None:
    """Return why a job cannot have its name, which the API server has refused too, or None."""
    if len(job) <= LONGEST_NAME:
        return None
    return SettingsInvalid(
        f"StreamingJob {job}: its name has {len(job)} characters; it is in labels and names of pods, "
        f"and may have {LONGEST_NAME}",
        data=LEFT_ALONE,
        do="make it again under a shorter name, restored from a savepoint of this one",
    )
