"""A change of the spec: the old driver's end, by savepoint or not, and the checkpoint of the next.

Not here: the start of the next driver (`wishes`). Called by `wishes`.
"""

from __future__ import annotations

import dataclasses

from sluicegate_operator.reconcile.actions import TakeSavepoint
from sluicegate_operator.reconcile.drivers import BY_SAVEPOINT, ask, others_alive
from sluicegate_operator.reconcile.ends import SEALED
from sluicegate_operator.reconcile.observed import READY
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.resources.job import LAST_STATE, SAVEPOINT, STATELESS
from sluicegate_operator.resources.job_status import (
    ALIVE,
    FINISH,
    RUN,
    GoodStatus,
    StreamingJobStatus,
    UpgradeStatus,
)

UPGRADE = "upgrade"
"""A reason to stop."""

_GIVEN_UP = 3
"""Savepoints of one checkpoint, given up, that are kept in mind."""


def begin(p: Pass) -> None:
    """Notice that the newest driver is of another spec than there is now."""
    changed = p.driver.spec_hash != p.spec.running_hash()
    if not changed or p.status.upgrade is not None or p.status.attempt == 0:
        return
    if not p.underway:
        # there is no driver to take a savepoint of, and the checkpoint is what it would hold
        mode = STATELESS if p.spec.upgrade_mode == STATELESS else LAST_STATE
        p.forgive()
        p.set(upgrade=UpgradeStatus(mode=mode))
        return
    if p.spec.schedule is not None or p.driver.state != ALIVE or p.driver.purpose != RUN:
        return  # the next run has it; or there is nothing in view that could be stopped
    mode = p.spec.upgrade_mode
    if mode == SAVEPOINT and p.driver.running_at is None:
        mode = LAST_STATE
    name = f"{p.job.name}-upgrade-{p.status.attempt}" if mode == SAVEPOINT else ""
    p.set(upgrade=UpgradeStatus(mode=mode, savepoint=name))
    if not p.driver.stopping:
        p.set_driver(stopping=BY_SAVEPOINT if name else UPGRADE, stopping_at=p.now)
    p.report("Upgrading", f"the spec has changed; attempt {p.status.attempt} is stopped, {mode}")


def proceed(p: Pass) -> bool:
    """Go on with an upgrade; True when the next driver may start."""
    upgrade = p.status.upgrade
    if upgrade is None:
        return True
    if upgrade.savepoint and not _savepoint_ready(p, upgrade.savepoint):
        return False
    if p.underway:
        return False
    upgrade = p.status.upgrade or upgrade  # it may have become one without its savepoint
    if upgrade.mode == STATELESS and not p.status.settled and not p.job.skip_finish:
        return _finish_first(p)
    if upgrade.mode in (SAVEPOINT, STATELESS):
        _begin_checkpoint(p, upgrade.savepoint)
    p.forgive()
    p.set(upgrade=None, finished=p.status.finished and p.spec.schedule is not None)
    p.set_driver(spec_hash=p.spec.running_hash())
    return True


def rescue(p: Pass) -> None:
    """Go on from a savepoint that an upgrade did not wait for, and that sealed the checkpoint then.

    Only when a driver has found the seal, and once: the new checkpoint has given up no savepoint.
    """
    if p.underway or p.status.upgrade is not None or p.status.failed != SEALED:
        return
    for name in reversed(p.status.given_up):
        taken = p.observed.savepoints.get(name)
        if taken is not None and taken.phase == READY:
            _begin_checkpoint(p, name)
            p.forgive()
            p.report(
                "SavepointLate",
                f"savepoint {name} was taken after the upgrade had gone on without it; the job goes "
                f"on from it, as checkpoint {p.status.checkpoint_number}",
                warning=True,
            )
            return


def _begin_checkpoint(p: Pass, savepoint: str) -> None:
    """Leave the checkpoint for a new one, which is empty or begins with a savepoint of the old."""
    status = p.status
    used = (status.newest_checkpoint, *(pod.checkpoint_number for pod in p.observed.pods))
    number = max(status.checkpoint_number, *used) + 1
    good = status.good
    if good is not None and good.checkpoint_number == status.checkpoint_number:
        p.set(good=_good_after(good, status, number, savepoint))
    p.set(
        checkpoint_number=number,
        newest_checkpoint=number,
        restored_from=savepoint,
        given_up=(),
        settled=True,
        last_epoch=None,
        last_epoch_time=None,
    )


def _good_after(
    good: GoodStatus, status: StreamingJobStatus, number: int, savepoint: str
) -> GoodStatus:
    """Return what a rollback goes back to, when the good spec's checkpoint is left."""
    if not savepoint:
        return dataclasses.replace(good, given_up=status.given_up)
    # the old one is sealed: who goes back goes on with the new one
    return dataclasses.replace(
        good, checkpoint_number=number, restored_from=savepoint, epoch=None, given_up=()
    )


def _savepoint_ready(p: Pass, name: str) -> bool:
    """Take the upgrade's savepoint; True when it is ready, or the upgrade goes on without."""
    taken = p.observed.savepoints.get(name)
    if taken is not None and taken.phase == READY:
        return True
    deadline = (p.driver.stopping_at or p.now) + p.spec.savepoint_timeout_s
    failed = taken is not None and taken.phase == "Failed"
    if not failed and p.now < deadline:
        if taken is None:
            p.act(TakeSavepoint(name, p.status.attempt))
        p.wait("TakingSavepoint", f"savepoint {name} is being taken")
        p.wake(deadline)
        return False
    why = taken.message if taken is not None and failed else "it took too long"
    p.set(upgrade=UpgradeStatus(mode=LAST_STATE), given_up=(*p.status.given_up, name)[-_GIVEN_UP:])
    if p.underway and p.driver.stopping == BY_SAVEPOINT:
        p.set_driver(stopping=UPGRADE, stopping_at=p.now)
    p.report(
        "SavepointFailed",
        f"savepoint {name} was not taken ({why}); the upgrade goes on with the checkpoint as it is",
        warning=True,
    )
    return True


def _finish_first(p: Pass) -> bool:
    """Apply what the old checkpoint has decided before it is left; always False."""
    if p.status.failed:
        p.wait(
            "FinishFailed",
            "a decided epoch of the old checkpoint may not be in every sink and cannot be applied: "
            f"{p.status.last_error}",
        )
    elif startable(p, FINISH):
        ask(p, FINISH)
    return False


def startable(p: Pass, purpose: str = RUN) -> bool:
    """Say whether a pod could be asked for now; if not, what is waited for is noted."""
    alive = others_alive(p)
    if alive:
        p.wait("OldDriverAlive", f"attempt {alive[0]} has not ended yet")
        return False
    if p.status.next_start_time is not None and p.now < p.status.next_start_time:
        p.wait("BackingOff", p.status.last_error)
        p.wake(p.status.next_start_time)
        return False
    usable = purpose == FINISH and p.observed.volume_usable
    if not (p.observed.volume_ready or usable):
        p.wait("VolumeNotReady", p.observed.volume_message or "the CheckpointVolume is not ready")
        return False
    return purpose == FINISH or _restorable(p)


def _restorable(p: Pass) -> bool:
    """Say whether the savepoint that the checkpoint begins with is there, unless it is restored."""
    name = p.status.restored_from
    if not name or p.status.last_epoch is not None:
        return True
    taken = p.observed.savepoints.get(name)
    if taken is not None and taken.phase == READY:
        return True
    is_ = "does not exist" if taken is None else f"is {taken.phase}: {taken.message}".rstrip(": ")
    p.wait(
        "SavepointNotReady",
        f"checkpoint {p.status.checkpoint_number} begins with Savepoint {name}, which {is_}",
    )
    return False
