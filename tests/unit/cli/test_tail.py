"""`sluicegate tail` prints whatever a topic holds."""

from __future__ import annotations

import json

from sluicegate.cli.common import format_time
from sluicegate.cli.tail import as_line, as_object
from sluicegate.sinks.kafka.reader import Record

MICROSECONDS = 1_767_225_600_000_000


def test_a_time_that_no_calendar_has_is_printed_in_milliseconds() -> None:
    """A producer that sends microseconds must not end the command."""
    record = Record(partition=0, offset=7, key=None, value=b"x", timestamp_ms=MICROSECONDS)
    assert f"{MICROSECONDS} ms" in as_line(record)
    assert json.loads(as_object("clicks", record))["timestamp"] == MICROSECONDS


def test_each_command_prints_such_a_time() -> None:
    assert format_time(MICROSECONDS) == f"{MICROSECONDS} ms"
    assert format_time(0) == "1970-01-01 00:00:00"
