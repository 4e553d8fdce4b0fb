"""`reconcile`: from a StreamingJob, what is seen of it, and the time, to a status and actions.

Level-based: it may be called at any time, with any view, however old, and again with the same one.
Whoever calls it writes the status first, under the resourceVersion of the status that was read, and
acts only when that write was taken (`actions`); where the status is the same there is nothing to
write. Not here: reading, writing, waiting.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.reconcile import drivers, rollback
from sluicegate_operator.reconcile.actions import Action
from sluicegate_operator.reconcile.departure import depart
from sluicegate_operator.reconcile.observed import Job, Observed
from sluicegate_operator.reconcile.passes import Pass
from sluicegate_operator.reconcile.summary import summarise
from sluicegate_operator.reconcile.wishes import steer
from sluicegate_operator.resources.conditions import FALSE, Condition, with_condition
from sluicegate_operator.resources.job_status import StreamingJobStatus


@dataclass(frozen=True)
class Outcome:
    """What to do.

    Args:
        status: to be written before anything is done, if it differs from the one that was read.
        actions: to be done in this order, and none after one that failed.
        wake_at: when to look again if nothing happens before; None: when something happens.
        failures: of drivers, by kind (`ends`), that the status has taken in now.
    """

    status: StreamingJobStatus
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    failures: tuple[str, ...] = ()


def reconcile(job: Job, observed: Observed, now: float) -> Outcome:
    """Decide what to do about a job now.

    Args:
        job: the resource, with the newest status that is known.
        observed: a view of its pods, volume and savepoints.
        now: seconds since 1970.

    Raises:
        SettingsInvalid: the schedule cannot be read; see `refused`.
    """
    now = round(now, 3)
    p = Pass(job, observed, now, _without_future(job.status, now))
    rollback.load(p)
    drivers.adopt(p)
    drivers.watch(p)
    if job.deleted:
        depart(p)
    else:
        steer(p)
    drivers.tidy(p)
    drivers.press(p)
    summarise(p, job.status)
    return Outcome(p.status, tuple(p.actions), p.wake_at, tuple(p.failed))


def refused(
    status: StreamingJobStatus, generation: int, error: SettingsInvalid, now: float
) -> Outcome:
    """Return what to do about a spec that cannot be read: say so, and leave a driver that runs.

    Args:
        status: the newest that is known.
        generation: of the spec.
        error: why it cannot be read.
        now: seconds since 1970.
    """
    said = Condition(
        type="Accepted",
        status=FALSE,
        reason="SpecInvalid",
        message=str(error),
        last_transition_time=round(now, 3),
        observed_generation=generation,
    )
    return Outcome(dataclasses.replace(status, conditions=with_condition(status.conditions, said)))


def _without_future(status: StreamingJobStatus, now: float) -> StreamingJobStatus:
    """Return a status whose past is not in the future: the clock, or the operator's machine, changed.

    Waiting then begins anew, so it is never cut short by this.
    """
    driver = status.driver
    if driver.asked_at is not None and driver.asked_at > now:
        driver = dataclasses.replace(driver, asked_at=now)
    if driver.stopping_at is not None and driver.stopping_at > now:
        driver = dataclasses.replace(driver, stopping_at=now)
    status = dataclasses.replace(status, driver=driver)
    if status.tried_since is not None and status.tried_since > now:
        status = dataclasses.replace(status, tried_since=now)
    if status.last_schedule_time is not None and status.last_schedule_time > now:
        status = dataclasses.replace(status, last_schedule_time=now)
    return status
