"""`sluicegate tail`: prints the records of a topic, by default only those of committed transactions.

Not a consumer of a group: partitions are assigned by hand, nothing is committed, so nothing is left
behind on the broker. Partitions that are added while it runs are not seen.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import logging
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import click
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from sluicegate.protocol.errors import SettingsInvalid, SinkUnavailable, TargetMissing
from sluicegate.sinks.kafka.access import client_settings

_ANSWER_S = 10.0
_TICK_S = 0.2
_BATCH = 500
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001 - its names

RDKAFKA_LOG = logging.getLogger("sluicegate.librdkafka")


@click.command()
@click.argument("topic")
@click.option("--kafka", envvar="SLUICEGATE_KAFKA", default="", help="bootstrap servers")
@click.option("--from-beginning", is_flag=True, help="from the oldest record, not from the end")
@click.option("--max", "limit", type=click.IntRange(min=1), help="end after so many records")
@click.option("--until-end", is_flag=True, help="end when every record that is there was printed")
@click.option("--json", "as_json", is_flag=True, help="one JSON object a record")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    help="whether records of open and aborted transactions are printed too",
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
    """Print a topic's records: partition, offset, time, key, value, headers. Ctrl-C ends it."""
    if not kafka:
        raise SettingsInvalid("no Kafka servers are given", do="set SLUICEGATE_KAFKA or --kafka")
    show = as_object if as_json else as_line
    printed = 0
    consumer = _consumer(kafka, isolation)
    try:
        for message in _records(consumer, topic, begin=from_beginning, until_end=until_end):
            click.echo(show(message))
            printed += 1
            if printed == limit:
                return
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # the reader of our output has seen enough; Python would complain again when it ends
        sys.stdout = None
    except KafkaException as error:
        raise _unanswered(topic, kafka, str(error)) from error
    finally:
        consumer.close()


def as_object(message: Message) -> str:
    """Return a record as JSON; bytes that are no text are an object {"base64": ...}."""
    at = _time(message)
    return json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": None if at is None else at.isoformat(timespec="milliseconds"),
            "key": _json_bytes(message.key()),
            "value": _json_bytes(message.value()),
            "headers": [[name, _json_bytes(value)] for name, value in _headers(message)],
        },
        ensure_ascii=False,
    )


def as_line(message: Message) -> str:
    """Return a record for people: a dash for null, bytes that are no text escaped."""
    at = _time(message)
    stamp = "-" if at is None else f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"
    headers = " ".join(f"{name}={_shown(value)}" for name, value in _headers(message))
    where = f"{message.partition()}@{message.offset()}"
    tail_of = f"  {{{headers}}}" if headers else ""
    return f"{where:<10} {stamp}  {_shown(message.key())}  {_shown(message.value())}{tail_of}"


def _records(consumer: Consumer, topic: str, *, begin: bool, until_end: bool) -> Iterator[Message]:
    """Yield the records of all partitions as they come."""
    left = set(_partitions(consumer, topic))
    start = OFFSET_BEGINNING if begin else OFFSET_END
    consumer.assign([TopicPartition(topic, partition, start) for partition in left])
    heard = time.monotonic()
    while left or not until_end:
        messages = consumer.consume(_BATCH, timeout=_TICK_S)
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                left.discard(int(message.partition() or 0))
            elif error.code() not in _PASSING:
                raise KafkaException(error)
        if messages:
            heard = time.monotonic()
        elif until_end and time.monotonic() - heard > _ANSWER_S:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its name


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None or not found.partitions:
        raise TargetMissing(
            f"there is no topic {topic} ({found.error})",
            data="nothing was read",
            do="check the name and the servers",
        )
    return sorted(found.partitions)


def _consumer(servers: str, isolation: str) -> Consumer:
    settings: dict[str, Any] = {
        **client_settings(servers),
        # required, and never joined: partitions are assigned by hand
        "group.id": f"sluicegate.tail.{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        # records that retention removes while it runs are gone; it goes on with the oldest there is
        "auto.offset.reset": "earliest",
    }
    return Consumer(settings, logger=RDKAFKA_LOG)


def _time(message: Message) -> dt.datetime | None:
    kind, at_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    return dt.datetime.fromtimestamp(at_ms / 1000, tz=dt.UTC)


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # a message that was read has a list; its annotation is of those to be sent too
    found: Any = message.headers()
    return found or []


def _shown(value: str | bytes | None) -> str:
    if value is None:
        return "-"
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _json_bytes(value: str | bytes | None) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _unanswered(topic: str, servers: str, why: str) -> SinkUnavailable:
    return SinkUnavailable(
        f"Kafka at {servers} gave no answer for topic {topic}: {why}",
        data="what was printed is right; there may be more",
        do="look at the brokers and the name, then run it again",
    )
