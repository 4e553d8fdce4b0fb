"""Limits of a driver that has not ended: its image, its node's word, its progress.

Not here: what its end means (`ends`). Called by `drivers`.
"""

from __future__ import annotations

from sluicegate_operator.reconcile.ends import IMAGE, SCHEDULING, STUCK
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.resources.job import RESTART

_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Why a container waits when its image is not there (the kubelet's words)."""


def check_limits(p: Pass, pod: Pod) -> bool:
    """Stop a driver that is over a limit; True if it is to be given up without proof of its end."""
    if pod.node is not None and pod.node.silent_since is not None:
        return _silent(p, pod.node.silent_since)
    if p.driver.stopping:
        return False
    if pod.running_at is not None:
        _progress(p, pod, pod.running_at)
    elif pod.waiting in _NO_IMAGE:
        _since(p, pod.created_at, p.spec.start.image_timeout_s, IMAGE)
    elif pod.node is None and p.spec.start.scheduling_timeout_s > 0:
        _since(p, pod.created_at, p.spec.start.scheduling_timeout_s, SCHEDULING)
    return False


def may_replace_silent(p: Pass) -> bool:
    """Say whether a driver on a silent node may be replaced after the deadline (rule 17)."""
    return not p.spec.stateful or p.spec.lost_node.stateful == RESTART


def _silent(p: Pass, since: float) -> bool:
    if not may_replace_silent(p):
        p.wait(
            "NodeLost",
            f"attempt {p.status.attempt} may be alive on a node that is silent; a stateful job waits "
            "for proof: the node's return, its deletion, or the taint "
            "node.kubernetes.io/out-of-service",
        )
        return False
    deadline = since + p.spec.lost_node.deadline_s
    if p.now >= deadline:
        return True
    p.wait("NodeLost", f"attempt {p.status.attempt} may be alive on a node that is silent")
    p.wake(deadline)
    return False


def _progress(p: Pass, pod: Pod, running_at: float) -> None:
    if not p.spec.stuck_after_s:
        return
    began = running_at if pod.seen_running_at is None else pod.seen_running_at
    newest = max(began, pod.progress.at) if pod.progress else began
    _since(p, newest, p.spec.stuck_after_s, STUCK)


def _since(p: Pass, since: float, limit_s: float, why: str) -> None:
    """Stop the driver if it is over a limit, or look again when it would be."""
    if p.now < since + limit_s:
        p.wake(since + limit_s)
        return
    p.set_driver(stopping=why, stopping_at=p.now)
    p.report(
        {STUCK: "Stuck", IMAGE: "ImageNotPulled", SCHEDULING: "NotScheduled"}[why],
        f"attempt {p.status.attempt} is stopped: {_SAID[why]} for {p.now - since:.0f} s",
        warning=True,
    )


_SAID = {
    STUCK: "it has reported no progress",
    IMAGE: "its image was not there",
    SCHEDULING: "no node has taken it",
}
