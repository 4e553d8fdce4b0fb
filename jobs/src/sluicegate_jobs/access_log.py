"""Parses access-log lines in plain Python, for the verification of ip_count. Pure.

Equivalent to the job's expressions, but shares no code with them, so one mistake cannot hide in both.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import NamedTuple

_LINE = re.compile(
    rb"([0-9A-Fa-f.:]{2,45}) [^ ]+ [^\[]*"
    rb"\[(\d\d)/([A-Z][a-z][a-z])/((?:19|20)\d\d):(\d\d):(\d\d):(\d\d) "
    rb"([+-])(0\d|1[0-4])([0-5]\d)\] \""
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""As in logs, independent of the locale."""

_NUMBERS = {name.encode(): number for number, name in enumerate(MONTHS, 1)}
_INTERVAL = re.compile(r"\s*(\d+)\s+(millisecond|second|minute|hour|day)s?\s*", re.IGNORECASE)


class Hit(NamedTuple):
    """A line that was parsed."""

    at_ms: int
    ip: str


def interval_ms(text: str) -> int:
    """Return an interval such as '5 seconds' in ms; raises ValueError if its length is not fixed."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an interval of a fixed length, such as '5 seconds'")
    return timedelta(**{f"{match[2].lower()}s": int(match[1])}) // timedelta(milliseconds=1)


def read_line(value: bytes | None) -> Hit | str:
    """Return the hit of a line, or the first word of the reason why it has none."""
    if value is None:
        return "empty"
    match = _LINE.match(value)
    if match is None:
        return "unparsed"
    ip, *fields = match.groups()
    time_ms = _time_ms(*fields)
    return "unparsed" if time_ms is None else Hit(time_ms, ip.decode())


@cache
def _time_ms(*fields: bytes) -> int | None:
    """Return a time in ms since 1970, None if it does not exist; times repeat in a log."""
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = fields
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        zone = timezone(offset if sign == b"+" else -offset)
        clock = int(hour), int(minute), int(second)
        time = datetime(int(year), _NUMBERS[month], int(day), *clock, tzinfo=zone)
    except (KeyError, ValueError):
        return None
    return int(time.timestamp()) * 1000
