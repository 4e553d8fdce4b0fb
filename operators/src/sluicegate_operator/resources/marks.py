"""Labels, annotations and finalizers by which the operator knows what is its own, and is told things.

Not here: who sets them (`pods`, `volumes.upgrade`) and who reads them (`cluster`, `service`).
"""

from __future__ import annotations

from sluicegate_operator.resources.declaring import GROUP

JOB = f"{GROUP}/job"
JOB_UID = f"{GROUP}/job-uid"
ROLE = f"{GROUP}/role"
ATTEMPT = f"{GROUP}/attempt"
PURPOSE = f"{GROUP}/purpose"
CHECKPOINT = f"{GROUP}/checkpoint"
"""Labels of a pod: a job's name and uid, what the pod is for, which attempt and checkpoint. An upgrade's
Savepoint has JOB as a label, and JOB_UID and ATTEMPT as annotations."""

DRIVER, EXECUTOR = "driver", "executor"
"""Roles, and the names of the containers."""

SPEC_HASH = f"{GROUP}/spec-hash"
RESTORE_FROM = f"{GROUP}/restore-from"
PROGRESS = f"{GROUP}/progress"
EXECUTOR_TEMPLATE = f"{GROUP}/executor-template"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotations of a driver's pod."""

SKIP_FINISH = f"{GROUP}/skip-finish"
FORCE_DISPOSE = f"{GROUP}/force-dispose"
"""Annotations by which a person gives something up: of a StreamingJob, and of a Savepoint."""

JOB_FINALIZER = f"{GROUP}/job"
VOLUME_FINALIZER = f"{GROUP}/volume"
SAVEPOINT_FINALIZER = f"{GROUP}/savepoint"
"""Hold a resource while there is something to do before it may go."""

DRIVER_FINALIZER = f"{GROUP}/driver"
"""Holds a driver's pod until its end is in the job's status."""
