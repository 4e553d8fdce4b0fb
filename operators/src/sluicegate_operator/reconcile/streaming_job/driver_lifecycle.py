"""Lifecycle of the newest driver and its pod: request, observe, stop, and record the end.

There are never two drivers at a time. Attempt n+1 is requested only after n has ended, and n has ended
only when its pod is dead, or when the policy for lost nodes replaced it without proof.
"""

from __future__ import annotations

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import (
    ACTIVE,
    APPLY_ONLY,
    REQUESTED,
    RUN,
    TERMINATED,
    DriverStatus,
    FailureStatus,
)
from sluicegate_operator.reconcile.actions import (
    AddFinalizer,
    CreateDriver,
    DeletePod,
    RemovePodFinalizer,
    StopDriver,
)
from sluicegate_operator.reconcile.context import backoff
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job import failures, standby
from sluicegate_operator.reconcile.streaming_job.context import (
    FOR_SAVEPOINT,
    NEVER_RAN,
    REQUEST_DEADLINE_S,
    RETRY_REQUEST_S,
    STUCK,
    JobContext,
)
from sluicegate_operator.reconcile.streaming_job.watchdog import check_deadlines


def adopt_orphan(context: JobContext) -> None:
    """Adopt a pod that is newer than the status: somebody edited or lost the status."""
    drivers = (pod for pod in context.observed.pods if not pod.standby)
    newest = max(drivers, key=lambda pod: pod.attempt, default=None)
    if newest is None or newest.attempt <= context.status.attempt:
        return
    context.set(attempt=newest.attempt, all_epochs_applied=False)
    context.set_checkpoint(
        number=newest.checkpoint_number,
        restored_from=newest.restore_from,
        last_epoch=None,
        last_epoch_time=None,
    )
    requested = min(newest.seen_at, context.now)
    context.set(driver=DriverStatus(state=REQUESTED, request_time=requested))
    # what the status says of earlier drivers keeps none from being started after this one
    context.set(failure_reason="", next_start_time=None, finished=False)
    if context.spec_unproven() and context.status.trial_start_time is None:
        context.set(trial_start_time=requested)
    context.emit_event(
        "Adopted", f"attempt {newest.attempt} exists but was missing from the status", warning=True
    )


def observe(context: JobContext) -> None:
    """Update the status from the newest driver's pod."""
    if not context.driver_active:
        return
    pod = context.pod
    if pod is None:
        if context.driver.state == ACTIVE and context.absence_confirmed():
            _record_vanished_pod(context)
        elif context.driver.state == ACTIVE:
            context.requeue_at((context.driver.request_time or context.now) + REQUEST_DEADLINE_S)
        return
    context.set_driver(state=ACTIVE, uid=pod.uid, mode=pod.mode, spec_hash=pod.spec_hash)
    if pod.running_at is not None and context.driver.start_time is None:
        context.set_driver(start_time=pod.running_at)
        context.set(all_epochs_applied=False)
    if pod.dead:
        end = failures.classify_end(pod, context.driver, finite=context.spec.finite)
        _record_end(context, pod, end)
    elif check_deadlines(context, pod):
        _replace_unconfirmed(context, pod)


def clean_up(context: JobContext) -> None:
    """Stop drivers that are not wanted, and release or delete pods that are dead."""
    for pod in context.observed.pods:
        newest = pod.attempt == context.status.attempt
        if (newest and context.driver_active) or standby.is_current(context, pod):
            continue
        if not pod.dead:
            if not pod.terminating:
                _add_stop(context, pod)
        elif not newest or context.job.deleted:
            if pod.has_finalizer or not pod.terminating:
                context.add_action(DeletePod(pod.name, pod.uid))
        elif pod.has_finalizer:
            context.add_action(RemovePodFinalizer(pod.name, pod.uid))
    # an attempt that the cache lacks is dropped only if the cache is newer than its replacement
    alive = {pod.attempt for pod in context.observed.pods if not pod.dead}
    dead = {pod.attempt for pod in context.observed.pods} - alive
    kept = alive if context.absence_confirmed() else {*context.status.unconfirmed_attempts} - dead
    unconfirmed = (n for n in context.status.unconfirmed_attempts if n in kept)
    context.set(unconfirmed_attempts=tuple(unconfirmed))


def older_attempts_alive(context: JobContext) -> tuple[int, ...]:
    """Return the attempts that are alive, without standbys and those replaced by the lost-node policy."""
    return tuple(
        pod.attempt
        for pod in context.observed.pods
        if not (pod.dead or pod.standby) and pod.attempt not in context.status.unconfirmed_attempts
    )


def request_driver(context: JobContext, mode: str) -> None:
    """Begin the next attempt: the status with its number is written before the pod is created."""
    spec, spec_hash = _spec_to_run(context, mode)
    driver = DriverStatus(
        state=REQUESTED, mode=mode, request_time=context.now, requests=1, spec_hash=spec_hash
    )
    context.begin_attempt(context.next_attempt(), driver)
    _create_driver(context, spec)


def retry_request(context: JobContext) -> None:
    """Request a pod again that never appeared: it was refused, or the operator crashed in between.

    The delay grows with each request, and is short after a change of the spec. The status is written
    again first. If the status that was read is older than another operator's, that write is refused and
    no pod is created.
    """
    if context.driver.state != REQUESTED or context.pod is not None:
        return
    if context.driver.mode == RUN and context.status.upgrade is not None:
        return  # the upgrade decides with which checkpoint the next one starts
    spec, spec_hash = _spec_to_run(context, context.driver.mode)
    changed = spec_hash != context.driver.spec_hash
    requested = context.driver.request_time
    assert requested is not None  # `reconcile_job` has set it
    retry_at = requested + (RETRY_REQUEST_S if changed else backoff(context.driver.requests))
    if context.observed.as_of < retry_at:
        context.requeue_at(retry_at)
        return
    context.set_driver(
        request_time=context.now,
        requests=context.driver.requests + 1,
        spec_hash=spec_hash,
    )
    _create_driver(context, spec)
    context.requeue_at(context.now + backoff(context.driver.requests))


def stop(context: JobContext, why: str) -> bool:
    """Begin to stop the newest driver; return True once none is active."""
    if not context.driver_active:
        return True
    if context.driver.state == REQUESTED:
        if context.absence_confirmed():
            context.set_driver(state=TERMINATED)
            return True
        context.requeue_at((context.driver.request_time or context.now) + REQUEST_DEADLINE_S)
        return False
    if context.driver.stop_reason in ("", FOR_SAVEPOINT):
        context.set_driver(stop_reason=why, stop_time=context.now)
        context.emit_event("Stopping", f"stopping attempt {context.status.attempt}: {why}")
    return False


def enforce_stop(context: JobContext) -> None:
    """Keep deleting the stopping driver's pod until its deletion is observed."""
    pod = context.pod
    if not context.driver_active or pod is None or pod.terminating:
        return
    if context.driver.stop_reason and context.driver.stop_reason != FOR_SAVEPOINT:
        _add_stop(context, pod)


def _add_stop(context: JobContext, pod: Pod) -> None:
    context.add_action(StopDriver(pod.name, pod.uid, context.spec.termination_grace_period_s))


def _spec_to_run(context: JobContext, mode: str) -> tuple[StreamingJobSpec, str]:
    """Return the spec of a new driver and its digest.

    A driver that only applies needs the sinks of the spec that decided.
    """
    if mode == APPLY_ONLY:
        last = context.driver.spec_hash
        stable = context.status.last_stable_spec
        spec = context.stable_spec() if stable and stable.spec_hash == last else None
        if spec is not None:
            return spec, last
        if context.resource_hash == last:
            return context.job.spec, last
    return context.spec, context.spec_hash


def _create_driver(context: JobContext, spec: StreamingJobSpec) -> None:
    if not context.job.has_finalizer:
        context.add_action(AddFinalizer())
    # a checkpoint that has yet to be restored has nothing to apply
    applies = context.driver.mode == APPLY_ONLY
    restore_from = "" if applies else context.status.checkpoint.restored_from
    context.add_action(
        CreateDriver(
            context.status.attempt,
            context.driver.mode,
            context.driver.spec_hash,
            context.status.checkpoint.number,
            restore_from,
            spec,
            context.driver.requests,
        )
    )


def _record_vanished_pod(context: JobContext) -> None:
    """Record the end of a driver whose pod disappeared together with our finalizer.

    Only a person removes the finalizer of a driver that may be alive, so this counts as a confirmation.
    """
    stopping = context.driver.stop_reason
    context.set_driver(state=TERMINATED)
    context.set(all_epochs_applied=False)
    if not stopping or stopping in (STUCK, *NEVER_RAN):
        end = failures.DriverEnd(failures.DISRUPTED, "Disrupted", "its pod was removed")
        _record_failure(context, end, _run_s(context, context.now))


def _run_s(context: JobContext, ended: float) -> float:
    """Return how long the newest driver had run at its end, in seconds; 0 if it never ran."""
    began = context.driver.start_time
    return 0.0 if began is None else max(0.0, ended - began)


def _replace_unconfirmed(context: JobContext, pod: Pod) -> None:
    """Record the newest driver as ended without proof that it is dead."""
    context.set_driver(state=TERMINATED)
    context.set(
        unconfirmed_attempts=(*context.status.unconfirmed_attempts, pod.attempt),
        all_epochs_applied=False,
    )
    context.emit_event(
        "NodeLost",
        f"the node of attempt {pod.attempt} does not respond; the driver is replaced although it may "
        "still be alive",
        warning=True,
    )


def _record_end(context: JobContext, pod: Pod, end: failures.DriverEnd) -> None:
    """Record how a driver ended, and when the next one may start."""
    ended = pod.ended_at if pod.ended_at is not None else context.now
    context.set_driver(state=TERMINATED)
    # once a driver was seen running, the status says already that it may have decided an epoch
    reported = pod.exit_code is not None or pod.progress is not None
    if pod.lost or reported:
        # a checkpoint is sealed only when every decided epoch is in every sink
        context.set(all_epochs_applied=pod.exit_code == 0 or end.reason == failures.SEALED)
    if end.message:
        context.set_last_error(end.message)
    if end.kind == failures.SUCCESS:
        context.set(failures=context.status.failures if end.reason == "Stopped" else ())
        if end.reason == "Finished" and context.driver.mode != APPLY_ONLY:
            context.set(finished=True)
            message = f"attempt {pod.attempt} has processed all available data"
            context.emit_event("Finished", message)
        return
    _record_failure(context, end, _run_s(context, ended))


def _record_failure(context: JobContext, end: failures.DriverEnd, run_s: float) -> None:
    """Record a failure, and when the next driver may start if its budget allows one."""
    what = f"attempt {context.status.attempt} failed ({end.reason}): {end.message}"
    context.set_last_error(end.message)
    context.new_failures.append(end.kind)
    if end.kind == failures.FINAL:
        context.set(failure_reason=end.reason)
        context.emit_event(end.reason, f"{what}; a restart cannot succeed", warning=True)
        return
    newest = FailureStatus(
        kind=end.kind,
        time=context.now,
        run_s=round(run_s, 3),
        volume_access=context.observed.volume_access if end.kind == failures.ACCESS else "",
    )
    context.set(failures=failures.add_failure(context.spec, context.status.failures, newest))
    seed = f"{context.job.uid}/{context.status.attempt}"
    following = failures.next_start(context.spec, context.status.failures, seed)
    if following.delay_s is None:
        context.set(failure_reason=end.reason)
        consequence = "not restarted"
    else:
        delay_s = following.delay_s
        if standby.promotable(context) is not None:
            # a driver that ran for longer than the delay is replaced at once
            delay_s = max(0.0, delay_s - run_s)
        context.set(next_start_time=round(context.now + delay_s, 3))
        consequence = f"restart in {delay_s:.3g} s"
    context.emit_event(end.reason, f"{what}; {consequence} ({following.why})", warning=True)
