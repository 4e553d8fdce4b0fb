"""Whether and when a driver that failed is replaced, by the budget of what failed.

The application's budget is the user's restart strategy (`sluicegate.settings.restart`, the same code
that `sluicegate run` restarts by); the others are exponential delays, with or without an end. Pure.
Called by `drivers`.
"""

from __future__ import annotations

import hashlib

from sluicegate.settings.restart import Failure, Restart, RestartSettings, next_restart
from sluicegate_operator.reconcile.ends import APPLICATION, IMAGE, SCHEDULING
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import FailureStatus

_COUNTED = 50
"""Failures of each kind, unless a limit counts further. An exponential delay has reached its longest
by then, unless its multiplier is next to 1."""

_LISTED = {APPLICATION: 30}
_LISTED_ELSE = 10
"""Failures of a kind in a status by themselves; older ones are one entry with a count. failure-rate
takes these for as late as the last of them, so it may end a job early that bears more than 30."""

_PATIENT = RestartSettings()
"""Of all that is not the application's: 1 s, doubling, to a minute."""


def remembered(
    spec: StreamingJobSpec, failures: tuple[FailureStatus, ...], newest: FailureStatus
) -> tuple[FailureStatus, ...]:
    """Return the failures to keep, with the newest.

    A driver that ran shows that its image was there and a node took it: those failures are over.
    """
    past = [f for f in failures if newest.kind in _BEFORE_RUNNING or f.kind not in _BEFORE_RUNNING]
    same = [f for f in (*past, newest) if f.kind == newest.kind]
    others = [f for f in past if f.kind != newest.kind]
    if len(same) > _LISTED.get(newest.kind, _LISTED_ELSE):
        same[:2] = [_merged(spec, same[0], same[1])]
    return (*others, *same)


def next_start(spec: StreamingJobSpec, failures: tuple[FailureStatus, ...], seed: str) -> Restart:
    """Say when the driver after the last of these failures starts.

    Args:
        spec: the job's.
        failures: those of all kinds, the oldest first; at least one.
        seed: what the jitter is drawn by: the same failure must give the same delay.
    """
    kind = failures[-1].kind
    same = [one for f in failures if f.kind == kind for one in _each(f)]
    if kind == APPLICATION:
        return next_restart(spec.restart, same, lambda: _chance(seed))
    limits = {IMAGE: spec.start.image_attempts, SCHEDULING: spec.start.scheduling_attempts}
    limit = limits.get(kind)
    if limit is not None and len(same) > limit:
        return Restart(None, f"{kind}: all {limit} further tries are spent")
    return next_restart(_PATIENT, same, lambda: _chance(seed))


def _merged(spec: StreamingJobSpec, first: FailureStatus, second: FailureStatus) -> FailureStatus:
    """Return two failures that follow each other as one entry."""
    if 0 < spec.restart.restart_reset_s <= second.ran_s:
        return second  # it was healthy: those before it count no more
    counted = max(
        _COUNTED,
        spec.restart.restart_attempts + 1,
        spec.restart.restart_max_failures + 1,
        spec.start.image_attempts + 1,
        spec.start.scheduling_attempts + 1,
    )
    return FailureStatus(
        kind=first.kind,
        at=second.at,
        ran_s=first.ran_s,
        count=min(counted, first.count + second.count),
    )


def _each(entry: FailureStatus) -> list[Failure]:
    """Return an entry's failures; only the first can have been healthy."""
    first = Failure(at_s=entry.at, ran_s=entry.ran_s)
    return [first] + [Failure(at_s=entry.at, ran_s=0.0)] * (entry.count - 1)


_BEFORE_RUNNING = (IMAGE, SCHEDULING)


def _chance(seed: str) -> float:
    digest = hashlib.sha256(seed.encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)
