"""How a driver ended: which restart budget the end counts against, and when the next driver starts.

The exit codes are those of `sluicegate.errors`. The application's budget is the user's restart strategy
(`sluicegate.settings.restart`, which `sluicegate run` uses too). The other budgets are exponential
delays, with or without a limit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sluicegate.deployment.termination import STOPPED
from sluicegate.errors import (
    AccessDenied,
    Fenced,
    PreflightFailed,
    RecordOfAnotherJob,
    Sealed,
    TargetMissing,
)
from sluicegate.settings.restart import Failure, Restart, RestartSettings, next_restart
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, DriverStatus, FailureStatus
from sluicegate_operator.reconcile.observed import Pod
from sluicegate_operator.reconcile.streaming_job.context import (
    IMAGE,
    NEVER_RAN,
    SCHEDULING,
    STARTUP,
    STUCK,
)

SUCCESS, FINAL = "Success", "Final"
APPLICATION, DISRUPTED, FENCED, ACCESS = "Application", "Disrupted", "Fenced", "Access"
"""Kinds of ends, besides those of NEVER_RAN. SUCCESS is no failure, and after FINAL no restart can
succeed. Each other kind has a budget of its own; those of DISRUPTED, FENCED and ACCESS are unlimited."""

_PASSING = (AccessDenied.__name__, TargetMissing.__name__)
"""Errors of a preflight that pass without a change of the job: a person corrects a permission or a
password, or creates a topic, table or bucket."""

SEALED = Sealed.__name__
"""Reason of an end: the checkpoint is closed, and its job continues from the savepoint."""

REASONS = {
    STUCK: "Stuck",
    IMAGE: "ImageNotPulled",
    SCHEDULING: "NotScheduled",
    STARTUP: "NotStarted",
}
"""Reasons of Events and ends, by why the driver was stopped."""

_MAX_COUNT = 50
"""How many failures of a kind are counted, unless a limit of the spec is higher. By then an exponential
delay has reached its maximum, unless its multiplier is close to 1."""

_MAX_ENTRIES = {APPLICATION: 30}
_MAX_ENTRIES_ELSE = 10
"""How many failures of a kind have an entry of their own in the status; older ones share one entry with a
count. The FailureRate strategy takes all failures of that entry to be as recent as its last one, so it may
fail a job early if it allows more than 30."""

_UNLIMITED = RestartSettings()
"""Delays of the kinds without a strategy: 1 s, doubling, at most a minute."""

_DELAYS = {
    # somebody has to do something about these
    STARTUP: RestartSettings(restart_initial_delay_s=5.0, restart_max_delay_s=300.0),
    ACCESS: RestartSettings(restart_initial_delay_s=60.0, restart_max_delay_s=3600.0),
    # nodes that come and go must not delay a job that works in between
    DISRUPTED: RestartSettings(restart_reset_s=60.0),
}
"""Delays of some kinds, where they are others."""


@dataclass(frozen=True)
class DriverEnd:
    """How a driver ended: the kind, a reason in CamelCase, and a message for people."""

    kind: str
    reason: str
    message: str


def classify_end(pod: Pod, driver: DriverStatus, *, finite: bool) -> DriverEnd:
    """Return how a dead pod ended, by the operator's own record of its driver.

    `finite`: whether the job ends by itself.
    """
    code = pod.exit_code
    message = pod.message or "no termination message"
    if driver.stop_reason == STUCK:
        return DriverEnd(APPLICATION, REASONS[STUCK], "the driver made no progress and was stopped")
    if driver.stop_reason in NEVER_RAN:
        return DriverEnd(driver.stop_reason, REASONS[driver.stop_reason], message)
    if driver.stop_reason:
        details = f"exit code {code}: {message}" if code else ""
        return DriverEnd(SUCCESS, "Stopped", details)
    if pod.terminating or pod.disrupted or (code is None and not pod.init_failure):
        # a batch driver that somebody stopped exits 0 too, but is not finished
        return DriverEnd(DISRUPTED, "Disrupted", f"its pod was deleted, evicted or lost: {message}")
    if code is None:
        return DriverEnd(APPLICATION, "InitContainerFailed", pod.init_failure)
    stopped = message.startswith(f"{STOPPED}:")  # by a probe, a deadline of the pod, a stop request
    finished = code == 0 and not stopped and (finite or driver.mode == APPLY_ONLY)
    return DriverEnd(SUCCESS, "Finished", "") if finished else _classify_exit(code, message)


def _classify_exit(code: int, termination: str) -> DriverEnd:
    message = f"exit code {code}: {termination}"
    if code == 0:
        if not termination.startswith(f"{STOPPED}:"):
            message = "the driver exited with 0, but a stream never ends by itself"
        return DriverEnd(APPLICATION, "UnexpectedExit", message)
    if code == PreflightFailed.exit_code:
        error = termination.partition(":")[0]
        passing = error in _PASSING
        return DriverEnd(*((ACCESS, error) if passing else (FINAL, "SettingsRefused")), message)
    if code == RecordOfAnotherJob.exit_code:
        return DriverEnd(FINAL, "HistoryBroken", message)
    if code == Fenced.exit_code:
        if termination.startswith(Sealed.__name__):
            return DriverEnd(FINAL, SEALED, message)
        return DriverEnd(FENCED, "Fenced", message)
    return DriverEnd(APPLICATION, "DriverFailed", message)


def add_failure(
    spec: StreamingJobSpec, failures: tuple[FailureStatus, ...], newest: FailureStatus
) -> tuple[FailureStatus, ...]:
    """Return the failures to record, including the newest.

    A driver that ran proves that its image was pulled and that it was scheduled, so failures of these kinds
    are dropped.
    """
    past = [f for f in failures if newest.kind in NEVER_RAN or f.kind not in NEVER_RAN]
    same = [f for f in (*past, newest) if f.kind == newest.kind]
    others = [f for f in past if f.kind != newest.kind]
    if len(same) > _MAX_ENTRIES.get(newest.kind, _MAX_ENTRIES_ELSE):
        same[:2] = [_merge(spec, same[0], same[1])]
    return (*others, *same)


def next_start(spec: StreamingJobSpec, failures: tuple[FailureStatus, ...], seed: str) -> Restart:
    """Return when the driver after the last of these failures starts: of all kinds, oldest first.

    `seed` determines the jitter: the same failure must always give the same delay.
    """
    kind = failures[-1].kind
    same = [one for f in failures if f.kind == kind for one in _expand(f)]
    if kind == APPLICATION:
        return next_restart(spec.restart, same, lambda: _jitter(seed))
    limit = {
        IMAGE: spec.startup.image_pull_attempts,
        SCHEDULING: spec.startup.scheduling_attempts,
        STARTUP: spec.startup.start_attempts,
    }.get(kind)
    if limit is not None and len(same) > limit:
        return Restart(None, f"all {limit} retries of kind {kind} are used up")
    return next_restart(_DELAYS.get(kind, _UNLIMITED), same, lambda: _jitter(seed))


def _merge(spec: StreamingJobSpec, first: FailureStatus, second: FailureStatus) -> FailureStatus:
    """Merge two consecutive failures into one entry."""
    if 0 < spec.restart.restart_reset_s <= second.run_s:
        return second  # a healthy run preceded it, so earlier failures no longer count
    counted = max(
        _MAX_COUNT,
        spec.restart.restart_attempts + 1,
        spec.restart.restart_max_failures + 1,
        spec.startup.image_pull_attempts + 1,
        spec.startup.scheduling_attempts + 1,
        spec.startup.start_attempts + 1,
    )
    return FailureStatus(
        kind=first.kind,
        time=second.time,
        run_s=first.run_s,
        volume_access=second.volume_access,
        count=min(counted, first.count + second.count),
    )


def _expand(entry: FailureStatus) -> list[Failure]:
    """Return the single failures of an entry; only the first can follow a healthy run."""
    first = Failure(at_s=entry.time, ran_s=entry.run_s)
    return [first] + [Failure(at_s=entry.time, ran_s=0.0)] * (entry.count - 1)


def _jitter(seed: str) -> float:
    digest = hashlib.sha256(seed.encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)
