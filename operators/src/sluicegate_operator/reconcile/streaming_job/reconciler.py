"""`reconcile_job`: a pure function from a StreamingJob, its observed state and the time to an `Outcome`.

It is level-based: it may run at any time, with a cache of any age, and again with the same one. The
controller writes the status first, with the resourceVersion that was read, and performs the actions
only if that write was accepted. The module is the top layer of the steps, so no other one can hold it.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from sluicegate_operator.api.streaming_job_status import (
    REQUESTED,
    DriverStatus,
    StandbyStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.actions import JobAction
from sluicegate_operator.reconcile.context import Outcome, limit_retry, limit_to_now
from sluicegate_operator.reconcile.observed import Job, Observed
from sluicegate_operator.reconcile.streaming_job import driver_lifecycle, rollback, standby, startup
from sluicegate_operator.reconcile.streaming_job.acceptance import accept
from sluicegate_operator.reconcile.streaming_job.context import JobContext
from sluicegate_operator.reconcile.streaming_job.deletion import finalize
from sluicegate_operator.reconcile.streaming_job.desired_driver import reconcile_driver
from sluicegate_operator.reconcile.streaming_job.expiry import expire
from sluicegate_operator.reconcile.streaming_job.runs import record_run
from sluicegate_operator.reconcile.streaming_job.status import update_status

Requested = TypeVar("Requested", DriverStatus, StandbyStatus)

JobOutcome = Outcome[StreamingJobStatus, JobAction]


def reconcile_job(job: Job, observed: Observed, now: float) -> JobOutcome:
    """Decide what to do about a job now (seconds since 1970), by the newest status that is known.

    Raises:
        SettingsInvalid: the schedule is invalid; the caller answers with `reject_spec`.
    """
    now = round(now, 3)
    status = _limited_to_now(job.status, now)
    context = JobContext(status, job.generation, now, job=job, observed=observed)
    accept(context)
    rollback.restore_state(context)
    driver_lifecycle.adopt_orphan(context)
    driver_lifecycle.observe(context)
    startup.observe(context)
    record_run(context, job.status)  # its end is recorded before the next run begins
    if job.deleted:
        finalize(context)
    else:
        reconcile_driver(context)
    standby.reconcile_standby(context)
    driver_lifecycle.clean_up(context)
    driver_lifecycle.enforce_stop(context)
    startup.forget_if_idle(context)
    record_run(context, job.status)
    update_status(context, job.status)
    expire(context, job.status)
    return Outcome(
        context.status, tuple(context.actions), context.requeue_time, tuple(context.new_failures)
    )


def _limited_to_now(status: StreamingJobStatus, now: float) -> StreamingJobStatus:
    driver = _with_request_time(limit_to_now(status.driver, now, "request_time", "stop_time"), now)
    status = limit_to_now(status, now, "trial_start_time", "last_schedule_time", "finish_time")
    if status.executors is not None:
        limited_executors = limit_to_now(status.executors, now, "time")
        status = dataclasses.replace(status, executors=limited_executors)
    if status.standby is not None:
        limited = limit_to_now(status.standby, now, "request_time", "start_time")
        limited = _with_request_time(limited, now)
        limited = limit_retry(limited, now, "next_start_time")
        status = dataclasses.replace(status, standby=limited)
    if status.failures and status.next_start_time is not None:
        # the delay counts from the failure, so it moves with it
        ahead = max(0.0, status.failures[-1].time - now)
        moved = round(status.next_start_time - ahead, 3)
        status = dataclasses.replace(status, next_start_time=moved)
    failures = tuple(limit_to_now(one, now, "time") for one in status.failures)
    runs = tuple(limit_to_now(one, now, "schedule_time", "finish_time") for one in status.runs)
    return dataclasses.replace(status, driver=driver, failures=failures, runs=runs)


def _with_request_time(requested: Requested, now: float) -> Requested:
    """Return a status that says when its pod was requested: if somebody removed the time, then now."""
    unknown = requested.state == REQUESTED and requested.request_time is None
    return dataclasses.replace(requested, request_time=now) if unknown else requested
