"""Labels, annotations and finalizers of the operator, for all packages above `kube`."""

from __future__ import annotations

from sluicegate.deployment.environment import (
    EXECUTORS_ANNOTATION,
    PROGRESS_ANNOTATION,
    PROMOTED_ANNOTATION,
    STANDBY_READY_ANNOTATION,
)
from sluicegate_operator.api.fields import GROUP

PREFIX = f"{GROUP}/"
"""Prefix of all names that belong to the operator."""

JOB = f"{GROUP}/job"
JOB_UID = f"{GROUP}/job-uid"
ROLE = f"{GROUP}/role"
ATTEMPT = f"{GROUP}/attempt"
MODE = f"{GROUP}/mode"
CHECKPOINT = f"{GROUP}/checkpoint"
"""Labels of a pod: name and UID of its job, its role, attempt, driver mode and checkpoint number. The
Savepoint of an upgrade has JOB as a label, and JOB_UID and ATTEMPT as annotations."""

STANDBY = f"{GROUP}/standby"
"""Label of a driver's pod, with the value true: it is a standby, and has not been promoted."""

DRIVER, EXECUTOR = "driver", "executor"
"""Roles, and the names of the containers."""

DRIVER_ACCOUNT = f"{GROUP}/driver-account"
"""Label of a ServiceAccount, with the value true: jobs of its namespace may run as it."""

SPEC_HASH = f"{GROUP}/spec-hash"
RESTORE_FROM = f"{GROUP}/restore-from"
PROGRESS, EXECUTORS = PROGRESS_ANNOTATION, EXECUTORS_ANNOTATION
PROGRESS_INTERVAL = f"{GROUP}/progress-interval"
PROMOTED, STANDBY_READY = PROMOTED_ANNOTATION, STANDBY_READY_ANNOTATION
EXECUTOR_TEMPLATE = f"{GROUP}/executor-template"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotations of a driver's pod."""

SKIP_APPLY = f"{GROUP}/skip-apply"
FORCE_DISPOSE = f"{GROUP}/force-dispose"
"""Annotations by which a person accepts a loss: of decided epochs that cannot be applied
(StreamingJob), and of a savepoint's data that may still be in use (Savepoint)."""

PAUSED = f"{GROUP}/paused"
"""Annotation of any of the operator's resources, with the value true: nothing is done with it."""

JOB_FINALIZER = f"{GROUP}/job"
VOLUME_FINALIZER = f"{GROUP}/volume"
SAVEPOINT_FINALIZER = f"{GROUP}/savepoint"
"""Finalizers that keep a deleted resource until its cleanup is done."""

DRIVER_FINALIZER = f"{GROUP}/driver"
"""Finalizer that keeps a driver's pod until its end is recorded in the job's status."""
