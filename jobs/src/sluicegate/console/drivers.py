"""How the last drivers of a job ended, and why: failures, orderly ends, and drivers that were killed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sluicegate.console.model import JobFacts, UnreadEnd
from sluicegate.errors import Fenced
from sluicegate.storage.driver_end import DriverEnd, Why
from sluicegate.storage.driver_failure import RETAINED, DriverFailure

_KILLED = (
    "Nothing undecided is visible in a sink, and what is decided is applied by the next driver."
)
_ORDERLY = "Every decided epoch is in every sink."
_OTHER = "It ended without a failure, for a reason that this version of the console does not know."
_UNREAD = "Not known from its record: the list of who has which epoch says what is in the sinks."
_UNREADABLE = "record not readable"
_NO_RECORD = (
    "Its record is damaged, or was written by another version: the note below has the error."
)
_WHY: dict[str, str] = {
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
        is_dated: whether its own end is recorded.
    """

    title: str
    what: str
    data: str
    do: str
    then: str
    ended_at_ms: int
    ran_ms: float | None
    failed: bool = True
    is_dated: bool = True


def ended_drivers(job: JobFacts) -> list[Ended]:
    """Return the drivers that have ended, newest first."""
    found = [
        *map(_failed, job.failures),
        *map(_in_order, job.ends),
        *map(_unread, job.unread_ends),
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
    what, data = _WHY.get(of.why, _OTHER), _ORDERLY if of.why in _WHY else _UNREAD
    return Ended(of.why, what, data, "", "", of.ended_at_ms, ran_ms, failed=False)


def _unread(of: UnreadEnd) -> Ended:
    what = f"It {'failed' if of.failed else 'ended without a failure'}. {_NO_RECORD}"
    do = "Use the console of the version that the driver had."
    return Ended(_UNREADABLE, what, _UNREAD, do, "", of.ended_at_ms, None, of.failed)


def _unrecorded(next_started_ms: int) -> Ended:
    what = "Nobody recorded its end before the next driver started: it was killed together with its pod, "
    what += "machine or supervisor, or the store did not answer."
    return Ended("no end recorded", what, _KILLED, "", "", next_started_ms, None, is_dated=False)


def _unrecorded_ms(job: JobFacts) -> Iterator[int]:
    """Yield when the next driver started, for each start that no recorded end belongs to."""
    started = sorted(start.started_at_ms for start in job.starts)
    open_ = set(started)
    ends = [(of.ended_at_ms, of.ran_s, of.kind == Fenced.__name__) for of in job.failures]
    ends += [(of.ended_at_ms, of.ran_s, False) for of in job.ends]
    # how long it had run is unknown: it is that of the last driver that had started
    ends += [(of.ended_at_ms, math.inf, False) for of in job.unread_ends]
    for ended_at_ms, ran_s, fenced in sorted(ends):
        own = [at for at in open_ if ended_at_ms - ran_s * 1000 <= at <= ended_at_ms]
        if own:
            # the driver that fenced it started after it
            open_.discard(min(own) if fenced else max(own))
    pruned_ms = max(_pruned_ms(job, failed=failed) for failed in (True, False))
    for at, following in pairwise(started):
        if at in open_ and at >= pruned_ms:
            yield following


def _pruned_ms(job: JobFacts, *, failed: bool) -> int:
    """Return the time before which failures, or other ends, may have been pruned, 0 if none were."""
    times = [of.ended_at_ms for of in (job.failures if failed else job.ends)]
    times += [of.ended_at_ms for of in job.unread_ends if of.failed == failed]
    return min(times) if len(times) >= RETAINED else 0
