"""The history of the runs of a batch job with a schedule."""

from __future__ import annotations

import dataclasses

from sluicegate_operator.api.streaming_job_status import (
    RUN_FAILED,
    RUN_FINISHED,
    RUN_MISSED,
    RUN_REPLACED,
    RUN_RUNNING,
    RunStatus,
    StreamingJobStatus,
)
from sluicegate_operator.reconcile.streaming_job.context import JobContext

_LISTED = 10
"""Number of runs in the status."""


def record_run(context: JobContext, before: StreamingJobStatus) -> None:
    """Add the run that is due to the status, or record how it ended; `before` is the status that was read."""
    status, runs = context.status, context.status.runs
    due = status.last_schedule_time
    if due is None:
        return
    is_over = status.finished or bool(status.failure_reason)
    if not runs and is_over and before.last_schedule_time == due:
        return  # it ended before a release with this history
    if not runs or runs[-1].schedule_time < due:
        if runs and runs[-1].result == RUN_RUNNING:
            requested = context.status.observed_restart_nonce != before.observed_restart_nonce
            result = RUN_FAILED if requested else RUN_REPLACED
            runs = (*runs[:-1], _ended(context, runs[-1], result))
        missed = status.finished and before.last_schedule_time != due
        new = RunStatus(schedule_time=due, result=RUN_RUNNING)
        runs = (*runs, _ended(context, new, RUN_MISSED) if missed else new)[-_LISTED:]
    if runs[-1].result == RUN_RUNNING:
        newest = runs[-1]
        if context.driver_active and not context.driver.stop_reason:
            # otherwise the newest attempt may be that of the run before
            newest = dataclasses.replace(newest, attempt=status.attempt)
        if status.finished:
            newest = _ended(context, newest, RUN_FINISHED)
        elif status.failure_reason:
            newest = _ended(context, newest, RUN_FAILED)
        runs = (*runs[:-1], newest)
    context.set(runs=runs)


def _ended(context: JobContext, run: RunStatus, result: str) -> RunStatus:
    return dataclasses.replace(run, result=result, finish_time=context.now)
