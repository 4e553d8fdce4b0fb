"""When a batch job is due, by cron. Pure.

`cronsim` reads the fields as Debian's cron does, summer time included. Not here: starting it.
Called by `wishes`.
"""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.resources.declaring import LEFT_ALONE
from sluicegate_operator.resources.job import Schedule


def newest_tick(schedule: Schedule, now: float) -> float | None:
    """Return the last time at or before now at which the schedule was due; None: never was.

    Raises:
        SettingsInvalid: the schedule or its time zone cannot be read.
    """
    # the search begins behind what it is given, and a tick is a whole minute
    return _step(schedule, now + 0.001, reverse=True)


def next_tick(schedule: Schedule, now: float) -> float | None:
    """Return the first time after now at which the schedule is due; None: never.

    Raises:
        SettingsInvalid: the schedule or its time zone cannot be read.
    """
    return _step(schedule, now, reverse=False)


def _step(schedule: Schedule, instant: float, *, reverse: bool) -> float | None:
    try:
        zone = ZoneInfo(schedule.time_zone)
        found = CronSim(schedule.cron, dt.datetime.fromtimestamp(instant, zone), reverse=reverse)
    except (CronSimError, ZoneInfoNotFoundError, ValueError) as error:
        raise SettingsInvalid(
            f"schedule {schedule.cron!r} in {schedule.time_zone!r} cannot be read: {error}",
            data=LEFT_ALONE,
            do="write five fields, and a name such as Europe/Berlin",
        ) from error
    tick = next(found, None)
    return None if tick is None else tick.timestamp()
