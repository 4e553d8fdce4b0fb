"""Names, labels, annotations and finalizers by which the operator knows what is its own.

Not here: who sets them (`driver`, `executors`) and who reads them (`cluster`).
"""

from __future__ import annotations

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources.declaring import GROUP, LEFT_ALONE
from sluicegate_operator.resources.kinds import LONGEST_NAME

JOB = f"{GROUP}/job"
JOB_UID = f"{GROUP}/job-uid"
ROLE = f"{GROUP}/role"
ATTEMPT = f"{GROUP}/attempt"
PURPOSE = f"{GROUP}/purpose"
CHECKPOINT = f"{GROUP}/checkpoint"
"""Labels: a job's name and uid, what a pod is for, which attempt and checkpoint."""

SPEC_HASH = f"{GROUP}/spec-hash"
RESTORE_FROM = f"{GROUP}/restore-from"
PROGRESS = f"{GROUP}/progress"
EXECUTOR_TEMPLATE = f"{GROUP}/executor-template"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotations."""

DRIVER, EXECUTOR = "driver", "executor"
"""Roles, and the names of the containers."""

DRIVER_FINALIZER = f"{GROUP}/driver"
"""Holds a driver's pod until its end is in the job's status."""

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
        JOB: job.name,
        JOB_UID: job.uid,
        ROLE: role,
        ATTEMPT: str(action.attempt),
        PURPOSE: action.purpose,
        CHECKPOINT: str(action.checkpoint_number),
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
