"""`reconcile_volume`: a CheckpointVolume is checked, measured, pruned, and deleted as it says.

Level-based, as `reconcile.job` is. A volume that was fit once and is not now lets no driver start,
and leaves those that run. Not here: what the tasks do. Called by whoever watches volumes.
"""

from __future__ import annotations

import dataclasses

from sluicegate_operator.reconcile.actions import AddFinalizer, RemoveFinalizer
from sluicegate_operator.resources.addresses import access_of, volume_address
from sluicegate_operator.resources.volume import DELETE, CheckpointVolumeStatus
from sluicegate_operator.volumes.observed import Volume, VolumeObserved
from sluicegate_operator.volumes.passes import Outcome, Pass, backoff, later, not_after
from sluicegate_operator.volumes.tasks import Broken, Delete, Done, Prepare
from sluicegate_operator.volumes.upkeep import judge_quota, keep_up

CHECK_S = 600.0
"""A fit volume is looked at again this often: two requests."""

SECRET_S = 30.0
"""A Secret that cannot be read is asked for again this often: Secrets are not watched."""

SETTLED_S = 30.0
"""Nothing is deleted before a view this much newer than the deletion shows that nobody is left: a
job that was made before may not be in an older one."""

_PREPARE_S, _DELETE_S = 120.0, 3600.0


@dataclasses.dataclass
class VolumePass(Pass[CheckpointVolumeStatus]):
    """A pass over a volume."""

    volume: Volume = dataclasses.field(kw_only=True)
    seen: VolumeObserved = dataclasses.field(kw_only=True)


def reconcile_volume(
    volume: Volume, observed: VolumeObserved, now: float
) -> Outcome[CheckpointVolumeStatus]:
    """Decide what to do about a volume now.

    Args:
        volume: the resource, with the newest status that is known.
        observed: what bears on it.
        now: seconds since 1970.
    """
    now = round(now, 3)
    status = _without_future(volume.status, now)
    p = VolumePass(status, volume.generation, observed.tasks, now, volume=volume, seen=observed)
    p.condition("Accepted", "SpecValid", holds=True)
    if volume.deleted_at is not None:
        _depart(p)
    else:
        _hold(p)
        if _check(p):
            keep_up(p, volume.spec, volume.name, observed)
        judge_quota(p, volume.spec)
    return p.done()


def _hold(p: VolumePass) -> None:
    """Hold the volume where it is to be emptied before it may go, or while jobs need it to end."""
    wanted = p.volume.spec.reclaim_policy == DELETE or bool(p.seen.jobs)
    if wanted and not p.volume.held:
        p.act(AddFinalizer())
    elif p.volume.held and not wanted:
        p.act(RemoveFinalizer())


def _check(p: VolumePass) -> bool:
    """See to it that the volume is known to be fit; True if it is."""
    spec, was = p.volume.spec, p.status.phase
    access = f"{access_of(spec)}/{p.seen.secret_version}"
    _take_in(p, access)
    if p.status.failures and p.status.tried_access != access:
        p.set(failures=0, failed="", last_error="", next_try_time=None)
    fit = p.status.checked_access == access and not p.status.failures
    if p.seen.secret_problem:
        fit = False
        p.set(failed="SecretUnreadable", last_error=p.seen.secret_problem)
        p.wake(p.now + SECRET_S)
    elif not p.status.failures:
        p.set(failed="", last_error="")
    due = _due(p, fit=fit)
    if not p.seen.secret_problem and not p.running(Prepare):
        if p.now >= due:
            make = p.status.checked_time is None
            task = Prepare(volume_address(spec), make, spec.region, access)
            p.run(task, p.volume.name, _PREPARE_S)
        else:
            p.wake(due)
    _summarise(p, was, fit=fit)
    return fit


def _take_in(p: VolumePass, access: str) -> None:
    """Take in how checks ended; those of other keys or another endpoint say nothing."""
    for task, state in p.of(Prepare):
        if task.access != access:
            continue
        if isinstance(state, Done) and later(state.at, p.status.checked_time):
            if state.result.made:
                p.report("BucketMade", f"bucket {p.volume.spec.bucket} was made")
            p.set(checked_time=round(state.at, 3), checked_access=access)
            p.set(failures=0, failed="", last_error="", next_try_time=None)
        elif isinstance(state, Broken) and later(state.at, p.status.tried_time):
            _failed(p, state, access)


def _failed(p: VolumePass, state: Broken, access: str) -> None:
    before = p.status.failures if p.status.tried_access == access else 0
    p.set(
        failures=before + 1,
        failed=state.kind,
        last_error=state.said,
        tried_time=round(state.at, 3),
        tried_access=access,
        next_try_time=round(state.at + backoff(before + 1), 3),
    )


def _due(p: VolumePass, *, fit: bool) -> float:
    if p.status.next_try_time is not None:
        return p.status.next_try_time
    return p.now if not fit or p.status.checked_time is None else p.status.checked_time + CHECK_S


def _summarise(p: VolumePass, was: str, *, fit: bool) -> None:
    if fit:
        p.set(phase="Ready")
        p.condition("Ready", "Ready", holds=True)
    elif p.status.failed:
        p.set(phase="Failed")
        p.condition("Ready", p.status.failed, p.status.last_error, holds=False)
    else:
        p.set(phase="Pending")
        p.condition("Ready", "Checking", "the store is being checked", holds=False)
    if was != p.status.phase and p.status.phase == "Ready":
        p.report("Ready", "the store is there, lets us in, and creates an object once")
    elif was != p.status.phase and p.status.phase == "Failed":
        p.report(p.status.failed, p.status.last_error, warning=True)


# --- deletion ----------------------------------------------------------------------------------------


def _depart(p: VolumePass) -> None:
    """Bring a deleted volume nearer to its end."""
    if p.status.phase != "Deleting":
        # whatever failed before, deletion is tried anew
        p.set(phase="Deleting", failures=0, failed="", last_error="", next_try_time=None)
    if not p.volume.held:
        return
    for _, state in p.of(Delete):
        if isinstance(state, Done) and not p.status.emptied:
            p.set(emptied=True, failures=0, failed="", last_error="", next_try_time=None)
            p.report("Emptied", f"{state.result.objects:,} objects below the prefix were deleted")
        elif isinstance(state, Broken) and later(state.at, p.status.tried_time):
            _failed(p, state, "delete")
            p.report("DeletionFailed", state.said, warning=True)
    if _nothing_to_do(p):
        p.condition("Ready", "Deleting", "nothing is left to do", holds=False)
        p.act(RemoveFinalizer())
        return
    reason, message = _waits_for(p)
    p.condition("Ready", reason, message, holds=False)


def _nothing_to_do(p: VolumePass) -> bool:
    spec, status = p.volume.spec, p.status
    if status.emptied or status.checked_time is None:
        return True  # one that was never fit holds nothing of ours
    return spec.reclaim_policy != DELETE and not p.seen.jobs


def _waits_for(p: VolumePass) -> tuple[str, str]:
    """Delete all below the prefix as soon as nobody uses it; say what is waited for."""
    users = [f"StreamingJob {name}" for name in p.seen.jobs]
    if p.volume.spec.reclaim_policy == DELETE:
        users += [f"Savepoint {name}" for name in p.seen.savepoints]
    if users:
        more = f" and {len(users) - 5} more" if len(users) > 5 else ""  # noqa: PLR2004 - said once
        return "InUse", f"used by {', '.join(users[:5])}{more}; it stays until they are deleted"
    settled = (p.volume.deleted_at or p.now) + SETTLED_S
    if p.seen.as_of < settled:
        p.wake(settled)
        return "Deleting", "waiting to be sure that nobody uses it any more"
    if p.seen.secret_problem:
        return "SecretUnreadable", f"{p.seen.secret_problem}; reclaimPolicy Retain lets it go"
    if p.running(Delete):
        return "Deleting", "everything below the prefix is being deleted"
    if p.status.next_try_time is not None and p.now < p.status.next_try_time:
        p.wake(p.status.next_try_time)
        return (
            p.status.failed,
            f"{p.status.last_error}; reclaimPolicy Retain lets it go and leaves the rest",
        )
    p.run(Delete(volume_address(p.volume.spec)), p.volume.name, _DELETE_S)
    return "Deleting", "everything below the prefix is being deleted"


def _without_future(status: CheckpointVolumeStatus, now: float) -> CheckpointVolumeStatus:
    """Return a status whose past is not in the future: the clock, or the machine, changed."""
    return dataclasses.replace(
        status,
        checked_time=not_after(status.checked_time, now),
        tried_time=not_after(status.tried_time, now),
        measured_time=not_after(status.measured_time, now),
        pruned_time=not_after(status.pruned_time, now),
        upkeep_failed_time=not_after(status.upkeep_failed_time, now),
    )
