"""Expiry: a job that has ended is deleted after `ttlSecondsAfterFinished`, as a Kubernetes Job is."""

from __future__ import annotations

from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.actions import DeleteJob
from sluicegate_operator.reconcile.streaming_job.context import JobContext
from sluicegate_operator.reconcile.streaming_job.failures import SEALED

_ENDED = ("Finished", "Failed")
"""Phases in which only a person can start the job again."""


def expire(context: JobContext, before: StreamingJobStatus) -> None:
    """Record when the job ended, and delete it when its time is over; `before` is the status that was read.

    The time is in the status, so it survives a restart of the operator. The deletion is requested only when
    the status needs no write: then the version that was read is the stored one, and the API server refuses
    the request if anybody has edited the job since.
    """
    since = context.status.finish_time or context.now
    context.set(finish_time=since if context.status.phase in _ENDED else None)
    ttl_s = context.job.spec.ttl_seconds_after_finished
    if context.status.finish_time is None or ttl_s is None or _is_held(context):
        return
    if context.now < since + ttl_s:
        context.requeue_at(since + ttl_s)
    elif context.status != before:
        context.requeue_at(context.now)
    else:
        context.add_action(DeleteJob())


def _is_held(context: JobContext) -> bool:
    """Return whether an ended job may still be needed.

    Its spec was edited into an invalid one, a driver that was replaced may be alive, a Savepoint is still to
    be copied from its checkpoint, or one that its upgrade gave up may have sealed the checkpoint.
    """
    observed, status = context.observed, context.status
    pending = any(one.phase == "Pending" for one in observed.savepoints.values())
    late = observed.savepoints.keys() & {*status.checkpoint.abandoned_savepoints}
    moved = status.failure_reason == SEALED and late
    return bool(observed.spec_error or status.unconfirmed_attempts or pending or moved)
