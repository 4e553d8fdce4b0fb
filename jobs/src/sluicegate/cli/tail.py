"""`sluicegate tail`: prints the records of a topic, by default only those of committed transactions."""

from __future__ import annotations

import base64
import json
import sys

import click

from sluicegate.cli.common import KAFKA, format_time, utc
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.reader import CommittedReader, Record


@click.command()
@click.argument("topic")
@KAFKA
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record, not at the end.")
@click.option("--max", "limit", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--until-end", is_flag=True, help="Stop at the current end of the topic.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON object.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    help="read_committed: print only records of committed transactions. read_uncommitted: also those of "
    "open and aborted ones.",
)
def tail(  # noqa: PLR0913 - one for each option
    *,
    topic: str,
    kafka: str,
    from_beginning: bool,
    limit: int | None,
    until_end: bool,
    as_json: bool,
    isolation: str,
) -> None:
    """Print the records of a topic. Ctrl-C stops it.

    Each line shows partition, offset, time, key, value and headers.
    """
    committed = isolation == "read_committed"
    try:
        with CommittedReader(Connection.of(kafka), committed=committed, skip_gaps=True) as reader:
            records = reader.follow(topic, from_beginning=from_beginning, until_end=until_end)
            for count, record in enumerate(records, 1):
                click.echo(as_object(topic, record) if as_json else as_line(record))
                if count == limit:
                    return
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader of our output has closed it; Python would complain again at exit.
        sys.stdout = None


def as_object(topic: str, record: Record) -> str:
    """Return a record as JSON; bytes that are not UTF-8 become an object {"base64": ...}.

    A time that no calendar has, such as one in microseconds, is the number of ms since 1970.
    """
    return json.dumps(
        {
            "topic": topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": _timestamp(record),
            "key": _json_bytes(record.key),
            "value": _json_bytes(record.value),
            "headers": [[name, _json_bytes(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def as_line(record: Record) -> str:
    """Return a record for people: a dash for null, bytes that are not UTF-8 escaped."""
    time_ms = record.timestamp_ms
    stamp = "-" if time_ms < 0 else format_time(time_ms, milliseconds=True)
    headers = " ".join(f"{name}={_text(value)}" for name, value in record.headers)
    position = f"{record.partition}@{record.offset}"
    suffix = f"  {{{headers}}}" if headers else ""
    return f"{position:<10} {stamp}  {_text(record.key)}  {_text(record.value)}{suffix}"


def _timestamp(record: Record) -> str | int | None:
    if record.timestamp_ms < 0:
        return None
    time = utc(record.timestamp_ms)
    return record.timestamp_ms if time is None else time.isoformat(timespec="milliseconds")


def _text(value: bytes | None) -> str:
    return "-" if value is None else value.decode(errors="backslashreplace")


def _json_bytes(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
