"""Why the newest driver does not start: its pod is refused, or exists and does not get to run.

The API server refuses a pod because of a quota, Pod Security, a webhook, a missing ServiceAccount or an
invalid template. A pod that exists waits for a node, an image, a volume, a Secret or an init container.
`status.startup` and one Event for each new reason report both. The deadlines are those of `watchdog`.
"""

from __future__ import annotations

from sluicegate_operator.api.streaming_job_status import REQUESTED, StartupStatus
from sluicegate_operator.reconcile.observed import NAMESPACE_TERMINATING, Pod
from sluicegate_operator.reconcile.streaming_job.context import NEVER_RAN, JobContext, short

NORMAL = ("", "ContainerCreating", "PodInitializing")
"""Reasons for which every container waits at first."""

SLOW_AFTER_S = 60.0
"""A container that waits for a NORMAL reason for longer is reported."""

_SAME_REASON = {"ErrImagePull": "ImagePullBackOff"}
"""A kubelet alternates between these two; only one is reported."""


def observe(context: JobContext) -> None:
    """Record why the newest driver does not start, with an Event for each new reason."""
    problem, known = _problem(context), context.status.startup
    if problem is None:
        if not _lasts(context):
            context.set(startup=None)
        return
    reason, message = problem
    earlier = sum(one.count for one in context.status.failures if one.kind in NEVER_RAN)
    tries = context.driver.requests + earlier
    same = known is not None and known.reason == reason
    if known is not None and same and known.tries == tries:
        return
    since = known.since if known is not None and same else context.now
    context.set(
        startup=StartupStatus(reason=reason, message=short(message), since=since, tries=tries)
    )
    if not same:
        what = f"attempt {context.status.attempt} does not start: {message}"
        context.emit_event(reason, what, warning=True)


def forget_if_idle(context: JobContext) -> None:
    """Drop the reason if no driver is to start now."""
    if not context.driver_active and not _lasts(context):
        context.set(startup=None)


def namespace_terminates(context: JobContext) -> bool:
    """Return whether no pod can be created because the namespace is being deleted."""
    startup = context.status.startup
    return startup is not None and startup.reason == NAMESPACE_TERMINATING


def _problem(context: JobContext) -> tuple[str, str] | None:
    """Return the reason and message of what prevents the start, if anything does now."""
    if not context.driver_active:
        return None
    pod, refusal = context.pod, context.observed.refusal
    if pod is not None:
        return _problem_of(context, pod)
    current = (context.status.attempt, context.driver.requests)
    if refusal is None or (refusal.attempt, refusal.request) != current:
        return None
    return refusal.reason, refusal.message


def _problem_of(context: JobContext, pod: Pod) -> tuple[str, str] | None:
    lost = pod.node is not None and pod.node.unresponsive_since is not None
    if pod.running_at is not None or pod.dead or lost:
        return None
    if pod.waiting not in NORMAL:
        return _SAME_REASON.get(pod.waiting, pod.waiting), pod.waiting_message or pod.waiting
    if pod.node is None:
        return None
    slow_at = pod.start_began_at + SLOW_AFTER_S
    if context.now < slow_at:
        context.requeue_at(slow_at)
        return None
    message = (
        f"{pod.waiting_message or 'its container was not created'} within {SLOW_AFTER_S:.0f} s after it was "
        f"scheduled; `kubectl describe pod {pod.name}` shows why, such as FailedMount"
    )
    return pod.waiting or NORMAL[1], message


def _lasts(context: JobContext) -> bool:
    """Return whether a reason that was recorded earlier still holds as far as is known."""
    pod = context.pod
    if context.driver_active and pod is None:
        return context.driver.state == REQUESTED
    if pod is not None and pod.running_at is not None:
        return False
    if context.driver_active:  # the pod before this one did not start either
        return any(one.kind in NEVER_RAN for one in context.status.failures)
    failures = context.status.failures
    restarting = context.status.next_start_time is not None and bool(failures)
    ended = restarting and failures[-1].kind in NEVER_RAN
    return ended or (context.job.deleted and namespace_terminates(context))
