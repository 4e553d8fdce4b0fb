"""Reads access-log lines in plain Python, for the check of ip_count.

Means the same as the job's own expressions and shares nothing with them, so that one mistake
cannot hide in both. Pure. Called by `ip_count_answer` and `ip_count_verify`.
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
"""As logs have them, whatever the machine's language."""

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
    """What a line says, if it can be read."""

    at_ms: int
    ip: str


def interval_ms(text: str) -> int:
    """Return an interval such as '5 seconds' in ms.

    Raises:
        ValueError: it is none with a fixed length.
    """
    found = _INTERVAL.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS_MS:
        raise ValueError(f"{text!r} is no interval of a fixed length, such as '5 seconds'")
    return int(found[1]) * _UNITS_MS[found[2].lower()]


class LineReader:
    """Reads lines; remembers the times it has seen, which repeat thousands of times in a log."""

    def __init__(self) -> None:
        self._times: dict[tuple[bytes, ...], int | None] = {}

    def read(self, value: bytes | None) -> Hit | str:
        """Return what a line says, or the first word of the reason why it says nothing."""
        if value is None:
            return "empty"
        found = _LINE.match(value)
        if found is None:
            return "unparsed"
        ip, *time = found.groups()
        written = tuple(time)
        if written not in self._times:
            self._times[written] = _instant_ms(*written)
        at_ms = self._times[written]
        return "unparsed" if at_ms is None else Hit(at_ms, ip.decode())


def _instant_ms(*written: bytes) -> int | None:
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = written
    zone = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        ahead = timezone(zone if sign == b"+" else -zone)
        date = datetime(int(year), _NUMBERS[month], int(day), tzinfo=ahead)
        at = date.replace(hour=int(hour), minute=int(minute), second=int(second))
    except (KeyError, ValueError):
        return None  # the answer: there is no such time
    return int(at.timestamp()) * 1000
