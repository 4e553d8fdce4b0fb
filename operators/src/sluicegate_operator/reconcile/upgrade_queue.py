"""The order in which running jobs may begin an upgrade, if only some may be upgraded at a time.

It is computed from the statuses of all jobs, so it survives a restart of the operator. The namespaces
take turns: the next one is the namespace with the fewest upgrades under way or placed before, and within a
namespace the job that has waited longest. So a tenant who upgrades a thousand jobs
does not make the others wait for all of them.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from sluicegate_operator.api.conditions import FALSE, TRUE
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.reconcile.pause import PAUSED

UPGRADE_QUEUED = "UpgradeQueued"
"""Type of the condition of a job that waits; its transition time is since when."""

Key = tuple[str, str]

_HALTED = ("OldDriverAlive", "NotEnding", "BackingOff")
"""Reasons of Ready for which an upgrade waits: for a person or a node, or until a failed driver is replaced."""


def is_under_way(spec: StreamingJobSpec, status: StreamingJobStatus) -> bool:
    """Return whether a job that is not being deleted counts against the limit.

    One whose upgrade cannot go on by itself does not, or a few of them would stop all upgrades: it is
    suspended, paused or failed, its old driver or node does not respond, its volume is not ready, or the
    driver that applies its decided epochs does not start or fails.
    """
    if status.upgrade is None or spec.suspend or status.failure_reason:
        return False
    if status.startup is not None and not status.driver.stop_reason:
        return False
    now = {one.type: one.status for one in status.conditions}
    halted = any(one.reason in _HALTED for one in status.conditions)
    halted = halted or TRUE in (now.get("NodeLost"), now.get(PAUSED))
    return not halted and now.get("VolumeReady") != FALSE


def waiting_since(spec: StreamingJobSpec, status: StreamingJobStatus) -> float | None:
    """Return since when a job that is not being deleted waits for its turn; None: it does not."""
    if spec.suspend:
        return None
    since = {one.type: one.last_transition_time for one in status.conditions if one.status == TRUE}
    return None if PAUSED in since else since.get(UPGRADE_QUEUED)


def next_in_order(
    under_way: Collection[Key], waiting: Mapping[Key, float], limit: int
) -> tuple[Key, ...]:
    """Return the jobs that may begin now, in order.

    Args:
        under_way: the jobs that are being upgraded.
        waiting: the others with a new spec, and since when they wait.
        limit: how many may be upgraded at a time; 0: all.
    """
    if not limit:
        return tuple(sorted(waiting, key=lambda key: (waiting[key], key)))
    free = max(0, limit - len(under_way))
    before = Counter(namespace for namespace, _ in under_way)
    by_namespace: defaultdict[str, list[tuple[float, Key]]] = defaultdict(list)
    for key, since in waiting.items():
        by_namespace[key[0]].append((since, key))
    ranked = [
        (before[namespace] + place, *one)
        for namespace, jobs in by_namespace.items()
        for place, one in enumerate(heapq.nsmallest(free, jobs))
    ]
    return tuple(key for _, _, key in heapq.nsmallest(free, ranked))
