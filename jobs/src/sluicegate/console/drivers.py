"""How the last drivers of a job ended, and why: failures, orderly ends, and drivers that were killed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sluicegate.console.model import JobFacts
from sluicegate.errors import Fenced
from sluicegate.storage.driver_end import DriverEnd, Why
from sluicegate.storage.driver_failure import RETAINED, DriverFailure

_KILLED = (
    "Nothing undecided is visible in a sink, and what is decided is applied by the next driver."
)
_ORDERLY = "Every decided epoch is in every sink."
_WHY = {
    Why.STOPPED: "A signal requested its end, and it ended after an epoch: it was suspended, "
    "upgraded, restarted on request or evicted, or somebody ended the process.",
    Why.FINISHED: "Its query ended: it has read all input, or its checkpoint had a stop request, "
    "as `sluicegate stop` and a savepoint with --stop do.",
}


@dataclass(frozen=True)
class Ended:
    """A driver that has ended.

    Args:
        title: the name of the error, or how it ended.
        what: what happened.
        data: what it means for the data.
        do: what to do, empty if nothing is to be done.
        then: what its supervisor did, empty if that is not recorded.
        ended_at_ms: when, in ms since 1970; of a driver whose end is not recorded, the start of the next.
        ran_ms: how long it had run, None if that is unknown.
        failed: whether it failed or was killed.
    """

    title: str
    what: str
    data: str
    do: str
    then: str
    ended_at_ms: int
    ran_ms: float | None
    failed: bool = True


def ended_drivers(job: JobFacts) -> list[Ended]:
    """Return the drivers that have ended, newest first."""
    found = [
        *map(_failed, job.failures),
        *map(_in_order, job.ends),
        *map(_unrecorded, _unrecorded_ms(job)),
    ]
    return sorted(found, key=lambda each: -each.ended_at_ms)


def _failed(of: DriverFailure) -> Ended:
    code = of.exit_code
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    what = of.what or "The driver wrote no reason: it was killed. Its log may say more."
    ran_ms = of.ran_s * 1000
    data = of.data or _KILLED
    return Ended(of.kind or how, what, data, of.do, of.then, of.ended_at_ms, ran_ms)


def _in_order(of: DriverEnd) -> Ended:
    ran_ms = of.ran_s * 1000
    return Ended(of.why, _WHY[of.why], _ORDERLY, "", "", of.ended_at_ms, ran_ms, failed=False)


def _unrecorded(next_started_ms: int) -> Ended:
    what = "Nobody recorded its end before the next driver started: it was killed together with its pod, "
    what += "machine or supervisor, or the store did not answer."
    return Ended("no end recorded", what, _KILLED, "", "", next_started_ms, None)


def _unrecorded_ms(job: JobFacts) -> Iterator[int]:
    """Yield when the next driver started, for each start that no recorded end belongs to."""
    started = sorted(start.started_at_ms for start in job.starts)
    open_ = set(started)
    ends = [(of.ended_at_ms, of.ran_s, of.kind == Fenced.__name__) for of in job.failures]
    ends += [(of.ended_at_ms, of.ran_s, False) for of in job.ends]
    for ended_at_ms, ran_s, fenced in sorted(ends):
        own = [at for at in open_ if ended_at_ms - ran_s * 1000 <= at <= ended_at_ms]
        if own:
            # the driver that fenced it started after it
            open_.discard(min(own) if fenced else max(own))
    pruned_ms = max(_pruned_ms(job.failures), _pruned_ms(job.ends))
    for at, following in pairwise(started):
        if at in open_ and at >= pruned_ms:
            yield following


def _pruned_ms(ends: tuple[DriverFailure, ...] | tuple[DriverEnd, ...]) -> int:
    """Return the time before which ends may have been pruned, 0 if none were."""
    return min(of.ended_at_ms for of in ends) if len(ends) >= RETAINED else 0
