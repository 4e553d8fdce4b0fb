"""The standby: a second driver that has started and waits, and becomes the driver when that has ended.

It has a pod and a number like a driver's, but reads and writes nothing of the job before its promotion,
so it never counts as a driver that is alive. A promotion needs what a new driver needs: the driver before
it is dead, or replaced by the policy for lost nodes, and its delay is over. A standby that ends before
its promotion counts against no restart budget.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sluicegate_operator.api.streaming_job_status import (
    ACTIVE,
    NONE,
    READY,
    REQUESTED,
    RUN,
    STARTING,
    DriverStatus,
    StandbyStatus,
)
from sluicegate_operator.reconcile.actions import CreateDriver, PromoteStandby
from sluicegate_operator.reconcile.context import backoff
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job.context import NEVER_RAN, STUCK, JobContext, short
from sluicegate_operator.reconcile.streaming_job.failures import ACCESS

HEALTHY_S = 600.0
"""A standby that ran for this long forgets the failures of those before it."""


def reconcile_standby(context: JobContext) -> None:
    """Bring the standby to what the spec asks for, and promote the one that is the newest driver."""
    _observe(context)
    if _standby(context).state == NONE:
        _request_if_due(context)
    newest = context.pod
    if newest is not None and newest.standby and _may_go_on(context, newest):
        context.add_action(PromoteStandby(newest.name, newest.uid))


def promotable(context: JobContext) -> Pod | None:
    """Return the pod of a standby that can replace the driver, if there is one."""
    standby, pod = _standby(context), _pod(context)
    if standby.state not in (STARTING, READY) or pod is None or not _is_wanted(context):
        return None
    failures = context.status.failures
    if failures and failures[-1].kind == ACCESS:
        return None  # its Secrets were read when it started, as those of the driver that failed
    fits = _problem(pod) is None and not _is_outdated(context, pod)
    return pod if fits and pod.running_at is not None else None


def promote(context: JobContext) -> bool:
    """Begin the next attempt with the standby; return False if there is none that can."""
    pod = promotable(context)
    if pod is None:
        return False
    before = context.status.attempt
    driver = DriverStatus(
        state=ACTIVE,
        uid=pod.uid,
        request_time=context.now,
        requests=_standby(context).requests,
        start_time=context.now,
        spec_hash=pod.spec_hash,
    )
    context.begin_attempt(pod.attempt, driver)
    context.set(all_epochs_applied=False)
    _set(context, failures=0, message="")  # `_observe` finds that it is the driver now
    context.emit_event("Promoted", f"the standby takes over from attempt {before} as {pod.attempt}")
    return True


def drop(context: JobContext) -> None:
    """Give up the standby: `clean_up` stops its pod, and a new one is requested after the next driver."""
    if context.status.standby is not None:
        _set(context, state=NONE)


def is_current(context: JobContext, pod: Pod) -> bool:
    """Return whether a pod is the standby that the job has now."""
    standby = _standby(context)
    return standby.state != NONE and pod.attempt == standby.attempt


def _is_wanted(context: JobContext) -> bool:
    """Return whether a standby would be of use for the next driver."""
    status, spec = context.status, context.spec
    # an upgrade, a rollback and a restart stop the driver too, and the first two outdate its standby
    replaceable = context.driver.stop_reason in ("", STUCK, *NEVER_RAN)
    return (
        spec.standby > 0
        and not spec.finite
        and spec.executor.instances == 0
        and not (spec.suspend or context.job.deleted or status.failure_reason)
        and context.driver.mode == RUN
        and replaceable
    )


def _observe(context: JobContext) -> None:
    """Update the status from the standby's pod."""
    standby = _standby(context)
    if standby.state == NONE:
        return
    pod = _pod(context)
    replaced = standby.attempt <= context.status.attempt
    if replaced or not _is_wanted(context) or (pod is not None and _is_outdated(context, pod)):
        _set(context, state=NONE)
    elif pod is None and standby.state != REQUESTED:
        _record_failure(context, "its pod was removed")
    elif pod is None:
        _retry_request(context)
    elif (problem := _problem(pod)) is not None:
        _record_failure(context, problem)
    elif pod.running_at is None:
        _set(context, state=STARTING, uid=pod.uid, message=_waiting(pod))
    else:
        since = standby.start_time or context.now
        state = READY if pod.standby_ready else STARTING
        _set(context, state=state, uid=pod.uid, start_time=since, message="")
        if state == STARTING:
            _check_deadline(context, since)


def _problem(pod: Pod) -> str | None:
    """Return why a standby cannot go on any more."""
    if pod.dead or pod.terminating:
        code = "" if pod.exit_code is None else f"exit code {pod.exit_code}: "
        return f"{code}{pod.message or pod.init_failure or 'its pod was deleted or evicted'}"
    if pod.node is not None and pod.node.unresponsive_since is not None:
        return "its node does not respond"
    return None


def _is_outdated(context: JobContext, pod: Pod) -> bool:
    """Return whether a standby was started for another spec or checkpoint."""
    made_for = (pod.spec_hash, pod.checkpoint_number)
    return made_for != (context.spec_hash, context.status.checkpoint.number)


def _waiting(pod: Pod) -> str:
    return ": ".join(text for text in (pod.waiting, pod.waiting_message) if text)


def _check_deadline(context: JobContext, since: float) -> None:
    """Replace a standby that does not become ready."""
    limit_s = context.spec.progress_deadline_s
    if not limit_s:
        return
    if context.now >= since + limit_s:
        _record_failure(context, f"it was not ready within {limit_s:.0f} s")
    else:
        context.requeue_at(since + limit_s)


def _request_if_due(context: JobContext) -> None:
    """Request a standby once the driver has reported progress: then its checkpoint exists."""
    pod, start = context.pod, _standby(context).next_start_time
    runs = context.driver.state == ACTIVE and pod is not None and pod.progress is not None
    fits = pod is not None and not _is_outdated(context, pod)
    if not (runs and fits and _is_wanted(context) and context.observed.volume_ready):
        return
    if start is not None and context.now < start:
        context.requeue_at(start)
        return
    _set(
        context,
        state=REQUESTED,
        attempt=context.next_attempt(),
        uid="",
        request_time=context.now,
        requests=1,
        start_time=None,
        next_start_time=None,
    )
    _create(context)


def _retry_request(context: JobContext) -> None:
    """Request a pod again that has not appeared; an existing pod of that name counts as success."""
    standby = _standby(context)
    refusal = context.observed.refusal
    if refusal is not None and refusal.attempt == standby.attempt:
        message = short(f"{refusal.reason}: {refusal.message}")
        if standby.message != message:
            what = f"standby {standby.attempt} does not start: {refusal.message}"
            context.emit_event(refusal.reason, what, warning=True)
        _set(context, message=message)
    retry_at = (standby.request_time or context.now) + backoff(standby.requests)
    if context.now < retry_at:
        context.requeue_at(retry_at)
        return
    _set(context, request_time=context.now, requests=standby.requests + 1)
    _create(context)
    context.requeue_at(context.now + backoff(standby.requests + 1))


def _create(context: JobContext) -> None:
    standby, checkpoint = _standby(context), context.status.checkpoint
    context.add_action(
        CreateDriver(
            standby.attempt,
            RUN,
            context.spec_hash,
            checkpoint.number,
            checkpoint.restored_from,  # no restore follows: the driver has reported progress
            context.spec,
            request=standby.requests,
            standby=True,
        )
    )


def _record_failure(context: JobContext, why: str) -> None:
    """Record that a standby ended before its promotion, and when the next one is requested."""
    standby = _standby(context)
    healthy = standby.start_time is not None and context.now >= standby.start_time + HEALTHY_S
    failures = 1 if healthy else standby.failures + 1
    delay_s = backoff(failures)
    _set(
        context,
        state=NONE,
        failures=failures,
        next_start_time=round(context.now + delay_s, 3),
        message=short(why),
    )
    what = f"standby {standby.attempt} ended: {short(why)}; the next one starts in {delay_s:.0f} s"
    context.emit_event("StandbyFailed", what, warning=True)


def _may_go_on(context: JobContext, pod: Pod) -> bool:
    """Return whether the newest driver is a standby whose promotion was not observed yet."""
    return context.driver.state == ACTIVE and not (context.driver.stop_reason or pod.terminating)


def _standby(context: JobContext) -> StandbyStatus:
    return context.status.standby or StandbyStatus()


def _pod(context: JobContext) -> Pod | None:
    """Return the pod of the newest standby, unless that was promoted, or is older than the driver."""
    number = _standby(context).attempt
    if number <= context.status.attempt:
        return None
    return next((pod for pod in context.observed.pods if pod.attempt == number), None)


def _set(context: JobContext, **changes: Any) -> None:  # noqa: ANN401 - fields of the standby's status
    context.set(standby=dataclasses.replace(_standby(context), **changes))
