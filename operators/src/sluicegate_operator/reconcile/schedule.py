"""When a job or savepoint with a schedule is due, by cron.

The library cronsim interprets the fields as Debian's cron does, including changes to summer time.
"""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.schedule import Schedule
from sluicegate_operator.reconcile.context import ReconcileContext


def due_tick(
    context: ReconcileContext[Any, Any], schedule: Schedule, last: float | None, created_at: float
) -> float | None:
    """Return the newest time at which the schedule was due since its last one, or since the creation.

    The resource is reconciled again at the schedule's next time.
    """
    upcoming = next_tick(schedule, context.now)
    if upcoming is not None:
        context.requeue_at(upcoming)
    tick, since = newest_tick(schedule, context.now), created_at if last is None else last
    return tick if tick is not None and tick > since else None


def is_too_late(schedule: Schedule, tick: float, now: float) -> bool:
    """Return whether what was due is to be skipped now."""
    return 0 < schedule.starting_deadline_s < now - tick


def validate_schedule(schedule: Schedule | None) -> SettingsInvalid | None:
    """Return why a schedule is invalid, or None."""
    try:
        if schedule is not None:
            next_tick(schedule, 0.0)
    except SettingsInvalid as error:
        return error
    return None


def newest_tick(schedule: Schedule, now: float) -> float | None:
    """Return the last time at or before now at which the schedule was due; None: it never was.

    Raises:
        SettingsInvalid: the schedule or its time zone is invalid.
    """
    # the search excludes the time that it starts from, and a tick is a whole minute
    return _tick(schedule, now + 0.001, reverse=True)


def next_tick(schedule: Schedule, now: float) -> float | None:
    """Return the first time after now at which the schedule is due; None: it never will be.

    Raises:
        SettingsInvalid: the schedule or its time zone is invalid.
    """
    return _tick(schedule, now, reverse=False)


def _tick(schedule: Schedule, instant: float, *, reverse: bool) -> float | None:
    try:
        zone = ZoneInfo(schedule.time_zone)
        found = CronSim(schedule.cron, dt.datetime.fromtimestamp(instant, zone), reverse=reverse)
    except (CronSimError, ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsInvalid(
            f"schedule {schedule.cron!r} in {schedule.time_zone!r} is invalid: {error}",
            data=SPEC_REJECTED,
            do="use five cron fields and a time zone name such as Europe/Berlin",
        ) from error
    tick = next(found, None)
    return None if tick is None else tick.timestamp()
