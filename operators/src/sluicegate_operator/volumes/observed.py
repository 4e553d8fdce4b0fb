"""What is seen of a CheckpointVolume and of a Savepoint: the resources, and what bears on them.

Not here: how it is read. Called by `volumes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus
from sluicegate_operator.resources.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.resources.volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.volumes.tasks import Task, TaskState


@dataclass(frozen=True)
class Volume:
    """A CheckpointVolume.

    Args:
        deleted_at: when somebody deleted it (metadata.deletionTimestamp); it stays while it is held.
        held: it has the finalizer `sluicegate.dev/volume`.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    spec: CheckpointVolumeSpec
    status: CheckpointVolumeStatus
    deleted_at: float | None = None
    held: bool = False


@dataclass(frozen=True)
class VolumeObserved:
    """A view of what bears on a volume.

    Args:
        as_of: the newest time of which the view of jobs and savepoints is known to be complete.
        secret_version: metadata.resourceVersion of the Secrets that it names, as one text.
        secret_problem: why the keys cannot be read, such as 'there is no Secret keys'; empty: they can.
        jobs: names of the StreamingJobs whose spec.checkpoint.volume it is.
        savepoints: names of the Savepoints that are on it: whose status.volume it is, or, where that
            is empty, spec.volume or the job's.
        named: addresses that Savepoints name: `reading.named` of each, and of those that jobs
            are to be restored from.
        busy: folders in which a Savepoint may be being taken: `reading.busy` of each.
        tasks: how far this volume's own tasks are.
    """

    as_of: float
    secret_version: str = ""
    secret_problem: str = ""
    jobs: tuple[str, ...] = ()
    savepoints: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    tasks: Mapping[Task, TaskState] = field(default_factory=dict)


@dataclass(frozen=True)
class Savepoint:
    """A Savepoint.

    Args:
        created_at: of its metadata.
        deleted: somebody has deleted it; it stays while it is held.
        held: it has the finalizer `sluicegate.dev/savepoint`.
        attempt: of the annotation `sluicegate.dev/attempt`: made by an upgrade, it may stop this
            driver and no other; None: made by a person.
        job_uid: of the annotation `sluicegate.dev/job-uid`: it is for the job of this uid and no
            later one of its name; empty: for any.
        force: it is annotated `sluicegate.dev/force-dispose: "true"`: it may be removed although
            it holds the only way on of a sealed job.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_at: float
    spec: SavepointSpec
    status: SavepointStatus
    deleted: bool = False
    held: bool = False
    attempt: int | None = None
    job_uid: str = ""
    force: bool = False


@dataclass(frozen=True)
class JobView:
    """The StreamingJob that a Savepoint is of; `deleted`: it is on its way out."""

    name: str
    uid: str
    spec: StreamingJobSpec
    status: StreamingJobStatus
    deleted: bool = False


@dataclass(frozen=True)
class VolumeView:
    """A CheckpointVolume, and what `reading.readiness` says of it."""

    name: str
    spec: CheckpointVolumeSpec
    ready: bool
    message: str = ""


@dataclass(frozen=True)
class SavepointObserved:
    """A view of what bears on a Savepoint.

    Args:
        job: None if there is none.
        volumes: the CheckpointVolumes by name: at least those of the Savepoint's status and spec,
            and the job's.
        needed_by: names of the jobs whose checkpoint is still to be restored from it: by
            spec.checkpoint.restoreFrom or status.restoredFrom, and no epoch was reported since.
        tasks: how far this Savepoint's own tasks are.
    """

    job: JobView | None = None
    volumes: Mapping[str, VolumeView] = field(default_factory=dict)
    needed_by: tuple[str, ...] = ()
    tasks: Mapping[Task, TaskState] = field(default_factory=dict)
