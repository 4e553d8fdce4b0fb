"""How a driver ended, and what that says: which budget it is of, and whether starting again helps.

The exit codes are those of `sluicegate.protocol.errors`. Not here: what is done about it. Called by
`drivers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.protocol.errors import (
    DecidedForAnotherJob,
    Fenced,
    PreflightFailed,
    Sealed,
)
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.resources.job_status import FINISH, DriverStatus

WELL = "well"
APPLICATION = "application"
IMAGE = "image"
SCHEDULING = "scheduling"
DISRUPTED = "disrupted"
FENCED = "fenced"
FINAL = "final"
"""Kinds of ends. WELL is no failure; after FINAL no start can help; the others have a budget each,
and those of DISRUPTED and FENCED are never spent."""

SEALED = "Sealed"
"""A reason: the checkpoint is closed, and its job goes on elsewhere."""

STUCK = "stuck"
"""A reason to stop a driver, beside IMAGE and SCHEDULING, that is a failure of that driver."""


@dataclass(frozen=True)
class End:
    """How a driver ended: kind, one word why, and a sentence for people."""

    kind: str
    reason: str
    message: str


def end_of(pod: Pod, driver: DriverStatus, *, finite: bool) -> End:
    """Return how a dead pod ended.

    Args:
        pod: the pod.
        driver: the operator's own record of it: what it was for, whether it was asked to stop.
        finite: whether the job ends by itself.
    """
    code = pod.exit_code
    said = pod.message or "it left no message"
    if driver.stopping == STUCK:
        return End(APPLICATION, "Stuck", "it reported no progress and was stopped")
    if driver.stopping in (IMAGE, SCHEDULING):
        return End(driver.stopping, _NOT_STARTED[driver.stopping], said)
    if driver.stopping:
        return End(WELL, "Stopped", "" if code in (0, None) else f"exit code {code}: {said}")
    if pod.terminating or pod.disrupted or code is None:
        # a batch that someone stopped exits 0 too, and is not done
        return End(DISRUPTED, "Disrupted", f"its pod was removed, evicted or lost: {said}")
    if code == 0 and (finite or driver.purpose == FINISH):
        return End(WELL, "Finished", "")
    return _failed(code, said)


def _failed(code: int, said: str) -> End:
    message = f"exit code {code}: {said}"
    if code == 0:
        return End(APPLICATION, "EndedUnasked", "it ended by itself, which a stream never does")
    if code == PreflightFailed.exit_code:
        return End(FINAL, "SettingsRefused", message)
    if code == DecidedForAnotherJob.exit_code:
        return End(FINAL, "HistoryBroken", message)
    if code == Fenced.exit_code:
        if said.startswith(Sealed.__name__):
            return End(FINAL, SEALED, message)
        return End(FENCED, "Fenced", message)
    return End(APPLICATION, "DriverFailed", message)


_NOT_STARTED = {IMAGE: "ImageNotPulled", SCHEDULING: "NotScheduled"}
