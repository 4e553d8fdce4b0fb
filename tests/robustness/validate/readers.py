"""Readers of the sinks of a long run: when new rows appeared, and how long read_committed readers waited.

They use the clients of Kafka and MySQL, and nothing of the product. While a server is down a poll fails;
the next one counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pymysql
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    TopicPartition,
)

from tests.robustness.validate.checker.reading import connect

_TICK_S = 0.2
_DOWN_S = 1.0
_ASK_S = 2.0
_QUIET = {"log_level": 0}
_MYSQL = {"autocommit": True, "connect_timeout": 2, "read_timeout": 30}

Partition = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass
class Seen:
    """What has been seen of a sink.

    Args:
        amount: the largest so far; it grows when rows become visible, and not when a server that has failed
            over gets again what it had.
        changed: when it grew, by time.monotonic().
    """

    amount: int = 0
    changed: list[float] = field(default_factory=list)

    def see(self, amount: int, now: float) -> None:
        """Note what is visible now."""
        if amount > self.amount:
            self.amount = amount
            self.changed.append(now)

    def first_after(self, start: float) -> float | None:
        """Return when rows appeared first after a time."""
        return next((at for at in self.changed if at > start), None)


@dataclass
class Wait:
    """A time in which the last stable offset of a partition stood still below the high watermark."""

    offset: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Waits:
    """How long read_committed readers of some partitions waited for an open transaction."""

    def __init__(self) -> None:
        self._ended: list[Wait] = []
        self._open: dict[Partition, Wait] = {}
        self._lock = threading.Lock()

    def see(self, partition: Partition, stable: int, end: int, now: float) -> None:
        """Note the last stable offset of a partition, and its high watermark."""
        with self._lock:
            wait = self._open.pop(partition, None)
            if wait is not None:
                wait.end = now
                if wait.offset != stable or stable >= end:
                    self._ended.append(wait)
                    wait = None
            if stable < end:
                self._open[partition] = wait or Wait(stable, now, now)

    def longest(self, begin: float, end: float) -> float:
        """Return the longest wait in a time span, in seconds.

        What a wait lasted before the span belongs to what happened before.
        """
        with self._lock:
            waits = [*self._ended, *self._open.values()]
        inside = [(max(w.begin, begin), w.end) for w in waits if w.begin <= end]
        return max((until - since for since, until in inside if until > since), default=0.0)


class SinkReaders:
    """Threads that read the sinks until they are closed.

    Args:
        bootstrap: brokers.
        url: mysql://user:password@host:port/database.
        topics: topics whose readers are measured; the first is the sink whose rows are watched.
        table: the table, and an SQL expression that grows with the rows of an epoch.
    """

    def __init__(
        self, bootstrap: str, url: str, topics: tuple[str, ...], table: tuple[str, str]
    ) -> None:
        self.seen: Mapping[str, Seen] = {"topic": Seen(), "table": Seen()}
        self.waits = Waits()
        self._bootstrap, self._url, self._topics, self._table = bootstrap, url, topics, table
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=read, name=read.__name__, daemon=True)
            for read in (self._read_topic, self._read_table, self._read_offsets)
        ]

    def start(self) -> None:
        """Start reading."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop reading.

        Raises:
            RuntimeError: one had ended before, so that what it did not see proves nothing.
        """
        failed = [thread.name for thread in self._threads if not thread.is_alive()]
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if failed:
            raise RuntimeError(f"readers of the sinks ended early: {', '.join(failed)}")

    def _read_topic(self) -> None:
        topic, total = self._topics[0], 0
        with closing(_consumer(self._bootstrap, "read_committed")) as consumer:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
            while not self._ended.is_set():
                messages = consumer.consume(1000, timeout=_TICK_S)
                total += sum(message.error() is None for message in messages)
                self.seen["topic"].see(total, time.monotonic())

    def _read_table(self) -> None:
        connection = None
        table, amount = self._table
        while not self._ended.wait(_TICK_S):
            try:
                connection = connection or connect(self._url, **_MYSQL)
                with connection.cursor() as cursor:
                    cursor.execute(f"SELECT {amount} FROM `{table}`")
                    row = cursor.fetchone()
            except pymysql.MySQLError:
                connection = None  # the server is down or has cut the connection
                continue
            self.seen["table"].see(int(row[0] or 0) if row else 0, time.monotonic())

    def _read_offsets(self) -> None:
        with (
            closing(_consumer(self._bootstrap, "read_committed")) as committed,
            closing(_consumer(self._bootstrap, "read_uncommitted")) as every,
        ):
            found = every.list_topics(timeout=30).topics
            partitions = [(t, p) for t in self._topics for p in found[t].partitions]
            while not self._ended.wait(_TICK_S):
                try:
                    # rows that are committed between the two look like an open transaction until the next poll
                    stable = {partition: _end(committed, partition) for partition in partitions}
                    end = {partition: _end(every, partition) for partition in partitions}
                except KafkaException:
                    self._ended.wait(_DOWN_S)  # the broker is down: nobody reads
                    continue
                for partition in partitions:
                    self.waits.see(partition, stable[partition], end[partition], time.monotonic())


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    """Return a client for records and offsets; an AdminClient uses half a core while a broker is down."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "progress",  # required, never joined
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "reconnect.backoff.max.ms": 500,
            **_QUIET,
        }
    )


def _end(of: Consumer, partition: Partition) -> int:
    """Return the end of a partition: for a read_committed client its last stable offset."""
    _, end = of.get_watermark_offsets(TopicPartition(*partition), timeout=_ASK_S)
    return end
