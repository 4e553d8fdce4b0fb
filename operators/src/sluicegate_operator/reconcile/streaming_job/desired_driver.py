"""Which driver is wanted, if any: whether the job is suspended, restarted, upgraded, due or backing off."""

from __future__ import annotations

from sluicegate_operator.api.schedule import REPLACE
from sluicegate_operator.api.streaming_job_status import ACTIVE, RUN
from sluicegate_operator.reconcile.schedule import due_tick, is_too_late
from sluicegate_operator.reconcile.streaming_job import rollback, standby, upgrade
from sluicegate_operator.reconcile.streaming_job.context import (
    FOR_NEXT_RUN,
    RESTART,
    SUSPEND,
    JobContext,
)
from sluicegate_operator.reconcile.streaming_job.driver_lifecycle import (
    request_driver,
    retry_request,
    stop,
)


def reconcile_driver(context: JobContext) -> None:
    """Bring the newest driver to what the spec asks for."""
    upgrade.trim_history(context)
    if context.spec.suspend:
        if stop(context, SUSPEND):
            # a person who suspends a job has seen its failures: it resumes with full budgets
            context.reset_failures()
        return
    upgrade.resume_from_late_savepoint(context)
    if not rollback.step(context):
        return
    upgrade.begin(context)
    if not _restart_if_requested(context):
        return
    _replace_run(context)
    if upgrade.advance(context) and not context.driver_active:
        _start_if_due(context)
    else:
        retry_request(context)


def _restart_if_requested(context: JobContext) -> bool:
    """Restart the driver if restartNonce has changed; return False while the old driver is stopping."""
    if context.spec.restart_nonce == context.status.observed_restart_nonce:
        return True
    if context.driver_active and context.status.upgrade is not None:
        return True  # the upgrade stops the driver; the nonce is handled after that
    if not stop(context, RESTART):
        return False
    nonce = context.spec.restart_nonce
    if not (context.status.attempt or context.status.observed_generation):
        context.set(observed_restart_nonce=nonce)  # a new job has no run to restart
        return True
    context.reset_failures()
    standby.drop(context)  # it read its Secrets before the restart was requested
    context.set(observed_restart_nonce=nonce, finished=False)
    if context.spec.schedule is not None:
        context.set(last_schedule_time=context.now)  # an unscheduled run
    return True


def _replace_run(context: JobContext) -> None:
    """Let the run that is due replace one that has not ended, if the schedule says so.

    The new run is in the status before the old driver is stopped, so a run that had time to start is not
    skipped because its predecessor took long to stop. Its first driver applies what the old one has decided.
    """
    schedule, driver = context.spec.schedule, context.driver
    if schedule is None or schedule.concurrency_policy != REPLACE or not _run_is_open(context):
        return
    if context.driver_active and driver.mode != RUN:
        return
    tick = due_tick(context, schedule, context.status.last_schedule_time, context.job.created_at)
    if tick is None or is_too_late(schedule, tick, context.now):
        return
    context.reset_failures()
    context.set(last_schedule_time=tick)
    context.emit_event(
        "RunReplaced",
        f"a run was due {context.now - tick:.0f} s ago and replaces the one that has not ended; it applies "
        "what that one has decided, and reads the rest of the input",
    )
    if driver.state == ACTIVE and not driver.stop_reason:
        stop(context, FOR_NEXT_RUN)


def _run_is_open(context: JobContext) -> bool:
    """Return whether a run of the schedule has neither finished nor failed for good."""
    status = context.status
    over = status.last_schedule_time is None or status.finished or status.failure_reason
    return not over


def _start_if_due(context: JobContext) -> None:
    """Start the next driver if it is due and nothing prevents it."""
    if not _is_due(context):
        return
    if context.status.failure_reason:
        context.wait(context.status.failure_reason, context.status.last_error)
        return
    if context.status.attempt == 0:
        context.set_checkpoint(restored_from=context.spec.checkpoint.restore_from)
    if upgrade.can_start(context) and not standby.promote(context):
        request_driver(context, RUN)


def _is_due(context: JobContext) -> bool:
    """Return whether a run is due, or one that has started must continue."""
    schedule = context.spec.schedule
    if schedule is None:
        return not context.status.finished
    if _run_is_open(context):
        return True
    tick = due_tick(context, schedule, context.status.last_schedule_time, context.job.created_at)
    if tick is None:
        return False
    context.reset_failures()
    missed = is_too_late(schedule, tick, context.now)
    context.set(last_schedule_time=tick, finished=missed)
    if missed:
        message = f"a run is {context.now - tick:.0f} s late and was skipped"
        context.emit_event("RunMissed", message, warning=True)
    return not missed
