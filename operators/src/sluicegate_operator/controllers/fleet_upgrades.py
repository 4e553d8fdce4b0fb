"""Which jobs of the fleet are being upgraded or wait for that, by the cache of jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate_operator.controllers.resource import JobResource, runnable_spec
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.kube.work_queue import Priority
from sluicegate_operator.reconcile.upgrade_queue import is_under_way, next_in_order, waiting_since


@dataclass
class FleetUpgrades:
    """The upgrades of all jobs.

    Args:
        limit: how many running jobs may be upgraded at a time; 0: all.
        enqueue: called with a job whose turn it is.
    """

    limit: int
    enqueue: Callable[[Key], None]
    _under_way: set[Key] = field(default_factory=set)
    _waiting: dict[Key, float] = field(default_factory=dict)
    _reserved: set[Key] = field(default_factory=set)
    """Jobs whose upgrade was decided, but is not in the cache yet."""

    def wait_reason(self, key: Key, now: float) -> str:
        """Return why a job must not begin an upgrade now; empty: it may."""
        if not self.limit:
            return ""
        under_way = (self._under_way | self._reserved) - {key}
        if len(under_way) < self.limit:
            waiting = {key: now} | self._waiting
            waiting = {one: since for one, since in waiting.items() if one not in under_way}
            if key in next_in_order(under_way, waiting, self.limit):
                return ""
        return (
            f"the new spec waits until other jobs are upgraded: at most {self.limit} at a time; "
            "restartNonce applies it now"
        )

    def reserve(self, key: Key) -> None:
        """Count an upgrade that was decided until its status is written."""
        self._reserved.add(key)

    def release_reservation(self, key: Key) -> None:
        """Stop counting an upgrade that was decided: the cache has it, or its status was not written."""
        if key in self._reserved:
            self._reserved.discard(key)
            self._enqueue_next()

    def job_changed(self, key: Key, _old: JobResource | None, new: JobResource | None) -> None:
        """Follow a job, and queue the jobs whose turn it is after a change."""
        spec = None if new is None or new.status_error is not None else runnable_spec(new)
        under_way, since = False, None
        if new is not None and spec is not None and not new.meta.deleted:
            under_way = is_under_way(spec, new.status)
            since = waiting_since(spec, new.status)
        if (under_way, since) == (key in self._under_way, self._waiting.get(key)):
            return
        (self._under_way.add if under_way else self._under_way.discard)(key)
        if since is None:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = since
        self._enqueue_next()

    def _enqueue_next(self) -> None:
        under_way = self._under_way | self._reserved
        if self.limit and len(under_way) >= self.limit:
            return  # without a look at the waiting jobs, of which a fleet has thousands
        waiting = {one: since for one, since in self._waiting.items() if one not in under_way}
        for key in next_in_order(under_way, waiting, self.limit):
            self.enqueue(key)


def priority_of_change(old: JobResource, new: JobResource) -> Priority:
    """Return the priority of a job that has changed.

    An edit as of a whole fleet, which must not delay other work, is a new image or setting. To suspend,
    restart or delete a job is not.
    """
    if old.meta.generation == new.meta.generation or new.meta.deleted:
        return priority_of_step(new)
    before, after = old.valid_spec, new.valid_spec
    if before is None or after is None:
        return Priority.NORMAL
    same = (before.suspend, before.restart_nonce) == (after.suspend, after.restart_nonce)
    return Priority.BULK if same else Priority.NORMAL


def priority_of_step(job: JobResource | None) -> Priority:
    """Return the priority of the next step of a job: a low one in an upgrade.

    A fleet whose image changes always has as many upgrades under way as are allowed.
    """
    if job is None or job.meta.deleted or job.status.upgrade is None:
        return Priority.NORMAL
    return Priority.LOW
