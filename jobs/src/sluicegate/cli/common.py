"""Options and formats that several commands share."""

from __future__ import annotations

import datetime as dt

import click

KAFKA = click.option(
    "--kafka", envvar="SLUICEGATE_KAFKA", default="", help="Kafka bootstrap servers."
)


def utc(time_ms: int) -> dt.datetime | None:
    """Return a time in ms since 1970; None if no calendar has it, as one in microseconds."""
    try:
        return dt.datetime.fromtimestamp(time_ms / 1000, tz=dt.UTC)
    except (OSError, OverflowError, ValueError):
        return None


def format_time(time_ms: int, *, milliseconds: bool = False) -> str:
    """Return a time in ms since 1970 for people, in UTC; in ms if no calendar has it."""
    time = utc(time_ms)
    if time is None:
        return f"{time_ms} ms"
    return f"{time:%Y-%m-%d %H:%M:%S}" + (f".{time_ms % 1000:03}" if milliseconds else "")
