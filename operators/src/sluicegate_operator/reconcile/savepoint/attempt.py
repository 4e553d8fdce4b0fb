"""One savepoint, from the name of its folder to its address: how it is taken, retried, and given up.

RETRIABLE errors come from a job that has no epoch yet, is starting or has an unfinished epoch; they are
retried without limit. PERMANENT errors mean that the checkpoint is broken; they end the savepoint. Any
other error, such as a store that does not answer, is retried up to MAX_FAILURES times. A savepoint of an
upgrade never waits for anything that could stop another driver than its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate.errors import (
    CheckpointOfAnotherJob,
    EpochLogBroken,
    EpochUnfinished,
    Fenced,
    OffsetLogDiverged,
    SavepointInvalid,
    SavepointRefused,
    SettingsInvalid,
    StoreUnsafe,
)
from sluicegate_operator.api.locations import access_parameters, checkpoint_address
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus, TakenStatus
from sluicegate_operator.api.streaming_job_status import ACTIVE, REQUESTED, RUN
from sluicegate_operator.reconcile.context import StorageContext, backoff, ended_after
from sluicegate_operator.reconcile.observed import Job, Savepoint, SavepointObserved, Volume
from sluicegate_operator.reconcile.readiness import readiness
from sluicegate_operator.reconcile.storage_tasks import (
    COPY,
    FINISH,
    REQUEST,
    SEAL,
    Done,
    FailedTask,
    NotAnswered,
    NotStopped,
    RequestNotAccepted,
    Running,
    SavepointTaken,
    TakeSavepoint,
)
from sluicegate_operator.reconcile.streaming_job.context import FOR_SAVEPOINT
from sluicegate_operator.reconcile.streaming_job.failures import SEALED


def _names(*errors: type[Exception]) -> frozenset[str]:
    return frozenset(error.__name__ for error in errors)


# SavepointRefused: no lineage or epoch yet, or Spark prunes files faster than they are copied
RETRIABLE = _names(
    SavepointRefused, EpochUnfinished, Fenced, RequestNotAccepted, NotAnswered, NotStopped
)
"""Errors that pass when the job changes its state."""

PERMANENT = _names(
    EpochLogBroken,
    OffsetLogDiverged,
    SavepointInvalid,
    SettingsInvalid,
    StoreUnsafe,
    CheckpointOfAnotherJob,
)
"""Errors that no retry can mend."""

MAX_FAILURES = 10
"""How many errors that are neither RETRIABLE nor PERMANENT end the savepoint."""

_FINAL_FOR_UPGRADE = _names(SavepointRefused, NotStopped)
"""Errors that end an upgrade's savepoint: the upgrade continues without it instead of waiting."""

_NOT_COMPLETED = PERMANENT | _names(SavepointRefused)
"""Errors after which a savepoint that was given up is not completed: its checkpoint is broken, or was
sealed by another one."""

_ACCEPT_TIMEOUT_S, _TASK_TIMEOUT_S = 60.0, 3600.0


@dataclass
class SavepointContext(StorageContext[SavepointStatus]):
    """The context of one Savepoint; `taking`: an attempt is in progress."""

    savepoint: Savepoint = field(kw_only=True)
    observed: SavepointObserved = field(kw_only=True)
    taking: bool = False

    @property
    def spec(self) -> SavepointSpec:
        """What the user wants."""
        return self.savepoint.spec

    @property
    def source(self) -> Volume | None:
        """The volume of the job's checkpoint, if the cache has it."""
        job = self.observed.job
        return None if job is None else self.observed.volumes.get(job.spec.checkpoint.volume)

    @property
    def target(self) -> Volume | None:
        """The volume that is copied to, if the cache has it. Once chosen it stays, even without the job."""
        name = self.status.volume or self.spec.volume
        return self.observed.volumes.get(name) if name else self.source

    def start_over(self, folder: str) -> None:
        """Begin the savepoint of a folder, or end the one in progress: without any failed attempt."""
        self.set(folder=folder, attempts=0, failures=0, next_retry_time=None, start_time=None)
        self.set(failure_reason="", last_error="")

    def no_target(self) -> tuple[str, str]:
        """Return why there is no volume to copy to."""
        name, job = self.status.volume or self.spec.volume, self.observed.job
        if not name:
            if job is None:
                message = f"there is no StreamingJob {self.spec.job}, and spec.volume is not set"
                return "JobMissing", message
            name = job.spec.checkpoint.volume
        return "VolumeMissing", f"there is no CheckpointVolume {name}"


def record_attempts(context: SavepointContext) -> None:
    """Record how attempts ended; those for another folder than the current one are obsolete."""
    for task, state in context.tasks_of(TakeSavepoint):
        if task.folder != context.status.folder:
            continue
        if isinstance(state, Running) and context.status.start_time is None:
            started = state.started_at
            context.set(start_time=None if started is None else round(started, 3))
        if isinstance(state, Done):
            _record_success(context, state.result)
        elif isinstance(state, FailedTask) and ended_after(state.at, context.status.failed_time):
            _record_failure(context, state)


def _record_success(context: SavepointContext, result: SavepointTaken) -> None:
    newest = TakenStatus(
        location=result.location,
        epoch=result.epoch,
        completion_time=round(result.at, 3),
        sealed=result.sealed,
    )
    others = (one for one in context.status.taken if one.location != newest.location)
    context.set(taken=(newest, *others))
    context.start_over(folder="")
    sealed = "; the checkpoint is sealed, and the job can continue from it" if result.sealed else ""
    context.emit_event("Taken", f"epoch {result.epoch} at {result.location}{sealed}")


def _record_failure(context: SavepointContext, state: FailedTask) -> None:
    """Count an attempt that failed, and schedule the next one or give up."""
    needed = is_only_continuation(context)
    final = _NOT_COMPLETED if needed else _FINAL_FOR_UPGRADE
    final_for_upgrade = context.savepoint.attempt is not None and state.kind in final
    counts = final_for_upgrade or state.kind not in RETRIABLE
    failures = context.status.failures + (1 if counts else 0)
    attempts = context.status.attempts + 1
    context.set(attempts=attempts, failures=failures)
    context.set(failed_time=round(state.at, 3), last_error=state.summary)
    exhausted = failures >= MAX_FAILURES and not needed
    if state.kind in PERMANENT or final_for_upgrade or exhausted:
        _give_up(context, state.kind, state.summary)
        return
    context.set(next_retry_time=round(state.at + backoff(attempts), 3))
    if attempts == 1:
        context.emit_event("NotTakenYet", state.summary, warning=True)


def _give_up(context: SavepointContext, reason: str, message: str) -> None:
    """End the savepoint in progress; a schedule continues at its next time."""
    context.set(folder="", failure_reason=reason, last_error=message, next_retry_time=None)
    context.emit_event("SavepointFailed", f"{reason}: {message}", warning=True)


def attempt_savepoint(context: SavepointContext) -> None:
    """Start an attempt, unless one is running, it is too early, or something is missing."""
    status, savepoint = context.status, context.savepoint
    for task, state in context.tasks_of(TakeSavepoint):
        if task.folder == status.folder and isinstance(state, Running):
            context.taking = True
            return
    wanted = savepoint.attempt is None or _upgrade_waits(context, savepoint.attempt)
    if not (wanted or is_only_continuation(context)):
        _give_up(context, "NotWanted", f"job {context.spec.job} has continued without it")
        return
    job, source, target = context.observed.job, context.source, context.target
    if job is None or not _is_same_job(savepoint, job):
        context.wait("JobMissing", f"there is no StreamingJob {context.spec.job}")
        return
    problem = _volume_problem(context, job)
    if problem is not None:
        context.wait(*problem)
        return
    assert source is not None
    assert target is not None
    method = _method(context, job)
    if method is None:
        message = f"the driver of job {job.name} is starting, stopping or only applying epochs"
        context.wait("JobUnsettled", message)
    elif status.next_retry_time is not None and context.now < status.next_retry_time:
        context.wait("BackingOff", status.last_error)
        context.requeue_at(status.next_retry_time)
    else:
        address = checkpoint_address(source.spec, job.name, job.spec, job.status.checkpoint.number)
        new_task = TakeSavepoint(address, status.folder, method, _ACCEPT_TIMEOUT_S)
        if not status.attempts:
            context.set(start_time=None)  # the operator was restarted: it waits in the queue again
        context.run(new_task, target.name, _TASK_TIMEOUT_S)
        context.taking = True


def _is_same_job(savepoint: Savepoint, job: Job) -> bool:
    return savepoint.job_uid in ("", job.uid)


def _upgrade_waits(context: SavepointContext, attempt: int) -> bool:
    """Return whether the upgrade that created this Savepoint still waits for it.

    If it does not, sealing the checkpoint would stop a job that has continued without the savepoint.
    """
    job, savepoint = context.observed.job, context.savepoint
    if job is None or job.deleted or not _is_same_job(savepoint, job):
        return False
    upgrade = job.status.upgrade
    named = upgrade is not None and upgrade.savepoint == savepoint.name
    return named and job.status.attempt == attempt


def is_only_continuation(context: SavepointContext) -> bool:
    """Return whether the job stands still because this Savepoint of its upgrade may have sealed its checkpoint.

    The upgrade had given it up, but no driver can go on with a sealed checkpoint.
    """
    job, savepoint = context.observed.job, context.savepoint
    of_job = savepoint.attempt is not None and job is not None and _is_same_job(savepoint, job)
    if job is None or job.deleted or not of_job:
        return False
    status = job.status
    idle = status.driver.state not in (REQUESTED, ACTIVE) and status.upgrade is None
    sealed = status.failure_reason == SEALED
    return idle and sealed and savepoint.name in status.checkpoint.abandoned_savepoints


def may_be_completed(context: SavepointContext) -> bool:
    """Return whether a savepoint that was given up is to be attempted again for a job that needs it."""
    reason = context.status.failure_reason
    return bool(reason) and reason not in _NOT_COMPLETED and is_only_continuation(context)


def _volume_problem(context: SavepointContext, job: Job) -> tuple[str, str] | None:
    """Return why the volumes are not usable, or None.

    Both must be ready and reached with one set of variables, all that a process has.
    """
    source, target = context.source, context.target
    if source is None:
        return "VolumeMissing", f"there is no CheckpointVolume {job.spec.checkpoint.volume}"
    if target is None:
        return context.no_target()
    for volume in (source, target):
        ready, message = readiness(volume.spec, volume.status)
        if not ready:
            return "VolumeNotReady", f"CheckpointVolume {volume.name}: {message}"
    if access_parameters(source.spec) == access_parameters(target.spec):
        return None
    return "OtherStore", (
        f"CheckpointVolumes {source.name} and {target.name} differ in endpoint, region, "
        "credentialsSecret or authoritySecret: a savepoint can only be copied within one store"
    )


def _method(context: SavepointContext, job: Job) -> str | None:
    """Return how the savepoint is to be taken; None: not while the driver changes its state."""
    if not context.spec.stop:
        return COPY
    if is_only_continuation(context):
        return FINISH
    driver = job.status.driver
    if driver.state not in (REQUESTED, ACTIVE):
        return SEAL
    steady = driver.start_time is not None and driver.stop_reason in ("", FOR_SAVEPOINT)
    return REQUEST if driver.state == ACTIVE and driver.mode == RUN and steady else None
