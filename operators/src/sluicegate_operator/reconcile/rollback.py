"""Rollback: a new spec that makes no epoch is given up for the last one that did.

What a driver sees comes from the last good spec then, what no driver sees (suspend, budgets, limits)
from the resource still. Not here: an upgrade (`upgrades`). Called by `job` and `wishes`.
"""

from __future__ import annotations

import dataclasses
import json

from sluicegate_operator.reconcile.drivers import halt
from sluicegate_operator.reconcile.ends import SEALED
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.resources.job_status import RUN, GoodStatus, RollbackStatus

ROLLBACK = "rollback"
"""A reason to stop."""

NO_EPOCH = "NoEpoch"
"""Why a spec was given up, where its driver has not failed for good."""

SPEC_BYTES = 8192
"""Of a spec that is kept: the status is written at every change, and is in every watch."""


def load(p: Pass) -> None:
    """Forget a rollback that is not wanted any more, or of which the good spec cannot be read."""
    status = p.status
    if not p.job.spec.rollback.enabled:
        if status.good is not None or status.rollback is not None:
            p.set(good=None, rollback=None, tried_since=None)
    elif status.rollback is not None and p.good_spec() is None:
        _forget(p)


def settle(p: Pass) -> bool:
    """Keep a spec that is good, and give up one that is not; False while its driver still ends."""
    _remember(p)
    why = _why_given_up(p)
    if why:
        _give_up(p, why)
    back = p.status.rollback
    if back is None:
        return True
    if not back.arrived:
        if not halt(p, ROLLBACK):
            return False
        _arrive(p, back)
    again = p.job.spec.restart_nonce != p.status.handled_nonce
    if again or back.spec_hash != p.job.spec.running_hash():
        p.set(rollback=None)
    return True


def _remember(p: Pass) -> None:
    """Keep the spec of a driver that has made an epoch."""
    pod, status, spec = p.pod, p.status, p.job.spec
    if not spec.rollback.enabled or status.rollback is not None or pod is None:
        return
    if pod.purpose != RUN or pod.progress is None or pod.progress.epoch is None:
        return
    spec_hash, number = spec.running_hash(), status.checkpoint_number
    if (pod.spec_hash, pod.checkpoint_number) != (spec_hash, number):
        return
    p.set(tried_since=None)
    good = status.good
    known = good is not None and good.epoch is not None
    if good and known and (good.spec_hash, good.checkpoint_number) == (spec_hash, number):
        return
    seen = spec.seen_by_driver()
    p.set(
        good=GoodStatus(
            spec=seen if len(json.dumps(seen)) <= SPEC_BYTES else {},
            spec_hash=spec_hash,
            checkpoint_number=number,
            restored_from=status.restored_from,
            epoch=pod.progress.epoch,
        )
    )


def _why_given_up(p: Pass) -> str:
    """Return in one word why the user's spec is to be given up now; empty: it is not."""
    status, spec = p.status, p.job.spec
    if not p.on_trial() or status.upgrade is not None:
        return ""
    if p.driver.spec_hash != spec.running_hash() or spec.restart_nonce != status.handled_nonce:
        return ""  # it was not tried yet, or is to be tried again
    if status.failed:
        return "" if status.failed == SEALED else status.failed  # no spec can go on there
    if status.tried_since is None or _excused(p):
        return ""
    deadline = status.tried_since + spec.rollback.deadline_s
    if p.now < deadline:
        p.wake(deadline)
        return ""
    return NO_EPOCH


def _excused(p: Pass) -> bool:
    """Say whether a driver that has made no epoch is none that another spec would better.

    Its node is silent; or it has reported that there was nothing to do.
    """
    pod = p.pod if p.underway else None
    if pod is None:
        return False
    return pod.progress is not None or (pod.node is not None and pod.node.silent_since is not None)


def _give_up(p: Pass, why: str) -> None:
    good = p.status.good
    if good is None or p.good_spec() is None:
        _forget(p)
        return
    bad = p.job.spec.running_hash()
    p.set(rollback=RollbackStatus(spec_hash=bad, reason=why))
    p.report(
        "RolledBack",
        f"spec {bad} has made no epoch ({why}); the job goes back to spec {good.spec_hash} and "
        f"checkpoint {good.checkpoint_number}",
        warning=True,
    )


def _arrive(p: Pass, back: RollbackStatus) -> None:
    """Go on where the good spec would: the bad one's driver has ended."""
    good = p.status.good
    assert good is not None  # `load` has dropped the rollback otherwise
    if good.checkpoint_number != p.status.checkpoint_number:
        p.set(
            checkpoint_number=good.checkpoint_number,
            restored_from=good.restored_from,
            given_up=good.given_up,
            settled=False,
            last_epoch=good.epoch,
            last_epoch_time=None,
        )
    p.forgive()
    p.set_driver(spec_hash=good.spec_hash)
    p.set(rollback=dataclasses.replace(back, arrived=True))


def _forget(p: Pass) -> None:
    large = p.status.good is not None and not p.status.good.spec
    p.set(good=None, rollback=None, tried_since=None)
    p.report(
        "NoRollback",
        "the last good spec "
        + ("was too large to be kept" if large else "in the status cannot be read")
        + "; the job stays with the spec of the resource",
        warning=True,
    )
