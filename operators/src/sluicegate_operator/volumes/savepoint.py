"""`reconcile_savepoint`: a Savepoint is taken, once or by schedule, and removed as it says.

Level-based, as `reconcile.job` is. The folder of a savepoint is in the status before anything is
copied there, and whoever takes it looks there first, so a try that was lost is made good by the
next. Not here: what the tasks do; how one is tried (`taking`). Called by whoever watches savepoints.
"""

from __future__ import annotations

import dataclasses

from sluicegate_operator.reconcile.actions import AddFinalizer, RemoveFinalizer
from sluicegate_operator.reconcile.schedule import newest_tick, next_tick
from sluicegate_operator.resources.addresses import savepoint_folder
from sluicegate_operator.resources.savepoint import DisposalStatus, SavepointStatus, TakenStatus
from sluicegate_operator.resources.volume import DELETE
from sluicegate_operator.volumes.observed import Savepoint, SavepointObserved
from sluicegate_operator.volumes.passes import Outcome, backoff, later, not_after
from sluicegate_operator.volumes.savepoint_pass import SavepointPass
from sluicegate_operator.volumes.taking import take_in, try_to_take
from sluicegate_operator.volumes.tasks import Broken, Dispose, Done, Take

_DISPOSE_S = 1800.0
_REFUSED = "SavepointRefused"


def reconcile_savepoint(
    savepoint: Savepoint, observed: SavepointObserved, now: float
) -> Outcome[SavepointStatus]:
    """Decide what to do about a savepoint now.

    Args:
        savepoint: the resource, with the newest status that is known.
        observed: what bears on it.
        now: seconds since 1970.

    Raises:
        SettingsInvalid: the schedule cannot be read; see `passes.refused`.
    """
    now = round(now, 3)
    status = _without_future(savepoint.status, now)
    p = SavepointPass(
        status, savepoint.generation, observed.tasks, now, savepoint=savepoint, seen=observed
    )
    p.condition("Accepted", "SpecValid", holds=True)
    take_in(p)
    _take_in_disposals(p)
    if savepoint.deleted:
        _depart(p)
        return p.done()
    _hold(p)
    if savepoint.generation != savepoint.status.observed_generation:
        p.set(failed="", failures=0, next_try_time=None)  # who changes it wants it tried again
    _begin(p)
    if p.status.folder:
        try_to_take(p)
    _keep_history(p)
    _summarise(p)
    return p.done()


def _hold(p: SavepointPass) -> None:
    """Hold the savepoint only where there is something to do before it may go."""
    wanted = p.spec.reclaim_policy == DELETE
    if wanted and not p.savepoint.held:
        p.act(AddFinalizer())
    elif p.savepoint.held and not wanted and not p.status.doomed:
        p.act(RemoveFinalizer())


# --- beginning ---------------------------------------------------------------------------------------


def _begin(p: SavepointPass) -> None:
    """Begin to take one, if it is due."""
    if p.spec.schedule is None:
        if not p.status.taken and not p.status.failed:
            _open(p, None)
        return
    upcoming = next_tick(p.spec.schedule, p.now)
    if upcoming is not None:
        p.wake(upcoming)
    tick, since = newest_tick(p.spec.schedule, p.now), p.status.last_schedule_time
    if p.status.folder or tick is None:
        return  # they never overlap
    if tick <= (p.savepoint.created_at if since is None else since):
        return
    late = p.spec.schedule.starting_deadline_s
    if late and p.now - tick > late:
        p.set(last_schedule_time=tick, failed="")
        p.report("SavepointMissed", f"one is {p.now - tick:.0f} s late and left out", warning=True)
        return
    _open(p, tick)


def _open(p: SavepointPass, tick: float | None) -> None:
    """Write down where the next one goes; that waits while its volume is not known."""
    volume, sp = p.target, p.savepoint
    if volume is None:
        p.wait(*p.no_target())
        return
    if p.status.folder:
        return
    folder = savepoint_folder(volume.spec, p.spec.job, sp.name, sp.uid, tick)
    p.set(
        volume=volume.name,
        folder=folder,
        tries=0,
        failures=0,
        next_try_time=None,
        failed="",
        last_error="",
    )
    if tick is not None:
        p.set(last_schedule_time=tick)


# --- history and disposal ----------------------------------------------------------------------------


def _keep_history(p: SavepointPass) -> None:
    """Drop what is over the history of a schedule, and remove it if the policy says so."""
    if p.spec.schedule is not None and len(p.status.taken) > p.spec.history:
        gone = tuple(one.location for one in p.status.taken[p.spec.history :])
        p.set(taken=p.status.taken[: p.spec.history])
        if p.spec.reclaim_policy == DELETE:
            p.set(doomed=(*p.status.doomed, *gone))
    if p.status.doomed:
        _dispose(p, Dispose(locations=p.status.doomed, force=p.savepoint.force))


def _dispose(p: SavepointPass, task: Dispose) -> tuple[str, str]:
    """Have savepoints removed; return what is waited for."""
    volume = p.target
    if volume is None:
        return p.no_target()
    removing = ("Disposing", "its data is being removed")
    if p.running(Dispose):
        return removing
    past = p.status.disposal
    forced = task.force and past.failed == _REFUSED
    if past.next_try_time is not None and p.now < past.next_try_time and not forced:
        p.wake(past.next_try_time)
        return past.failed, past.last_error
    p.run(task, volume.name, _DISPOSE_S)
    return removing


def _take_in_disposals(p: SavepointPass) -> None:
    whole = _whole(p)
    for task, state in p.of(Dispose):
        past = p.status.disposal
        if isinstance(state, Done):
            left = tuple(one for one in p.status.doomed if one not in task.locations)
            p.set(doomed=left, disposal=DisposalStatus(tried_time=past.tried_time))
            p.set(disposed=p.status.disposed or (p.savepoint.deleted and task == whole))
        elif isinstance(state, Broken) and later(state.at, past.tried_time):
            at = round(state.at, 3)
            made = DisposalStatus(
                tries=past.tries + 1,
                tried_time=at,
                next_try_time=round(at + backoff(past.tries + 1), 3),
                failed=state.kind,
                last_error=state.said,
            )
            p.set(disposal=made)
            if past.failed != state.kind:
                p.report("NotDisposed", state.said, warning=True)


def _whole(p: SavepointPass) -> Dispose:
    """Return the removal of all that was ever taken for this resource and is not removed yet."""
    sp, volume = p.savepoint, p.target
    locations = (*p.status.doomed, *(one.location for one in p.status.taken))
    folder = p.status.folder
    if volume is not None and p.spec.schedule is None and not folder:
        folder = savepoint_folder(volume.spec, p.spec.job, sp.name, sp.uid)
    return Dispose(locations, folder, sp.force)


def _depart(p: SavepointPass) -> None:
    """Bring a deleted savepoint nearer to its end."""
    p.set(phase="Deleting")
    if not p.savepoint.held:
        return
    if p.spec.reclaim_policy != DELETE or p.status.disposed or _never_began(p):
        p.act(RemoveFinalizer())
        return
    p.condition("Ready", *_waits_for(p), holds=False)


def _never_began(p: SavepointPass) -> bool:
    return not (p.status.folder or p.status.taken or p.status.doomed or p.status.tries)


def _waits_for(p: SavepointPass) -> tuple[str, str]:
    if p.seen.needed_by:
        return "InUse", f"still to be restored into {', '.join(sorted(p.seen.needed_by)[:5])}"
    if p.running(Take):
        return "Taking", "it is being taken; its data is removed after that"
    reason, message = _dispose(p, _whole(p))
    if reason == _REFUSED:
        message += "; the annotation sluicegate.dev/force-dispose: 'true' removes it all the same"
    return reason, message


def _summarise(p: SavepointPass) -> None:
    """Set phase and the condition Ready."""
    if p.status.folder:
        p.set(phase="Taking" if p.trying else "Pending")
    elif p.status.taken and not (p.status.failed and p.spec.schedule is None):
        p.set(phase="Ready")
    else:
        p.set(phase="Failed" if p.status.failed else "Pending")
    newest: TakenStatus | None = p.status.taken[0] if p.status.taken else None
    if p.status.failed:
        p.condition("Ready", p.status.failed, p.status.last_error, holds=False)
    elif newest is not None and not p.status.folder:
        p.condition("Ready", "Taken", f"epoch {newest.epoch}", holds=True)
    elif p.waiting is not None:
        p.condition("Ready", *p.waiting, holds=False)
    elif newest is None:
        p.condition("Ready", p.status.phase, holds=False)


def _without_future(status: SavepointStatus, now: float) -> SavepointStatus:
    """Return a status whose past is not in the future: the clock, or the machine, changed."""
    return dataclasses.replace(
        status,
        tried_time=not_after(status.tried_time, now),
        disposal=dataclasses.replace(
            status.disposal, tried_time=not_after(status.disposal.tried_time, now)
        ),
        last_schedule_time=not_after(status.last_schedule_time, now),
    )
