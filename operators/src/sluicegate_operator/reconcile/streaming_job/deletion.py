"""Deletion of a job: stop its driver, apply decided epochs, delete the checkpoint if configured, release."""

from __future__ import annotations

from sluicegate.settings.backoff import backoff_s
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, REQUESTED, TERMINATED
from sluicegate_operator.reconcile.actions import DeleteCheckpoint, DeletePod, RemoveFinalizer
from sluicegate_operator.reconcile.streaming_job.context import DELETE, JobContext
from sluicegate_operator.reconcile.streaming_job.driver_lifecycle import (
    older_attempts_alive,
    request_driver,
    retry_request,
    stop,
)
from sluicegate_operator.reconcile.streaming_job.startup import namespace_terminates
from sluicegate_operator.reconcile.streaming_job.upgrade import can_start

_HOW_TO_SKIP = "the annotation sluicegate.dev/skip-apply: 'true' skips this step"

_SKIPPED, _DELETING_CHECKPOINT = "ApplySkipped", "DeletingCheckpoint"
"""Reasons of the condition Ready of a job that is being released."""

_FIRST_RETRY_S, _LONGEST_RETRY_S = 60.0, 3600.0
"""Delay after an apply-only driver failed for good until the next one: doubling, up to an hour."""


def finalize(context: JobContext) -> None:
    """Take the next step of a deleted job."""
    if not context.job.has_finalizer:
        return
    restart = context.job.spec.restart_nonce != context.status.observed_restart_nonce
    if context.status.phase != "Deleting" or (restart and not context.driver_active):
        # earlier failures do not prevent the apply
        context.reset_failures()
        context.set(apply_failures=0, observed_restart_nonce=context.job.spec.restart_nonce)
    skip_apply = context.job.skip_apply or namespace_terminates(context)
    if namespace_terminates(context) and context.driver.state == REQUESTED:
        context.set_driver(state=TERMINATED)  # its pod will never be admitted
    if _apply_only_driver_active(context):
        retry_request(context)
        return
    if not stop(context, DELETE):
        return
    alive = older_attempts_alive(context)
    if alive:
        context.wait("OldDriverAlive", f"attempt {alive[0]} has not ended yet")
    elif context.status.all_epochs_applied or skip_apply:
        _release(context)
    else:
        _apply_decided_epochs(context)


def _apply_decided_epochs(context: JobContext) -> None:
    """Start an apply-only driver, or report why the decided epochs cannot be applied."""
    if context.observed.spec_missing:
        context.wait(
            "ApplyFailed",
            "a sink may lack a decided epoch, and no driver can be started because the spec is invalid: "
            f"{context.observed.spec_error}. Correct the spec; {_HOW_TO_SKIP}",
        )
    elif context.status.failure_reason and not _retry_due(context):
        context.wait(
            "ApplyFailed",
            "a sink may lack a decided epoch, which could not be applied: "
            f"{context.status.last_error}. The next try is at status.nextStartTime, or now if you change "
            f"restartNonce; {_HOW_TO_SKIP}",
        )
    elif can_start(context, APPLY_ONLY):
        request_driver(context, APPLY_ONLY)


def _report_skipped(context: JobContext, *, deletes_checkpoint: bool) -> None:
    """Report once that the job is released although a sink may lack a decided epoch."""
    reported = context.condition_reason("Ready") in (_SKIPPED, _DELETING_CHECKPOINT)
    if context.job.skip_apply:
        fate = "is deleted with" if deletes_checkpoint else "stays in"
        message = (
            "the job is deleted with the annotation sluicegate.dev/skip-apply: a sink may lack a decided "
            f"epoch, which {fate} the checkpoint"
        )
    else:
        message = (
            "the namespace is being deleted and admits no pods: a sink may lack a decided epoch, which "
            "stays in the checkpoint, whatever epochs.onCancel says. Delete jobs before their namespace"
        )
    context.wait(_SKIPPED, message)
    if not reported:
        context.emit_event(_SKIPPED, message, warning=True)


def _apply_only_driver_active(context: JobContext) -> bool:
    """Return whether an apply-only driver is active and must not be stopped."""
    if not context.driver_active or context.driver.mode != APPLY_ONLY or context.job.skip_apply:
        return False
    # without a valid spec a request for its pod cannot be repeated
    return not (context.observed.spec_missing and context.driver.state == REQUESTED)


def _retry_due(context: JobContext) -> bool:
    """Return whether an apply that failed for good is to be tried again now.

    A person may have fixed the cause in the meantime. Nothing reports that, so the operator keeps trying at
    growing intervals.
    """
    start = context.status.next_start_time
    if start is None:
        tries = context.status.apply_failures + 1
        start = round(context.now + backoff_s(tries, _FIRST_RETRY_S, _LONGEST_RETRY_S), 3)
        context.set(apply_failures=tries)
    # later than the longest delay: the clock was set back
    due = min(start, context.now + _LONGEST_RETRY_S)
    if context.now < due:
        context.set(next_start_time=due)
        context.requeue_at(due)
        return False
    context.set(failure_reason="")
    return True


def _release(context: JobContext) -> None:
    # an epoch that could not be applied in a terminating namespace is nowhere else
    disposable = context.status.all_epochs_applied or context.job.skip_apply
    # the resource decides, also after a rollback: the stable spec may be of before an edit to Retain
    delete = context.job.spec.epochs.on_cancel == "delete" and disposable
    if not context.status.all_epochs_applied:
        _report_skipped(context, deletes_checkpoint=delete)
    if delete and context.observed.checkpoint_exists is not False:
        context.add_action(DeleteCheckpoint(context.job.uid))
        context.wait(_DELETING_CHECKPOINT, "everything below the job's path is being deleted")
        return
    # the job goes last: without it nothing would retry the removal of a pod's finalizer
    held = [pod for pod in context.observed.pods if pod.has_finalizer or not pod.terminating]
    for pod in held:
        if not pod.dead:  # it was replaced without proof; `clean_up` deletes the dead ones
            context.add_action(DeletePod(pod.name, pod.uid))
    if not held:
        context.add_action(RemoveFinalizer())
