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

_KEPT = 50
"""Failures of each kind in a status, unless the strategy counts further. An exponential delay has
reached its longest by then, unless its multiplier is next to 1."""

_PATIENT = RestartSettings()
"""Of all that is not the application's: 1 s, doubling, to a minute."""


def remembered(
    spec: StreamingJobSpec, failures: tuple[FailureStatus, ...], newest: FailureStatus
) -> tuple[FailureStatus, ...]:
    """Return the failures to keep, with the newest.

    A driver that ran shows that its image was there and a node took it: those failures are over.
    """
    past = [f for f in failures if newest.kind in _BEFORE_RUNNING or f.kind not in _BEFORE_RUNNING]
    kept = max(_KEPT, spec.restart.restart_attempts + 1, spec.restart.restart_max_failures + 1)
    same = [f for f in (*past, newest) if f.kind == newest.kind]
    dropped = set(map(id, same[:-kept]))
    return tuple(f for f in (*past, newest) if id(f) not in dropped)


def next_start(spec: StreamingJobSpec, failures: tuple[FailureStatus, ...], seed: str) -> Restart:
    """Say when the driver after the last of these failures starts.

    Args:
        spec: the job's.
        failures: those of all kinds, the oldest first; at least one.
        seed: what the jitter is drawn by: the same failure must give the same delay.
    """
    kind = failures[-1].kind
    same = [Failure(at_s=f.at, ran_s=f.ran_s) for f in failures if f.kind == kind]
    if kind == APPLICATION:
        return next_restart(spec.restart, same, lambda: _chance(seed))
    limits = {IMAGE: spec.start.image_attempts, SCHEDULING: spec.start.scheduling_attempts}
    limit = limits.get(kind)
    if limit is not None and len(same) > limit:
        return Restart(None, f"{kind}: all {limit} further tries are spent")
    return next_restart(_PATIENT, same, lambda: _chance(seed))


_BEFORE_RUNNING = (IMAGE, SCHEDULING)


def _chance(seed: str) -> float:
    digest = hashlib.sha256(seed.encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)
