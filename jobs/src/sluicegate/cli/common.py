"""Options and formats that several commands share."""

from __future__ import annotations

import datetime as dt

import click

KAFKA = click.option(
    "--kafka", envvar="SLUICEGATE_KAFKA", default="", help="Kafka bootstrap servers."
)


def format_time(time_ms: int) -> str:
    """Return a time in ms since 1970 for people, in UTC; in ms if no calendar has it."""
    try:
        time = dt.datetime.fromtimestamp(time_ms / 1000, tz=dt.UTC)
    except (OSError, OverflowError, ValueError):
        return f"{time_ms} ms"
    return time.strftime("%Y-%m-%d %H:%M:%S")
