"""A reader of a sink in its own process: `python -m tests.bench.reader FOLDER`.

It reads a topic as a read_committed consumer, or polls a table for rows that were added. Compares
the time at which a record is seen with the time in it at which it was due, and counts missing and repeated
records. Exits when all measured records were seen, or when no more arrive.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.local_services import MySQLEndpoint
from infra.local_services.services import MYSQL_VARIABLE
from tests.bench.figures import percentile

MEASURED, WARM_UP = b"m", b"w"
"""The kinds of records; those of the second are also sent after the measured ones."""
READY = "reader-ready"
ORDER = "reader.json"
SENT = "sent"
"""Created when all records are sent; only after that does silence mean that none will come."""
SEEN = "seen.json"

_SILENCE_S = 30.0
"""Without a measured record, after all were sent."""
_POLL_S = 0.05
_TABLE_POLL_S = 0.01
_AFTER_S = 2.0
"""Seconds to wait for repeated records after all were seen."""


@dataclass(frozen=True)
class ReaderOrder:
    """Instructions for the reader: a file in its folder.

    Args:
        bootstrap: Kafka's bootstrap servers.
        topic: the sink's topic.
        table: the sink's table; empty: the topic is read.
        records: number of measured records.
    """

    bootstrap: str
    topic: str
    table: str
    records: int

    def write(self, folder: Path) -> None:
        """Write the order to a folder."""
        (folder / ORDER).write_text(json.dumps(asdict(self)), encoding="utf-8")


Arrived = tuple[bytes, int, int]
"""Kind and number of a record, and when it was due, in nanoseconds since 1970."""

Poll = Callable[[], Sequence[Arrived]]
"""Returns what has arrived since the last call, waits 50 ms at most."""


def main() -> int:
    """Read to the end, then write the result."""
    folder = Path(sys.argv[1])
    order = ReaderOrder(**json.loads((folder / ORDER).read_text(encoding="utf-8")))
    with closing(_table(order) if order.table else _topic(order)) as polls:
        poll = partial(next, polls)
        poll()  # connects
        (folder / READY).touch()
        seen = read(poll, order.records, folder / SENT)
    partial_file = folder / f"{SEEN}.part"
    partial_file.write_text(json.dumps(_summary(seen, order.records)), encoding="utf-8")
    partial_file.rename(folder / SEEN)
    return 0


def _topic(order: ReaderOrder) -> Generator[Sequence[Arrived]]:
    consumer = Consumer(
        {
            "bootstrap.servers": order.bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(order.topic, timeout=30).topics[order.topic].partitions
        consumer.assign([TopicPartition(order.topic, number, 0) for number in partitions])
        while True:
            arrived: list[Arrived] = []
            for message in consumer.consume(10_000, _POLL_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                kind, number, due_ns, _ = (message.value() or b"").split(b" ", 3)
                arrived.append((kind, int(number), int(due_ns)))
            yield arrived
    finally:
        consumer.close()


def _table(order: ReaderOrder) -> Generator[Sequence[Arrived]]:
    """Poll every 10 ms; a row that is written again does not arrive again."""
    newest = 0
    connection = MySQLEndpoint.parse(os.environ[MYSQL_VARIABLE]).connect(autocommit=True)
    query = f"SELECT record, due, seq FROM `{order.table}` WHERE seq > %s ORDER BY seq"
    with closing(connection), connection.cursor() as cursor:
        while True:
            cursor.execute(query, (newest,))
            rows = cursor.fetchall()
            newest = rows[-1][2] if rows else newest
            yield [(record[:1].encode(), int(record[2:]), due) for record, due, _ in rows]
            time.sleep(_TABLE_POLL_S)


def read(poll: Poll, records: int, sent: Path) -> list[tuple[int, float]]:
    """Return number and latency in milliseconds of each measured record, repeats included."""
    seen: list[tuple[int, float]] = []
    numbers: set[int] = set()
    last_arrival_s = time.monotonic()
    end = float("inf")
    while time.monotonic() < min(last_arrival_s + _SILENCE_S, end):
        arrived = [record for record in poll() if record[0] == MEASURED]
        now_ns = time.time_ns()
        if arrived or (end == float("inf") and not sent.exists()):
            last_arrival_s = time.monotonic()
        for _, number, due_ns in arrived:
            seen.append((number, (now_ns - due_ns) / 1e6))
            numbers.add(number)
        if len(numbers) == records:
            end = min(end, time.monotonic() + _AFTER_S)
    return seen


def _summary(seen: list[tuple[int, float]], records: int) -> dict[str, object]:
    latencies_ms = [ms for _, ms in seen]
    numbers = {number for number, _ in seen}
    return {
        "missing": records - len(numbers),
        "repeated": len(seen) - len(numbers),
        "p50_ms": percentile(latencies_ms, 50) if latencies_ms else None,
        "p99_ms": percentile(latencies_ms, 99) if latencies_ms else None,
        "max_ms": max(latencies_ms, default=None),
    }


if __name__ == "__main__":
    sys.exit(main())
