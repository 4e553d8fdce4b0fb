"""Deadlines of a driver that has not ended: scheduling, image pull, start, progress, end, and a lost node."""

from __future__ import annotations

from sluicegate_operator.api.streaming_job_settings import RESTART
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job.context import (
    FOR_SAVEPOINT,
    IMAGE,
    SCHEDULING,
    STARTUP,
    STUCK,
    JobContext,
)
from sluicegate_operator.reconcile.streaming_job.failures import REASONS

NODE_LOST, NOT_ENDING = "NodeLost", "NotEnding"
"""Why a job waits for a driver that may be alive."""

_IMAGE_ERRORS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
"""Reasons of the kubelet for a container that waits because its image is missing."""

_KILL_S = 60.0
"""Time that a kubelet has, after the grace period, to kill a container and to report its end."""

_MISSED_REPORTS = 3
"""So many intervals without a report are the shortest time after which a driver may be considered stuck."""

_MESSAGES = {
    STUCK: "it has made no progress",
    IMAGE: "its image could not be pulled",
    SCHEDULING: "it was not scheduled",
    STARTUP: "its container did not start",
}


def check_deadlines(context: JobContext, pod: Pod) -> bool:
    """Stop a driver that exceeds a deadline; return True if it is to be replaced without proof of its end."""
    if pod.node is not None and pod.node.unresponsive_since is not None:
        return _check_lost_node(context, pod.node.unresponsive_since)
    _check_end(context, pod)
    if context.driver.stop_reason and not _waits_for_savepoint(context):
        return False
    if pod.running_at is not None:
        _check_progress(context, pod, pod.running_at)
    elif pod.waiting in _IMAGE_ERRORS:
        _stop_after(context, pod.seen_at, context.spec.startup.image_pull_timeout_s, IMAGE)
    elif pod.node is None:
        limit = context.spec.startup.scheduling_timeout_s
        if limit > 0:
            _stop_after(context, pod.seen_at, limit, SCHEDULING)
    elif context.spec.startup.start_timeout_s > 0:
        _stop_after(context, pod.start_began_at, context.spec.startup.start_timeout_s, STARTUP)
    return False


def _waits_for_savepoint(context: JobContext) -> bool:
    """Return whether the driver is to run on until the queued savepoint of its upgrade is requested."""
    upgrade = context.status.upgrade
    savepoint = context.observed.savepoints.get(upgrade.savepoint) if upgrade is not None else None
    queued = savepoint is not None and savepoint.queued
    return queued and context.driver.stop_reason == FOR_SAVEPOINT


def may_replace_on_lost_node(context: JobContext) -> bool:
    """Return whether a driver on a lost node may be replaced after the deadline (rule 17)."""
    return not context.spec.stateful or context.spec.node_lost.stateful_policy == RESTART


def _check_lost_node(context: JobContext, since: float) -> bool:
    message = f"attempt {context.status.attempt} may be alive on a node that does not respond"
    if not may_replace_on_lost_node(context):
        message += (
            "; a stateful job waits until the node returns, is deleted, or has the taint "
            "node.kubernetes.io/out-of-service"
        )
        context.wait(NODE_LOST, message)
        return False
    deadline = since + context.spec.node_lost.deadline_s
    if context.now >= deadline:
        return True
    context.wait(NODE_LOST, message)
    context.requeue_at(deadline)
    return False


def _check_end(context: JobContext, pod: Pod) -> None:
    """Report a driver that should have been killed; a node that responds gives no other proof of its end."""
    if pod.seen_terminating_at is None or pod.node is None:
        return
    due = pod.seen_terminating_at + context.spec.termination_grace_period_s + _KILL_S
    if context.now < due:
        context.requeue_at(due)
        return
    context.wait(
        NOT_ENDING,
        f"attempt {context.status.attempt} has not ended although its grace period is over and its node "
        f"responds; the job waits until it has. `kubectl describe pod {pod.name}` and the log of the node's "
        "kubelet show why, such as a volume that cannot be unmounted",
    )


def _check_progress(context: JobContext, pod: Pod, running_at: float) -> None:
    if not context.spec.progress_deadline_s:
        return
    began = running_at if pod.seen_running_at is None else pod.seen_running_at
    if pod.standby or pod.promoted:  # it may have waited for longer than the deadline
        began = max(began, context.driver.request_time or began)
    newest = max(began, pod.progress.at) if pod.progress else began
    # progress may be newer than its last report by an interval; and a deadline that was shortened while
    # the driver runs must leave time for the reports that it sends
    interval_s = pod.progress_interval_s
    limit_s = max(context.spec.progress_deadline_s + interval_s, _MISSED_REPORTS * interval_s)
    _stop_after(context, newest, limit_s, STUCK)


def _stop_after(context: JobContext, since: float, limit_s: float, why: str) -> None:
    """Stop the driver if the deadline has passed, or reconcile again when it passes."""
    if context.now < since + limit_s:
        context.requeue_at(since + limit_s)
        return
    context.set_driver(stop_reason=why, stop_time=context.now)
    context.emit_event(
        REASONS[why],
        f"attempt {context.status.attempt} is being stopped: {_MESSAGES[why]} for "
        f"{context.now - since:.0f} s",
        warning=True,
    )
