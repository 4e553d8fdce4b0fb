"""Input to try a packaged job with: the same for the same seed. Called by `sluicegate generate`.

Not a load generator. Some of it is broken on purpose, so that dead letters can be seen.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from confluent_kafka import Producer

from sluicegate.protocol.errors import SinkUnavailable
from sluicegate.sinks.kafka.access import client_settings, servers_of
from sluicegate_jobs.access_lines import MONTHS
from sluicegate_jobs.kafka_reader import RDKAFKA_LOG
from sluicegate_jobs.kafka_source import check_topic

_ANSWER_S = 60.0
_BROKEN_EVERY = 50
_BEGIN = datetime(2026, 1, 7, 12, 0, 0, tzinfo=UTC)
_RARE = 0.05
_WORDS = "sluice gate water lock river weir to be or not the a Café café naïve Straße 水門"
_USERS = ("ann", "bob", "carla", "dmitri", "eve", "farid", "greta")


class Message(NamedTuple):
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def to_topic(bootstrap: str, topic: str, messages: Iterable[Message]) -> str:
    """Send messages; return in words what was done.

    Raises:
        TargetMissing: there is no such topic.
        SinkUnavailable: the broker did not take all of them.
    """
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
    failed: list[str] = []
    count = 0
    for message in messages:
        count += 1
        producer.produce(
            topic,
            message.value,
            message.key,
            headers=list(message.headers) or None,
            on_delivery=lambda error, _: failed.append(error.str()) if error else None,
        )
        producer.poll(0)
    left = producer.flush(_ANSWER_S)
    if left or failed:
        raise SinkUnavailable(
            f"Kafka at {servers} did not take {left + len(failed)} records for topic {topic}"
            f"{f': {failed[0]}' if failed else ''}",
            data="some of the records may be there",
            do="look at the broker and the topic",
        )
    return f"{count:,} records into topic {topic}"


def text_lines(count: int, seed: int) -> Iterator[Message]:
    """Yield lines of some words; some are empty, one in 50 is no text."""
    chance = random.Random(seed)  # noqa: S311 - the same for the same seed
    for i in range(count):
        words = chance.choices(_WORDS.split(), k=chance.randrange(0, 9))
        line = chance.choice((" ", "  ", "\t")).join(words).encode()
        yield Message(line + b"\xff\xfe" if _broken(i) else line)


def access_lines(count: int, seed: int) -> Iterator[Message]:
    """Yield lines of an access log, a tenth of a second apart, most from few addresses.

    One in 50 is broken, about one in 20 comes one to three minutes late.
    """
    chance = random.Random(seed)  # noqa: S311 - the same for the same seed
    for i in range(count):
        behind_s = chance.uniform(60, 180) if chance.random() < _RARE else chance.uniform(0, 1)
        at = _BEGIN + timedelta(seconds=i / 10 - behind_s)
        stamp = f"{at:%d}/{MONTHS[at.month - 1]}/{at:%Y:%H:%M:%S} +0000"
        address = f"10.0.0.{min(int(chance.expovariate(0.15)), 250)}"
        line = f'{address} - - [{stamp}] "GET /{i} HTTP/1.1" 200 {i} "-" "curl/8"'
        yield Message((line.replace("[", "(") if _broken(i) else line).encode())


def keyed_messages(count: int, seed: int) -> Iterator[Message]:
    """Yield messages of few keys with headers; some have no key, some are tombstones, some no text."""
    chance = random.Random(seed)  # noqa: S311 - the same for the same seed
    for i in range(count):
        key = None if chance.random() < _RARE else f"key-{chance.randrange(10)}".encode()
        headers = (("n", str(i).encode()), ("n", b"\x00\xff"))[: chance.randrange(3)]
        value = (
            None if key and chance.random() < _RARE else f"message {i} of straße {key!r}".encode()
        )
        yield Message(b"\xff" + str(i).encode() if _broken(i) else value, key, headers)


def indicators(count: int, seed: int) -> Iterator[Message]:
    """Yield the input of two_sinks; one in 50 is broken."""
    chance = random.Random(seed)  # noqa: S311 - the same for the same seed
    for i in range(count):
        at = _BEGIN + timedelta(seconds=i * 0.3)
        row = {"time": _text(at), "indicate": chance.randrange(-5, 100)} | {
            f"key{n}": f"k{n}-{chance.randrange(3)}" for n in (1, 2, 3)
        }
        line = json.dumps(row).encode()
        yield Message(line[:-3] if _broken(i) else line)


def orders(count: int, seed: int) -> Iterator[Message]:
    """Yield orders as JSON, half a second apart and somewhat out of order.

    One in 50 is broken, about one in 20 comes one to three minutes late.
    """
    chance = random.Random(seed)  # noqa: S311 - the same for the same seed
    for i in range(count):
        late = chance.random() < _RARE
        behind_s = chance.uniform(60, 180) if late else chance.uniform(0, 1.5)
        order = {
            "id": f"o{i}",
            "user": chance.choice(_USERS),
            "time": _text(_BEGIN + timedelta(seconds=i / 2 - behind_s)),
            "amount": chance.randrange(100, 100_000) / 100,
        }
        line = json.dumps(order)
        yield Message((line.replace("amount", "amuont") if _broken(i) else line).encode())


def _broken(i: int) -> bool:
    return i % _BROKEN_EVERY == _BROKEN_EVERY - 1


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
