"""Example input for the packaged jobs, deterministic for a seed. Not a load generator.

A few records are invalid on purpose, to produce dead letters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from confluent_kafka import Producer

from sluicegate.errors import SinkUnavailable
from sluicegate.sinks.kafka.connection import RDKAFKA_LOG, client_settings, servers_of
from sluicegate_jobs.access_log import MONTHS
from sluicegate_jobs.kafka_source import check_topic

_ANSWER_S = 60.0
_INVALID_EVERY = 50
_START = datetime(2026, 1, 7, 12, 0, 0, tzinfo=UTC)
_RARELY = 0.05
_WORDS = "sluice gate water lock river weir to be or not the a Café café naïve Straße 水門"
_USERS = ("ann", "bob", "carla", "dmitri", "eve", "farid", "greta")


class Message(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def to_topic(bootstrap: str, topic: str, messages: Iterable[Message]) -> str:
    """Send messages; return a description of what was sent."""
    servers = servers_of(bootstrap)
    check_topic(servers, topic)
    producer = Producer(
        {
            **client_settings(servers),
            "enable.idempotence": True,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
        },
        logger=RDKAFKA_LOG,
    )
    errors: list[str] = []
    count = 0
    for message in messages:
        count += 1
        producer.produce(
            topic,
            message.value,
            message.key,
            headers=list(message.headers) or None,
            on_delivery=lambda error, _: errors.append(error.str()) if error else None,
        )
        producer.poll(0)
    unsent = producer.flush(_ANSWER_S)
    if unsent or errors:
        raise SinkUnavailable(
            f"Kafka at {servers} did not accept {unsent + len(errors)} records for topic {topic}"
            f"{f': {errors[0]}' if errors else ''}",
            data="some of the records may be in the topic",
            do="check the broker and the topic",
        )
    return f"{count:,} records into topic {topic}"


def into_source(
    messages: Callable[[int, int], Iterable[Message]],
) -> Callable[[Any, int, int], str]:
    """Return a `PackagedJob.generate` that sends messages to the topic `source` of a job's settings."""
    return lambda settings, records, seed: to_topic(
        settings.kafka, settings.source, messages(records, seed)
    )


def numbered(count: int, _seed: int) -> Iterator[Message]:
    """Yield numbered records."""
    return (Message(f"record {i}".encode()) for i in range(count))


def text_lines(count: int, seed: int) -> Iterator[Message]:
    """Yield lines of words; some are empty, one in 50 is not text."""
    rng = random.Random(seed)  # noqa: S311 - deterministic for a seed
    for i in range(count):
        words = rng.choices(_WORDS.split(), k=rng.randrange(0, 9))
        line = rng.choice((" ", "  ", "\t")).join(words).encode()
        yield Message(line + b"\xff\xfe" if _is_invalid(i) else line)


def access_lines(count: int, seed: int) -> Iterator[Message]:
    """Yield lines of an access log, 0.1 s apart, most of them from few addresses.

    One in 50 is invalid, about one in 20 is one to three minutes late.
    """
    rng = random.Random(seed)  # noqa: S311 - deterministic for a seed
    for i in range(count):
        delay_s = rng.uniform(60, 180) if rng.random() < _RARELY else rng.uniform(0, 1)
        time = _START + timedelta(seconds=i / 10 - delay_s)
        stamp = f"{time:%d}/{MONTHS[time.month - 1]}/{time:%Y:%H:%M:%S} +0000"
        address = f"10.0.0.{min(int(rng.expovariate(0.15)), 250)}"
        line = f'{address} - - [{stamp}] "GET /{i} HTTP/1.1" 200 {i} "-" "curl/8"'
        yield Message((line.replace("[", "(") if _is_invalid(i) else line).encode())


def keyed_messages(count: int, seed: int) -> Iterator[Message]:
    """Yield messages with few keys and with headers; some lack a key, are tombstones or are not text."""
    rng = random.Random(seed)  # noqa: S311 - deterministic for a seed
    for i in range(count):
        key = None if rng.random() < _RARELY else f"key-{rng.randrange(10)}".encode()
        headers = (("n", str(i).encode()), ("n", b"\x00\xff"))[: rng.randrange(3)]
        value = (
            None if key and rng.random() < _RARELY else f"message {i} of straße {key!r}".encode()
        )
        yield Message(b"\xff" + str(i).encode() if _is_invalid(i) else value, key, headers)


def indicators(count: int, seed: int) -> Iterator[Message]:
    """Yield the input of two_sinks; one in 50 is invalid."""
    rng = random.Random(seed)  # noqa: S311 - deterministic for a seed
    for i in range(count):
        row = {
            "time": _iso(_START + timedelta(seconds=i * 0.3)),
            "indicate": rng.randrange(-5, 100),
        } | {f"key{n}": f"k{n}-{rng.randrange(3)}" for n in (1, 2, 3)}
        line = json.dumps(row).encode()
        yield Message(line[:-3] if _is_invalid(i) else line)


def orders(count: int, seed: int) -> Iterator[Message]:
    """Yield orders as JSON, 0.5 s apart and slightly out of order.

    One in 50 is invalid, about one in 20 is one to three minutes late.
    """
    rng = random.Random(seed)  # noqa: S311 - deterministic for a seed
    for i in range(count):
        late = rng.random() < _RARELY
        delay_s = rng.uniform(60, 180) if late else rng.uniform(0, 1.5)
        order = {
            "id": f"o{i}",
            "user": rng.choice(_USERS),
            "time": _iso(_START + timedelta(seconds=i / 2 - delay_s)),
            "amount": rng.randrange(100, 100_000) / 100,
        }
        line = json.dumps(order)
        yield Message((line.replace("amount", "amuont") if _is_invalid(i) else line).encode())


def _is_invalid(i: int) -> bool:
    return i % _INVALID_EVERY == _INVALID_EVERY - 1


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
