"""What people see of a pass: phase, conditions, progress.

Conditions: Accepted (the spec can be read), Ready (a driver runs, or a batch is done), VolumeReady,
Failed (no driver is started any more), Fenced (another driver was on the checkpoint), NodeLost (a
driver may be alive that cannot be seen), RolledBack (the resource's spec was given up for the last
good one). Not here: any decision. Called by `job`.
"""

from __future__ import annotations

from sluicegate_operator.reconcile.ends import FENCED
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.passes import Pass, shortened
from sluicegate_operator.resources.conditions import FALSE, TRUE, Condition, with_condition
from sluicegate_operator.resources.job_status import ALIVE, ASKED, StreamingJobStatus

PROGRESS_S = 30.0
"""Progress alone is written this often: a thousand jobs must not write at each of their epochs."""

_MESSAGE_BYTES = 500
"""Of a condition's message; `lastError` has more."""

_NAMED = 20
"""Attempts that a message names."""


def summarise(p: Pass, before: StreamingJobStatus) -> None:
    """Set phase, conditions and progress; `before` is the status as it was read."""
    pod = p.pod if p.underway else None
    p.set(phase=_phase(p, pod), observed_generation=p.job.generation)
    for condition in _conditions(p, pod):
        p.set(conditions=with_condition(p.status.conditions, condition))
    progress = pod.progress if pod is not None else None
    if progress is None:
        return
    since = before.last_epoch_time
    if p.status != before or since is None or not 0 <= progress.at - since < PROGRESS_S:
        p.set(
            last_epoch=p.status.last_epoch if progress.epoch is None else progress.epoch,
            last_epoch_time=round(progress.at, 3),
        )


def _phase(p: Pass, pod: Pod | None) -> str:
    status, driver = p.status, p.status.driver
    idle = "Waiting" if p.spec.schedule is not None else "Finished"
    for phase, so in (
        ("Deleting", p.job.deleted),
        ("Upgrading", (status.upgrade is not None or _going_back(p)) and not p.spec.suspend),
        ("Stopping", driver.state == ALIVE and bool(driver.stopping)),
        ("Running", driver.state == ALIVE and pod is not None and pod.running_at is not None),
        ("Starting", driver.state in (ASKED, ALIVE)),
        ("Suspended", p.spec.suspend),
        ("Failed", bool(status.failed)),
        (idle, status.finished),
        ("Restarting", status.next_start_time is not None),
        ("Waiting", p.spec.schedule is not None),
    ):
        if so:
            return phase
    return "Pending"


def _going_back(p: Pass) -> bool:
    return p.status.rollback is not None and not p.status.rollback.arrived


def _conditions(p: Pass, pod: Pod | None) -> list[Condition]:
    phase, waiting = p.status.phase, p.waiting
    lost = waiting is not None and waiting[0] == "NodeLost"
    ready = (phase == "Running" and not lost) or phase == "Finished"
    reason, message = (phase, "") if waiting is None else waiting
    made = [
        _condition(
            p,
            "Accepted",
            holds=not p.observed.unreadable,
            reason="SpecInvalid" if p.observed.unreadable else "SpecValid",
            message=p.observed.unreadable,
        ),
        _condition(p, "Ready", holds=ready, reason=reason, message=message),
        _condition(
            p,
            "VolumeReady",
            holds=p.observed.volume_ready,
            reason="Ready" if p.observed.volume_ready else "NotReady",
            message=p.observed.volume_message,
        ),
        _condition(
            p,
            "Failed",
            holds=bool(p.status.failed),
            reason=p.status.failed or "NotFailed",
            message=p.status.last_error if p.status.failed else "",
        ),
    ]
    newest = p.status.failures[-1].kind if p.status.failures else ""
    fenced = newest == FENCED and not (pod is not None and pod.progress is not None)
    zombies = ", ".join(map(str, p.status.may_be_alive[-_NAMED:]))
    for kind, so, said in (
        ("Fenced", fenced, p.status.last_error),
        (
            "NodeLost",
            lost or bool(zombies),
            message if lost else f"replaced, and may still be alive: attempt {zombies}",
        ),
        ("RolledBack", p.status.rollback is not None, _rolled_back(p)),
    ):
        if so or any(one.type == kind for one in p.status.conditions):
            made.append(
                _condition(
                    p,
                    kind,
                    holds=so,
                    reason=_reason(p, kind) if so else "Over",
                    message=said if so else "",
                )
            )
    return made


def _reason(p: Pass, kind: str) -> str:
    back = p.status.rollback
    return back.reason if kind == "RolledBack" and back is not None else kind


def _rolled_back(p: Pass) -> str:
    back, good = p.status.rollback, p.status.good
    if back is None or good is None:
        return ""
    return (
        f"spec {back.spec_hash} has made no epoch and was given up; the job runs spec "
        f"{good.spec_hash}. Another spec, or another restartNonce, is tried"
    )


def _condition(p: Pass, kind: str, *, holds: bool, reason: str, message: str) -> Condition:
    return Condition(
        type=kind,
        status=TRUE if holds else FALSE,
        reason=reason,
        message=shortened(message, _MESSAGE_BYTES),
        last_transition_time=p.now,
        observed_generation=p.job.generation,
    )
