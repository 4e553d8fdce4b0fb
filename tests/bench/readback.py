"""Reads the sinks of a contender as a read_committed consumer.

Independent of the product. A run whose sinks have the wrong content gets no number.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from infra.local_services import MySQLEndpoint

_TIMEOUT_S = 60.0
_BATCH = 10_000


@dataclass(frozen=True)
class Content:
    """The content of a sink.

    Args:
        rows: number of records, or of counts (one per window and address, however often updated).
        total: the sum of checksums for values, the sum of hits for counts.
    """

    rows: int
    total: int

    def differs(self, where: str, expected: Content) -> str:
        """Describe the difference from the expected content; empty if there is none."""
        if self == expected:
            return ""
        if self.rows != expected.rows:
            return f"{where} holds {self.rows:,} rows instead of {expected.rows:,}"
        return (
            f"{where} holds {self.rows:,} rows, but not the right ones "
            f"({self.total:,} for {expected.total:,})"
        )


def values_in(bootstrap: str, topic: str, times: list[int] | None = None) -> Content:
    """Return the number of records in a topic and the sum of their values' checksums.

    Args:
        bootstrap: Kafka's bootstrap servers.
        topic: the topic.
        times: if given, it gets the time of each record in milliseconds since 1970, ascending.
    """
    rows = total = 0
    for message in committed(bootstrap, topic):
        rows += 1
        total += zlib.crc32(message.value() or b"")
        if times is not None:
            times.append(message.timestamp()[1])
    if times is not None:
        times.sort()
    return Content(rows, total)


def counts_in(bootstrap: str, topic: str, times: list[int] | None = None) -> Content:
    """Return the number of windows and addresses in a topic and the sum of their last counts.

    Args:
        bootstrap: Kafka's bootstrap servers.
        topic: the topic.
        times: if given, it gets for each line the time of the last record of its window, in
            milliseconds since 1970, ascending.
    """
    last: dict[tuple[str, str], int] = {}
    last_ms: dict[str, int] = {}
    for message in committed(bootstrap, topic):
        row = json.loads(message.value() or b"")
        window = row["window_start"]
        last[window, row["ip"]] = int(row["hits"])
        last_ms[window] = max(last_ms.get(window, 0), message.timestamp()[1])
    if times is not None:
        for (window, _), hits in last.items():
            times += [last_ms[window]] * hits
        times.sort()
    return Content(len(last), sum(last.values()))


def counts_in_table(mysql: MySQLEndpoint, table: str) -> Content:
    """Return the number of rows in a table of counts and the sum of hits."""
    connection = mysql.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*), COALESCE(SUM(hits), 0) FROM `{table}`")
            rows, hits = cursor.fetchone() or (0, 0)
    finally:
        connection.close()
    return Content(int(rows), int(hits))


def committed(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yield the committed records of a topic, in order within each partition.

    Raises:
        TimeoutError: a transaction stays open, or the end of the topic cannot be reached.
    """
    consumer = _consumer(bootstrap, "read_committed")
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        unread = set(partitions)
        _wait_settled(bootstrap, consumer, topic, unread)
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])
        end = time.monotonic() + _TIMEOUT_S
        while unread:
            for message in consumer.consume(_BATCH, 1.0):
                error = message.error()
                if error is None:
                    end = time.monotonic() + _TIMEOUT_S
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
            if time.monotonic() > end:
                raise TimeoutError(f"the end of topic {topic} cannot be reached")
    finally:
        consumer.close()


def _wait_settled(bootstrap: str, committed: Consumer, topic: str, partitions: set[int]) -> None:
    """Wait until no transaction is open: an acknowledged commit is visible a little later."""
    plain = _consumer(bootstrap, "read_uncommitted")
    end = time.monotonic() + _TIMEOUT_S
    try:
        for number in partitions:
            topic_partition = TopicPartition(topic, number)
            while committed.get_watermark_offsets(
                topic_partition, 10
            ) != plain.get_watermark_offsets(topic_partition, 10):
                if time.monotonic() > end:
                    raise TimeoutError(f"a transaction stays open in {topic} [{number}]")
                time.sleep(0.02)
    finally:
        plain.close()


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
