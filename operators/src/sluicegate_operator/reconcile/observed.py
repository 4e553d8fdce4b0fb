"""What is seen of a job: its resource, its drivers' pods, its volume.

Not here: how it is read. A view may be old; `Observed.as_of` says how old. Called by `reconcile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import RUN, StreamingJobStatus

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
"""Phases of a pod; the kubelet sets the last two only when every container has ended."""

READY = "Ready"


@dataclass(frozen=True)
class Node:
    """A pod's node.

    Args:
        silent_since: when it was last heard of, if it does not answer now.
        gone: its Node object was deleted.
        out_of_service: it has the taint `node.kubernetes.io/out-of-service`: a person, or the
            cloud, has said that it is shut down.
    """

    silent_since: float | None = None
    gone: bool = False
    out_of_service: bool = False


@dataclass(frozen=True)
class Progress:
    """What a driver says of itself.

    Args:
        at: when it last ended an epoch, or found that there was nothing to do.
        epoch: the last one that is in every sink; None before the first.
    """

    at: float
    epoch: int | None = None


@dataclass(frozen=True)
class Pod:
    """A driver's pod.

    Args:
        attempt: of its labels, as are `purpose`, `spec_hash` and `checkpoint_number`.
        restore_from: of its annotation `sluicegate.dev/restore-from`.
        phase: of its status.
        created_at: seconds since 1970, as are all times.
        running_at: when its container began, by its node's clock; None before.
        seen_running_at: when the operator first saw that, by its own; None: it does not say.
        ended_at: when its container ended; None if that is not known.
        exit_code: of its container; None if it has not ended or never began.
        message: its termination message, or the reason of its phase.
        waiting: why its container does not run, such as 'ImagePullBackOff'.
        node: None before a node has taken it.
        terminating: it was deleted, by whomever, and ends.
        disrupted: it has the condition DisruptionTarget: evicted, preempted or drained.
        held: it has our finalizer, so it does not vanish before its end was accounted for.
    """

    name: str
    uid: str
    attempt: int
    phase: str = PENDING
    purpose: str = RUN
    spec_hash: str = ""
    checkpoint_number: int = 1
    restore_from: str = ""
    created_at: float = 0.0
    running_at: float | None = None
    seen_running_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    message: str = ""
    waiting: str = ""
    node: Node | None = None
    terminating: bool = False
    disrupted: bool = False
    held: bool = True
    progress: Progress | None = None

    @property
    def dead(self) -> bool:
        """Whether its process is proven to have ended, or never to begin."""
        if self.phase in (SUCCEEDED, FAILED):
            return True
        if self.node is None:
            # the API server binds no pod that is being deleted, and no kubelet will speak for it
            return self.terminating and self.phase == PENDING
        return self.node.gone or self.node.out_of_service


@dataclass(frozen=True)
class Taken:
    """A Savepoint resource: 'Pending', 'Ready' or 'Failed', and why."""

    phase: str
    message: str = ""


@dataclass(frozen=True)
class Observed:
    """A view of what belongs to the job.

    Args:
        pods: its drivers' pods.
        as_of: the newest time of which the view of pods is known to be complete.
        volume_ready: whether its volume's preflight has passed.
        volume_message: why not.
        checkpoint_exists: whether there is anything of it on the volume; None: not known.
        savepoints: by name.
        volume_usable: whether a driver that only applies what is decided may start: the volume is
            ready, or would be if it were not being deleted.
        unreadable: why the spec cannot be read, so that the job's is a stand-in; empty: it can.
    """

    pods: tuple[Pod, ...]
    as_of: float
    volume_ready: bool = True
    volume_message: str = ""
    checkpoint_exists: bool | None = None
    savepoints: Mapping[str, Taken] = field(default_factory=dict)
    volume_usable: bool = False
    unreadable: str = ""


@dataclass(frozen=True)
class Job:
    """A StreamingJob.

    Args:
        created_at: of its metadata.
        deleted: someone has deleted it; it stays while it is held.
        held: it has our finalizer.
        skip_finish: it is annotated `sluicegate.dev/skip-finish: "true"`: it may be deleted
            although a decided epoch may not be in every sink.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_at: float
    spec: StreamingJobSpec
    status: StreamingJobStatus
    deleted: bool = False
    held: bool = False
    skip_finish: bool = False
