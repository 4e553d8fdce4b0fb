"""The newest driver and its pod: asked for, seen, watched, stopped, and its end accounted for.

Never two at a time: attempt n+1 is asked for only when n has ended, and n has ended only when its
pod is dead, or was given up by the rule of lost nodes. Not here: which driver is wanted (`wishes`).
"""

from __future__ import annotations

from sluicegate_operator.reconcile import ends
from sluicegate_operator.reconcile.actions import (
    AddFinalizer,
    CreateDriver,
    DropPod,
    ReleasePod,
    StopDriver,
)
from sluicegate_operator.reconcile.budgets import next_start, remembered
from sluicegate_operator.reconcile.limits import check_limits
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.passes import LANDS_S, SEEN_S, Pass
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import (
    ALIVE,
    ASKED,
    ENDED,
    FINISH,
    RUN,
    DriverStatus,
    FailureStatus,
)

BY_SAVEPOINT = "savepoint"
"""A reason to stop: the driver ends by itself when its savepoint is taken."""


def adopt(p: Pass) -> None:
    """Take over a pod that is newer than the status: someone has changed or lost the status."""
    newest = max(p.observed.pods, key=lambda pod: pod.attempt, default=None)
    if newest is None or newest.attempt <= p.status.attempt:
        return
    p.set(
        attempt=newest.attempt,
        checkpoint_number=newest.checkpoint_number,
        restored_from=newest.restore_from,
        settled=False,
        last_epoch=None,
        last_epoch_time=None,
    )
    p.set(driver=DriverStatus(state=ASKED, asked_at=min(newest.created_at, p.now)))
    if p.on_trial() and p.status.tried_since is None:
        p.set(tried_since=p.driver.asked_at)
    p.report("Adopted", f"attempt {newest.attempt} was there, and not in the status", warning=True)


def watch(p: Pass) -> None:
    """Take in what has become of the newest driver."""
    if not p.underway:
        return
    pod = p.pod
    if pod is None:
        if p.driver.state == ALIVE and p.believes_absence():
            _vanished(p)
        elif p.driver.state == ALIVE:
            p.wake((p.driver.asked_at or p.now) + LANDS_S)
        return
    p.set_driver(state=ALIVE, uid=pod.uid, purpose=pod.purpose, spec_hash=pod.spec_hash)
    if pod.running_at is not None and p.driver.running_at is None:
        p.set_driver(running_at=pod.running_at)
        p.set(settled=False)
    if pod.dead:
        _account(p, pod, ends.end_of(pod, p.driver, finite=p.spec.finite))
    elif check_limits(p, pod):
        _give_up(p, pod)


def tidy(p: Pass) -> None:
    """Stop drivers that are not wanted, and let go of pods that are dead."""
    alive = {pod.attempt for pod in p.observed.pods if not pod.dead}
    known = {pod.attempt for pod in p.observed.pods} if not p.believes_absence() else None
    for pod in p.observed.pods:
        newest = pod.attempt == p.status.attempt
        if newest and p.underway:
            continue
        if not pod.dead:
            if not pod.terminating:
                p.act(StopDriver(pod.name, pod.uid, p.spec.grace_s))
        elif not newest or p.job.deleted:
            if pod.held or not pod.terminating:
                p.act(DropPod(pod.name, pod.uid))
        elif pod.held:
            p.act(ReleasePod(pod.name, pod.uid))
    # one that is not in view is forgotten only when the view is newer than its giving up
    p.set(
        may_be_alive=tuple(
            n for n in p.status.may_be_alive if n in alive or (known is not None and n not in known)
        )
    )


def others_alive(p: Pass) -> tuple[int, ...]:
    """Return attempts that live, and were not given up."""
    return tuple(
        pod.attempt
        for pod in p.observed.pods
        if not pod.dead and pod.attempt not in p.status.may_be_alive
    )


def ask(p: Pass, purpose: str) -> None:
    """Raise the attempt and ask for its pod. The status is written before the pod is made."""
    if p.status.next_start_time is not None:
        p.set(restarts=p.status.restarts + 1)
    if p.on_trial() and p.status.tried_since is None and purpose == RUN:
        p.set(tried_since=p.now)
    spec = _spec_for(p, purpose)
    p.set(
        attempt=p.status.attempt + 1,
        next_start_time=None,
        driver=DriverStatus(
            state=ASKED,
            purpose=purpose,
            asked_at=p.now,
            tries=1,
            spec_hash=spec.running_hash(),
        ),
    )
    _create(p, spec)


def keep(p: Pass) -> None:
    """Ask again for a pod that was asked for and is not there: an operator may have died between.

    The status is written again first: if it is older than another operator's, nothing is made.
    """
    asked = p.driver.asked_at
    if p.driver.state != ASKED or p.pod is not None or asked is None:
        return
    if p.observed.as_of < asked + SEEN_S:
        p.wake(asked + SEEN_S)
        return
    spec = _spec_for(p, p.driver.purpose)
    p.set_driver(asked_at=p.now, tries=p.driver.tries + 1, spec_hash=spec.running_hash())
    _create(p, spec)
    p.wake(p.now + SEEN_S)


def halt(p: Pass, why: str) -> bool:
    """See to it that there is no driver; True when there is none."""
    if not p.underway:
        return True
    if p.driver.state == ASKED:
        if p.believes_absence():
            p.set_driver(state=ENDED)
            return True
        p.wake((p.driver.asked_at or p.now) + LANDS_S)
        return False
    if p.driver.stopping in ("", BY_SAVEPOINT):
        p.set_driver(stopping=why, stopping_at=p.now)
        p.report("Stopping", f"attempt {p.status.attempt} is asked to stop: {why}")
    return False


def press(p: Pass) -> None:
    """Delete the pod of a driver that is to stop, until it is seen to be deleted."""
    pod = p.pod
    if not p.underway or pod is None or pod.terminating:
        return
    if p.driver.stopping and p.driver.stopping != BY_SAVEPOINT:
        p.act(StopDriver(pod.name, pod.uid, p.spec.grace_s))


def _spec_for(p: Pass, purpose: str) -> StreamingJobSpec:
    """Return what a driver runs. One that finishes needs the sinks of whoever decided."""
    if purpose == FINISH:
        last = p.driver.spec_hash
        good = p.good_spec() if p.status.good and p.status.good.spec_hash == last else None
        if good is not None:
            return good
        if p.job.spec.running_hash() == last:
            return p.job.spec
    return p.spec


def _create(p: Pass, spec: StreamingJobSpec) -> None:
    if not p.job.held:
        p.act(AddFinalizer())
    finishes = p.driver.purpose == FINISH
    p.act(
        CreateDriver(
            p.status.attempt,
            p.driver.purpose,
            p.driver.spec_hash,
            p.status.checkpoint_number,
            "" if finishes else p.status.restored_from,  # one that is empty has nothing to finish
            spec,
        )
    )


def _vanished(p: Pass) -> None:
    """Account for a pod that was taken away together with our finalizer: that is a person's word."""
    stopping = p.driver.stopping
    p.set_driver(state=ENDED)
    p.set(settled=False)
    if not stopping or stopping in (ends.STUCK, ends.IMAGE, ends.SCHEDULING):
        _failed(p, ends.End(ends.DISRUPTED, "Disrupted", "its pod was removed"), 0.0)


def _give_up(p: Pass, pod: Pod) -> None:
    """Go on without proof that a driver is dead."""
    p.set_driver(state=ENDED)
    p.set(may_be_alive=(*p.status.may_be_alive, pod.attempt), settled=False)
    p.report(
        "NodeLost",
        f"the node of attempt {pod.attempt} is silent; the driver is replaced and may still be alive",
        warning=True,
    )


def _account(p: Pass, pod: Pod, end: ends.End) -> None:
    """Write down how a driver ended, and when the next may start."""
    began = p.driver.running_at
    ended = pod.ended_at if pod.ended_at is not None else p.now
    p.set_driver(state=ENDED)
    if began is not None:
        # a seal is set only when every decided epoch is in every sink
        p.set(settled=pod.exit_code == 0 or end.reason == ends.SEALED)
    if end.message:
        p.blame(end.message)
    if end.kind == ends.WELL:
        p.set(failures=p.status.failures if end.reason == "Stopped" else ())
        if end.reason == "Finished" and p.driver.purpose != FINISH:
            p.set(finished=True)
            p.report("Finished", f"attempt {pod.attempt} has done all there was")
        return
    _failed(p, end, max(0.0, ended - began) if began is not None else 0.0)


def _failed(p: Pass, end: ends.End, ran_s: float) -> None:
    what = f"attempt {p.status.attempt} failed ({end.reason}): {end.message}"
    p.blame(end.message)
    p.failed.append(end.kind)
    if end.kind == ends.FINAL:
        p.set(failed=end.reason)
        p.report(end.reason, f"{what}; starting again cannot help", warning=True)
        return
    newest = FailureStatus(kind=end.kind, at=p.now, ran_s=round(ran_s, 3))
    p.set(failures=remembered(p.spec, p.status.failures, newest))
    following = next_start(p.spec, p.status.failures, f"{p.job.uid}/{p.status.attempt}")
    if following.delay_s is None:
        p.set(failed=end.reason)
        p.report(end.reason, f"{what}; not started again ({following.why})", warning=True)
        return
    p.set(next_start_time=round(p.now + following.delay_s, 3))
    p.report(
        end.reason, f"{what}; restart in {following.delay_s:.3g} s ({following.why})", warning=True
    )
