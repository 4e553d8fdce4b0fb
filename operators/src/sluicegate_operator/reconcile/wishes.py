"""Which driver is wanted, if any: suspended, restarted, upgraded, due, backing off.

Not here: a job that is being deleted (`departure`). Called by `job`.
"""

from __future__ import annotations

from sluicegate_operator.reconcile import rollback, upgrades
from sluicegate_operator.reconcile.drivers import ask, halt, keep
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.reconcile.schedule import newest_tick, next_tick
from sluicegate_operator.resources.job_status import RUN

SUSPEND, RESTART = "suspend", "restart"
"""Reasons to stop."""


def steer(p: Pass) -> None:
    """Do what the spec asks for."""
    if p.spec.suspend:
        if halt(p, SUSPEND):
            # who suspends a job has looked at it: its resumption starts with a clean slate
            p.forgive()
        return
    upgrades.rescue(p)
    if not rollback.settle(p):
        return
    upgrades.begin(p)
    if not _nonce_handled(p):
        return
    if upgrades.proceed(p) and not p.underway:
        _start(p)
    else:
        keep(p)


def _nonce_handled(p: Pass) -> bool:
    """Restart the driver if restartNonce has changed; False while the old one still ends."""
    if p.spec.restart_nonce == p.status.handled_nonce:
        return True
    if p.underway and p.status.upgrade is not None:
        return True  # it is being stopped, or finishes the old checkpoint: then it is our turn
    if not halt(p, RESTART):
        return False
    p.forgive()
    p.set(handled_nonce=p.spec.restart_nonce, finished=False)
    if p.spec.schedule is not None:
        p.set(last_schedule_time=p.now)  # a run out of turn
    return True


def _start(p: Pass) -> None:
    """Start the next driver, if it is due and nothing is in its way."""
    if not _due(p):
        return
    if p.status.failed:
        p.wait(p.status.failed, p.status.last_error)
        return
    if p.status.attempt == 0:
        p.set(restored_from=p.spec.checkpoint.restore_from)
    if upgrades.startable(p):
        ask(p, RUN)


def _due(p: Pass) -> bool:
    """Say whether a run is due, or one that has begun goes on."""
    schedule = p.spec.schedule
    if schedule is None:
        return not p.status.finished
    open_run = p.status.last_schedule_time is not None and not p.status.finished
    if open_run and not p.status.failed:
        return True
    upcoming = next_tick(schedule, p.now)
    if upcoming is not None:
        p.wake(upcoming)
    tick = newest_tick(schedule, p.now)
    since = p.status.last_schedule_time
    if tick is None or tick <= (p.job.created_at if since is None else since):
        return False
    p.forgive()
    late = schedule.starting_deadline_s
    missed = bool(late) and p.now - tick > late
    p.set(last_schedule_time=tick, finished=missed)
    if missed:
        p.report("RunMissed", f"a run is {p.now - tick:.0f} s late and left out", warning=True)
    return not missed
