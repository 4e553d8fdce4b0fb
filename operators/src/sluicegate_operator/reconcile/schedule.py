"""When a schedule is due, by cron.

The library cronsim interprets the fields as Debian's cron does, including changes to summer time. This
short module is shared by scheduled jobs and scheduled savepoints.
"""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.streaming_job import Schedule


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
    except (CronSimError, ZoneInfoNotFoundError, ValueError) as error:
        raise SettingsInvalid(
            f"schedule {schedule.cron!r} in {schedule.time_zone!r} is invalid: {error}",
            data=SPEC_REJECTED,
            do="use five cron fields and a time zone name such as Europe/Berlin",
        ) from error
    tick = next(found, None)
    return None if tick is None else tick.timestamp()
