"""The ladder of a job: who has which epoch, from the plan to Spark's commit, and the next try. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sluicegate.console.model import Epoch, JobFacts
from sluicegate.console.operations import streaming_job
from sluicegate.deployment.job_actions import plugin_command
from sluicegate.protocol.job import Job
from sluicegate.settings.epoch import AT_MOST_ONCE
from sluicegate.storage.driver_failure import DriverFailure

_NEXT_TRY = "next try"


@dataclass(frozen=True)
class Rung:
    """A step of the ladder: who has which epoch.

    Args:
        who: a sink, or a step of the protocol.
        epoch: that it has, None if it has none.
        note: what that means.
        since_ms: since when, in ms since 1970; 0 if that is unknown.
        in_doubt: whether a sink may have this epoch or lack it.
        at_ms: a time that belongs to the note, 0 if none does.
    """

    who: str
    epoch: int | None
    note: str
    since_ms: int = 0
    in_doubt: bool = False
    at_ms: int = 0


def ladder(job: JobFacts) -> list[Rung]:
    """Return who has which epoch, from the plan to Spark's commit, and when it is tried again."""
    newest = job.newest
    rungs = []
    if job.planned is not None:
        open_ = newest is None or job.planned > newest.number
        note = "its input is fixed; it is not decided" if open_ else "its input is fixed"
        if lost := job.thrown_away.get(job.planned):
            note += f"; {lost} {'attempt' if lost == 1 else 'attempts'} at it thrown away"
        rungs.append(Rung("planned by Spark", job.planned, note, job.planned_at_ms))
    if newest is not None:
        rungs.append(Rung("decided", newest.number, newest.delivery, newest.decided_at_ms))
        rungs += _sinks(job, newest)
        note = "may be ahead of the sinks (overlap)" if newest.overlapped else ""
        rungs.append(Rung("committed by Spark", max(job.committed, default=None), note))
    next_try = _next_try(job)
    return [*rungs, next_try] if next_try else rungs


def _sinks(job: JobFacts, newest: Epoch) -> Iterator[Rung]:
    doubt = job.in_doubt
    for sink, rows in newest.rows.items():
        if sink in job.discarded.get(newest.number, ()):
            yield Rung(sink, newest.number, f"DISCARDED: never gets its {rows:,} rows")
        elif not rows:
            yield Rung(sink, newest.number, "no rows for it")
        elif doubt is None:
            yield Rung(sink, newest.number, f"has its {rows:,} rows")
        else:
            first = newest.number == (job.lineage.first_epoch if job.lineage else 0)
            before = "has none" if first else f"has {newest.number - 1}"
            before += f", or {newest.number} too"
            lost = "; not retried if its driver died" if doubt.delivery == AT_MOST_ONCE else ""
            yield Rung(sink, newest.number, before + lost, doubt.decided_at_ms, in_doubt=True)


def _next_try(job: JobFacts) -> Rung | None:
    """Return when what failed or is in doubt is tried again, None if nothing is or that is unknown."""
    if job.seal is not None or job.problems:
        return None
    if job.failed is not None:
        return _next_driver(job, job.failed)
    if job.in_doubt is None or job.in_doubt.delivery == AT_MOST_ONCE:
        return None
    note = f"by its driver, if one runs: it tries an apply up to {Job.apply_tries} times, then ends"
    return Rung(_NEXT_TRY, None, note)


def _next_driver(job: JobFacts, failed: DriverFailure) -> Rung | None:
    """Return when the next driver starts: its supervisor recorded it, or the operator knows."""
    if failed.next_try_ms:
        return Rung(_NEXT_TRY, None, "by a new driver", at_ms=failed.next_try_ms)
    if failed.then:
        return Rung(_NEXT_TRY, None, failed.then)
    name = streaming_job(job)
    if name is None:
        return None
    command = plugin_command("why", name)
    return Rung(_NEXT_TRY, None, f"when the operator starts a driver: {command} says when")
