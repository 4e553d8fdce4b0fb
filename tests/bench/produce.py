"""Fills the source topics once for all contenders.

The same seed gives the same records.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.bench import inputs
from tests.bench.plan import (
    ADD,
    COMPRESSION,
    IP_COUNT,
    KEY_COUNT,
    ORDERS,
    PASS_THROUGH,
    UPSERT,
    WORD_COUNT,
    Workload,
)
from tests.bench.readback import Content

LINES_S = 20_000
"""Access-log lines per second of event time."""

WINDOW_S = 5

_ADDRESSES = 50_000
_BEGIN = datetime(2026, 5, 17, 10, 5, tzinfo=UTC)
_TEXT_BYTES = 1 << 20
_CONNECT_S = 30.0

_Send = Callable[[bytes], None]


def values(value_bytes: int, count: int, seed: int = 1) -> Iterator[bytes]:
    """Yield numbered values; their text compresses to about half, as real records do."""
    rng = random.Random(seed)
    text = rng.randbytes(_TEXT_BYTES // 2).hex().encode()
    for number in range(count):
        at = rng.randrange(_TEXT_BYTES - value_bytes)
        yield (b"%012d " % number + text[at : at + value_bytes])[:value_bytes]


def access_lines(count: int, seed: int = 1) -> Iterator[tuple[tuple[int, bytes], bytes]]:
    """Yield pairs: window number and address, and the access-log line.

    Addresses are heavy-tailed (Zipf). Times ascend, so no contender sees a late line.
    """
    rng = random.Random(seed)
    addresses = [
        b"%d.%d.%d.%d" % (rng.randrange(1, 224), *rng.randbytes(3)) for _ in range(_ADDRESSES)
    ]
    weights = list(accumulate(1 / rank for rank in range(1, _ADDRESSES + 1)))
    for begin in range(0, count, LINES_S):
        second = begin // LINES_S
        at = (_BEGIN + timedelta(seconds=second)).strftime("%d/%b/%Y:%H:%M:%S +0000").encode()
        size = min(LINES_S, count - begin)
        for ip in rng.choices(addresses, cum_weights=weights, k=size):
            path = rng.randrange(5000)
            line = (
                b'%s - - [%s] "GET /articles/%d/page.html HTTP/1.1" 200 %d "-" '
                b'"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"'
            )
            yield (second // WINDOW_S, ip), line % (ip, at, path, 1000 + path)


def fill(bootstrap: str, topic: str, workload: Workload) -> Content:
    """Fill a topic and return the expected content of the sinks."""
    with Sender(bootstrap, topic, workload.partitions) as sender:
        return _FILL[workload.kind](sender.send, workload)


def _fill_values(send: _Send, workload: Workload) -> Content:
    total = 0
    for value in values(workload.value_bytes, workload.records):
        total += zlib.crc32(value)
        send(value)
    return Content(rows=workload.records, total=total)


def _fill_access_lines(send: _Send, workload: Workload) -> Content:
    keys: set[tuple[int, bytes]] = set()
    for key, line in access_lines(workload.records):
        keys.add(key)
        send(line)
    return Content(rows=len(keys), total=workload.records)


def _fill_lines(send: _Send, workload: Workload) -> Content:
    counts: Counter[str] = Counter()
    for words, line in inputs.word_lines(workload.records):
        counts.update(words)
        send(line)
    return Content.of_rows(counts.items())


def _fill_orders(send: _Send, workload: Workload) -> Content:
    def sent() -> Iterator[tuple[str, str, int]]:
        for window, user, cents, order in inputs.orders(workload.records):
            send(order)
            yield window, user, cents

    return Content.of_rows(
        (*key, number, inputs.amount(largest), inputs.amount(smallest))
        for key, (number, largest, smallest) in inputs.order_rows(sent()).items()
    )


def _fill_upserts(send: _Send, workload: Workload) -> Content:
    for row in inputs.upserts(workload.records):
        send(b"%d %d %d" % row)
    table = inputs.upserted(inputs.upserts(workload.records), add=workload.kind == ADD)
    return Content.of_rows((row, *numbers) for row, numbers in table.items())


def _fill_keys(send: _Send, workload: Workload) -> Content:
    counts: Counter[str] = Counter()
    for key in inputs.keys(workload.records, workload.keys):
        counts[key] += 1
        send(key.encode())
    return Content.of_rows(counts.items())


_FILL: Mapping[str, Callable[[_Send, Workload], Content]] = {
    PASS_THROUGH: _fill_values,
    IP_COUNT: _fill_access_lines,
    WORD_COUNT: _fill_lines,
    ORDERS: _fill_orders,
    UPSERT: _fill_upserts,
    ADD: _fill_upserts,
    KEY_COUNT: _fill_keys,
}


class Sender:
    """A producer that spreads records evenly and raises if one was lost."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic, self._partitions, self._sent = topic, partitions, 0
        self._error: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": COMPRESSION,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 500_000,
                "linger.ms": 5,
                "log_level": 0,
                "on_delivery": self._on_delivery,
                "delivery.report.only.error": True,  # a call for each record costs as much as sending it
            }
        )

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self._error = self._error or error

    def send(self, value: bytes) -> None:
        """Send to the partitions round-robin, so that they stay evenly filled."""
        while True:
            try:
                self._producer.produce(self._topic, value, partition=self._sent % self._partitions)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._sent += 1
        if self._sent % 1000 == 0:
            self._producer.poll(0)

    def send_all(self, values: Sequence[bytes], partition: int) -> None:
        """Send to one partition, in one call for all values unless the queue is full."""
        messages: list[dict[str, Any]] = [{"value": value} for value in values]
        while messages:
            self._producer.produce_batch(self._topic, messages, partition)
            refused = [message for message in messages if "_error" in message]
            for message in refused:
                if message.pop("_error").code() != KafkaError._QUEUE_FULL:
                    raise ValueError(f"a value of {len(message['value'])} B cannot be sent")
            self._producer.poll(0.1 if refused else 0)
            messages = refused

    @property
    def pending(self) -> int:
        """The number of records that the broker has not acknowledged."""
        return len(self._producer)

    def __enter__(self) -> Self:
        """Connect, so that the first records do not wait for it."""
        self._producer.list_topics(self._topic, timeout=_CONNECT_S)
        return self

    def __exit__(self, *_error: object) -> None:
        """Wait until the broker has acknowledged all records."""
        self._producer.flush()
        if self._error is not None:
            raise KafkaException(self._error)
