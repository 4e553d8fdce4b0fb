"""A reader of a sink in its own process: `python -m tests.bench.reader FOLDER`.

It reads a topic as a read_committed consumer, or watches a table (`table_watch`). Compares the time at
which a record is seen with the time in it at which it was due, and counts missing and repeated records.
Exits when all measured records were seen, or when no more arrive.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.local_services import MySQLEndpoint
from infra.local_services.services import MYSQL_VARIABLE
from tests.bench import table_watch
from tests.bench.paced import Arrived, arrived

READY = "reader-ready"
ORDER = "reader.json"
SENT = "sent"
"""Created when all records are sent; only after that does silence mean that none will come."""
ALL_SEEN = "all-seen"
"""Created when no more records need to be sent."""
SEEN = "seen.json"

_SILENCE_S = 30.0
"""Without a measured record, after all were sent."""
_POLL_S = 0.05
_BATCH = 10_000
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


Poll = Callable[[], Arrived]
"""Returns what has arrived since the last call, waits 50 ms at most."""


class Seen:
    """The measured records that were seen, with their latencies.

    Attributes:
        missing: the number of records that were not seen yet.
        repeated: how often a record was seen again.
    """

    def __init__(self, records: int) -> None:
        self._seen = np.zeros(records, dtype=np.bool_)
        self._latencies_ms = np.zeros(records)
        self.missing = records
        self.repeated = 0

    def add(self, of: Arrived) -> None:
        """Add records."""
        unseen = np.sort(of.numbers[~self._seen[of.numbers]])
        new = int(np.count_nonzero(np.diff(unseen, prepend=-1)))
        self._seen[of.numbers] = True
        self._latencies_ms[of.numbers] = (of.seen_ns - of.due_ns) / 1e6
        self.missing -= new
        self.repeated += of.numbers.size - new

    def summary(self) -> dict[str, float | None]:
        """Return the result; percentiles as `figures.percentile`, which is slow with millions."""
        latencies_ms = self._latencies_ms[self._seen]

        def percentile(percent: float) -> float | None:
            if not latencies_ms.size:
                return None
            return float(np.percentile(latencies_ms, percent, method="inverted_cdf"))

        return {
            "missing": self.missing,
            "repeated": self.repeated,
            "p50_ms": percentile(50),
            "p99_ms": percentile(99),
            "max_ms": percentile(100),
        }


def main() -> int:
    """Read to the end, then write the result."""
    folder = Path(sys.argv[1])
    order = ReaderOrder(**json.loads((folder / ORDER).read_text(encoding="utf-8")))
    seen = _read_table(order, folder) if order.table else _read_topic(order, folder)
    partial_file = folder / f"{SEEN}.part"
    partial_file.write_text(json.dumps(seen.summary()), encoding="utf-8")
    partial_file.rename(folder / SEEN)
    return 0


def _read_topic(order: ReaderOrder, folder: Path) -> Seen:
    with closing(_topic(order)) as polls:
        poll = partial(next, polls)
        poll()  # connects
        (folder / READY).touch()
        seen = read(poll, order.records, folder / SENT)
    (folder / ALL_SEEN).touch()
    return seen


def _topic(order: ReaderOrder) -> Generator[Arrived]:
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
            # One call for many would wait 50 ms for a full batch, and those that are there would age.
            messages = consumer.consume(1, _POLL_S)
            messages += consumer.consume(_BATCH, 0) if messages else []
            seen_ns = time.time_ns()
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            yield arrived([message.value() or b"" for message in messages], seen_ns)
    finally:
        consumer.close()


def read(poll: Poll, records: int, sent: Path) -> Seen:
    """Return what was seen of the measured records."""
    seen = Seen(records)
    last_arrival_s = time.monotonic()
    end = float("inf")
    while time.monotonic() < min(last_arrival_s + _SILENCE_S, end):
        found = poll()
        seen.add(found)
        if found.numbers.size or (end == float("inf") and not sent.exists()):
            last_arrival_s = time.monotonic()
        if found.numbers.size and not seen.missing:
            end = min(end, time.monotonic() + _AFTER_S)
    return seen


def _read_table(order: ReaderOrder, folder: Path) -> Seen:
    mysql = MySQLEndpoint.parse(os.environ[MYSQL_VARIABLE])
    with table_watch.watch(mysql, order.table, order.records) as watch:
        (folder / READY).touch()
        watch.until_visible(folder / SENT, _SILENCE_S)
        (folder / ALL_SEEN).touch()
        seen = Seen(order.records)
        seen.add(watch.rows())
    return seen


if __name__ == "__main__":
    sys.exit(main())
