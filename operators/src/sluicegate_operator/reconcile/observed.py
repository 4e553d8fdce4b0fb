"""What the reconcilers see of the cluster: resources, pods, nodes, and the results of storage tasks.

A cache may be old: `as_of` says how old, where a decision depends on it. All times are in seconds since
1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import RUN, StreamingJobStatus, VerdictStatus
from sluicegate_operator.reconcile.storage_tasks import Task, TaskState

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
"""Phases of a pod; the kubelet sets the last two only when every container has ended."""

READY = "Ready"

SECRET_UNREADABLE, NOT_PERMITTED = "SecretUnreadable", "NotPermitted"
OVERLAPS = "Overlaps"
"""Why a volume's store must not or cannot be accessed: its Secret is missing, the administrator has not
permitted it, or another volume has a part of the same data."""

Spec = TypeVar("Spec")
Status = TypeVar("Status")


@dataclass(frozen=True, slots=True)
class Node:
    """A pod's node.

    Args:
        unresponsive_since: when its kubelet last reported, if the node does not respond now.
        gone: its Node object was deleted.
        out_of_service: it has the taint `node.kubernetes.io/out-of-service`: a person or the cloud
            provider confirms that it is shut down.
    """

    unresponsive_since: float | None = None
    gone: bool = False
    out_of_service: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What a driver reports of itself.

    Args:
        at: when it last finished an epoch, or found no input.
        epoch: the last epoch that every sink has; None before the first.
        verdict: what bounds the job; None of a driver that does not report it.
        decided: it has decided an epoch itself. Otherwise the epoch is of a driver before it.
    """

    at: float
    epoch: int | None = None
    verdict: VerdictStatus | None = None
    decided: bool = True


@dataclass(frozen=True, slots=True)
class Executors:
    """What a driver reports of its executors: how many are connected, and how many it has requested."""

    running: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Pod:
    """A driver's pod.

    Args:
        seen_at: when the operator first observed it, by its own clock.
        running_at: when its container started, by its node's clock; None before.
        seen_running_at: when the operator first observed that, by its own clock; None: unknown.
        ended_at: when its container ended; None: unknown.
        exit_code: of its container; None if it has not ended or never started.
        message: its termination message, or the reason of its phase.
        waiting: why its container does not run, such as 'ImagePullBackOff' or 'Unschedulable'.
        waiting_message: details of that.
        init_failure: how one of its init containers failed; empty: none did.
        node: None until it is bound to a node.
        scheduled_at: when the operator first saw it on a node, by its own clock; None: never.
        terminating: somebody deleted it, and it is shutting down.
        seen_terminating_at: when the operator first observed that, by its own clock; None: unknown.
        disrupted: it has the condition DisruptionTarget: it was evicted, preempted or drained.
        has_finalizer: it has our finalizer, so it cannot disappear before its end is recorded.
        standby: it was created as a standby and has not been promoted, so it writes nothing.
        promoted: it was a standby.
        standby_ready: a standby that has reported that it waits for its promotion.
        progress_interval_s: the interval of reports with which its driver was started; 0: unknown.
    """

    name: str
    uid: str
    attempt: int
    phase: str = PENDING
    mode: str = RUN
    spec_hash: str = ""
    checkpoint_number: int = 1
    restore_from: str = ""
    seen_at: float = 0.0
    running_at: float | None = None
    seen_running_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    message: str = ""
    waiting: str = ""
    waiting_message: str = ""
    init_failure: str = ""
    node: Node | None = None
    scheduled_at: float | None = None
    terminating: bool = False
    seen_terminating_at: float | None = None
    disrupted: bool = False
    has_finalizer: bool = True
    standby: bool = False
    promoted: bool = False
    standby_ready: bool = False
    progress: Progress | None = None
    progress_interval_s: int = 0
    executors: Executors | None = None

    @property
    def start_began_at(self) -> float:
        """When the kubelet could begin to start it; for one never seen on a node, its first observation."""
        return self.seen_at if self.scheduled_at is None else self.scheduled_at

    @property
    def dead(self) -> bool:
        """Whether its process is proven to have ended, or can never start."""
        if self.phase in (SUCCEEDED, FAILED):
            return True
        if self.node is None:
            # the API server binds no pod that is being deleted, so no kubelet will ever report its end
            return self.terminating and self.phase == PENDING
        return self.lost

    @property
    def lost(self) -> bool:
        """Whether its node is gone or shut down, so that nobody reports what its process has done."""
        return self.node is not None and (self.node.gone or self.node.out_of_service)


@dataclass(frozen=True)
class Refusal:
    """A request to create a driver's pod that did not succeed.

    Args:
        attempt: of the driver.
        request: its number among the requests for this driver's pod.
        reason: why, in CamelCase, such as 'QuotaExceeded'.
        message: details for people.
    """

    attempt: int
    request: int
    reason: str
    message: str


NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Reason of a refusal: the namespace is being deleted, so no pod will ever be created in it again."""


@dataclass(frozen=True)
class SavepointState:
    """A Savepoint as a job sees it.

    Args:
        phase: 'Pending', 'Ready' or 'Failed'.
        message: why.
        queued: it waits until savepoints of other jobs are taken.
        started_at: when it began to be taken, in seconds since 1970; None: it has not begun.
        deleted: somebody has deleted it.
    """

    phase: str
    message: str = ""
    queued: bool = False
    started_at: float | None = None
    deleted: bool = False


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[Spec, Status]):
    """One of the operator's own resources.

    Args:
        has_finalizer: it has the finalizer of its kind.
        ignored_fields: paths of fields in its spec that this release does not know.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    spec: Spec
    status: Status
    has_finalizer: bool = False
    ignored_fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job(Resource[StreamingJobSpec, StreamingJobStatus]):
    """A StreamingJob.

    Args:
        created_at: its metadata.creationTimestamp.
        deleted: somebody has deleted it; it disappears once all finalizers are removed.
        skip_apply: it is annotated `sluicegate.dev/skip-apply: "true"`: it may be deleted, or upgraded
            after a failed apply, although a sink may lack a decided epoch.
    """

    created_at: float
    deleted: bool = False
    skip_apply: bool = False


@dataclass(frozen=True, kw_only=True)
class Volume(Resource[CheckpointVolumeSpec, CheckpointVolumeStatus]):
    """A CheckpointVolume; `created_at`, `deleted_at`: its creationTimestamp and deletionTimestamp."""

    created_at: float = 0.0
    deleted_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Savepoint(Resource[SavepointSpec, SavepointStatus]):
    """A Savepoint.

    Args:
        created_at: its metadata.creationTimestamp.
        deleted: somebody has deleted it; it disappears once all finalizers are removed.
        attempt: its annotation `sluicegate.dev/attempt`: an upgrade created it, and it may stop this
            driver and no other; None: a person created it.
        job_uid: its annotation `sluicegate.dev/job-uid`: it belongs to the job of this uid and to no
            later job of the same name; empty: it belongs to any.
        force: it is annotated `sluicegate.dev/force-dispose: "true"`: it may be deleted although it is
            the only way for a sealed job to continue.
    """

    created_at: float
    deleted: bool = False
    attempt: int | None = None
    job_uid: str = ""
    force: bool = False


@dataclass(frozen=True)
class Observed:
    """What a StreamingJob's reconciliation depends on.

    Args:
        as_of: the pod cache is known to be complete as of this time.
        volume_ready: whether its volume has passed its check; `volume_message`: why it has not.
        volume_access: digest of the endpoint and Secrets with which the volume passed its last check.
        checkpoint_exists: whether the volume has any object of the job; None: unknown.
        volume_usable_for_apply: whether a driver that only applies decided epochs may start: the volume
            is ready, or would be if it were not being deleted.
        spec_error: why the resource's spec is invalid, in which case the job carries the accepted one;
            empty: it is valid.
        spec_missing: there is no accepted spec either, and the job carries a placeholder.
        refusal: the latest request for a pod of the job that was refused.
        upgrade_queued: why an upgrade of a running job must wait for those of others; empty: it need not.
    """

    pods: tuple[Pod, ...]
    as_of: float
    volume_ready: bool = True
    volume_message: str = ""
    volume_access: str = ""
    checkpoint_exists: bool | None = None
    savepoints: Mapping[str, SavepointState] = field(default_factory=dict)
    volume_usable_for_apply: bool = False
    spec_error: str = ""
    spec_missing: bool = False
    refusal: Refusal | None = None
    upgrade_queued: str = ""


@dataclass(frozen=True)
class VolumeObserved:
    """What a CheckpointVolume's reconciliation depends on.

    Args:
        as_of: the cache of jobs and savepoints is known to be complete as of this time.
        secret_version: the resourceVersions of the Secrets that it refers to, as one text.
        access_problem: why the operator must not or cannot access the store, such as 'there is no Secret
            keys'; empty: it can.
        access_reason: the same in one CamelCase word.
        jobs: names of the StreamingJobs whose spec.checkpoint.volume it is.
        savepoints: names of the Savepoints stored on it, by status.volume or, if that is empty, by
            spec.volume or the job's volume.
        referenced_savepoints: addresses that Savepoints refer to.
        folders_in_progress: folders in which a savepoint may be in progress.
        unreadable: names of Savepoints whose status cannot be read, so their data is unknown.
    """

    as_of: float
    secret_version: str = ""
    access_problem: str = ""
    access_reason: str = ""
    jobs: tuple[str, ...] = ()
    savepoints: tuple[str, ...] = ()
    referenced_savepoints: tuple[str, ...] = ()
    folders_in_progress: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    tasks: Mapping[Task, TaskState] = field(default_factory=dict)


@dataclass(frozen=True)
class SavepointObserved:
    """What a Savepoint's reconciliation depends on.

    Args:
        job: None if it does not exist.
        volumes: CheckpointVolumes by name: at least those of the Savepoint's status and spec, and the
            job's.
        needed_by: names of the jobs that are or may be restored from it (`readiness.needed_savepoints`).
    """

    job: Job | None = None
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    needed_by: tuple[str, ...] = ()
    tasks: Mapping[Task, TaskState] = field(default_factory=dict)
