"""Parses access-log lines in plain Python, for the verification of ip_count. Pure.

Equivalent to the job's expressions, but shares no code with them, so one mistake cannot hide in both.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

_LINE = re.compile(
    rb"([0-9A-Fa-f.:]{2,45}) [^ ]+ [^\[]*"
    rb"\[(\d\d)/([A-Z][a-z][a-z])/((?:19|20)\d\d):(\d\d):(\d\d):(\d\d) "
    rb"([+-])(0\d|1[0-4])([0-5]\d)\] \""
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""As in logs, independent of the locale."""

_NUMBERS = {name.encode(): number for number, name in enumerate(MONTHS, 1)}
_UNITS_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
}
_INTERVAL = re.compile(r"\s*(\d+)\s+([a-z]+?)s?\s*", re.IGNORECASE)


class Hit(NamedTuple):
    """A line that was parsed."""

    at_ms: int
    ip: str


def interval_ms(text: str) -> int:
    """Return an interval such as '5 seconds' in ms.

    Raises:
        ValueError: it is not an interval of a fixed length.
    """
    match = _INTERVAL.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS_MS:
        raise ValueError(f"{text!r} is not an interval of a fixed length, such as '5 seconds'")
    return int(match[1]) * _UNITS_MS[match[2].lower()]


class LineReader:
    """Parses lines; caches times, which repeat thousands of times in a log."""

    def __init__(self) -> None:
        self._times: dict[tuple[bytes, ...], int | None] = {}

    def read(self, value: bytes | None) -> Hit | str:
        """Return the hit of a line, or the first word of the reason why it has none."""
        if value is None:
            return "empty"
        match = _LINE.match(value)
        if match is None:
            return "unparsed"
        ip, *groups = match.groups()
        fields = tuple(groups)
        if fields not in self._times:
            self._times[fields] = _time_ms(*fields)
        time_ms = self._times[fields]
        return "unparsed" if time_ms is None else Hit(time_ms, ip.decode())


def _time_ms(*fields: bytes) -> int | None:
    """Return a time in ms since 1970, None if it does not exist."""
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = fields
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        zone = timezone(offset if sign == b"+" else -offset)
        date = datetime(int(year), _NUMBERS[month], int(day), tzinfo=zone)
        time = date.replace(hour=int(hour), minute=int(minute), second=int(second))
    except (KeyError, ValueError):
        return None
    return int(time.timestamp()) * 1000
