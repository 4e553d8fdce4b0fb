"""Reads the sinks of a contender as a read_committed consumer.

Independent of the product. A run whose sinks have the wrong content gets no number.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from infra.local_services import MySQLEndpoint
from tests.bench.inputs import checksum, spread_times

_TIMEOUT_S = 60.0
_BATCH = 10_000


@dataclass(frozen=True)
class Content:
    """The content of a sink.

    Args:
        rows: number of records, or of rows (one per key, however often updated).
        total: the sum of hits for ip_count, otherwise the sum of checksums.
    """

    rows: int
    total: int

    @classmethod
    def of_rows(cls, rows: Iterable[Sequence[object]]) -> Content:
        """Return the content of a sink with these rows."""
        count = total = 0
        for row in rows:
            count += 1
            total += checksum(*row)
        return cls(count, total)

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


def running_counts_in(
    bootstrap: str, topic: str, fields: tuple[str, str], per_record: int, times: list[int]
) -> Content:
    """Return the last count of each key in a topic.

    Args:
        bootstrap: Kafka's bootstrap servers.
        topic: the topic.
        fields: names of the key and of its count.
        per_record: by how much a source record lets the counts grow.
        times: it gets the time at which each source record was counted, in milliseconds since 1970.
    """
    last: dict[str, int] = {}
    grown: Counter[int] = Counter()
    for message in committed(bootstrap, topic):
        row = json.loads(message.value() or b"")
        key, count = row[fields[0]], int(row[fields[1]])
        grown[message.timestamp()[1]] += count - last.get(key, 0)
        last[key] = count
    times += spread_times(grown, per_record)
    return Content.of_rows(last.items())


def orders_in(bootstrap: str, topic: str, times: list[int]) -> Content:
    """Return the last row of each window and user in a topic; see `counts_in`."""
    last: dict[tuple[str, str], tuple[int, str, str]] = {}
    last_ms: dict[str, int] = {}
    for message in committed(bootstrap, topic):
        row = json.loads(message.value() or b"", parse_float=Decimal, parse_int=Decimal)
        window = row["window_start"][:19].replace("T", " ")
        largest, smallest = (f"{Decimal(row[name]):.2f}" for name in ("largest", "smallest"))
        last[window, row["user"]] = int(row["orders"]), largest, smallest
        last_ms[window] = max(last_ms.get(window, 0), message.timestamp()[1])
    for (window, _), (orders, *_) in last.items():
        times += [last_ms[window]] * orders
    times.sort()
    return Content.of_rows((*key, *row) for key, row in last.items())


def counts_in_table(mysql: MySQLEndpoint, table: str) -> Content:
    """Return the number of rows in a table of counts and the sum of hits."""
    return _aggregated(mysql, f"SELECT COUNT(*), COALESCE(SUM(hits), 0) FROM `{table}`")


def rows_in_table(mysql: MySQLEndpoint, table: str, *expressions: str) -> Content:
    """Return the number of rows in a table and the sum of the checksums of these expressions."""
    row = f"CRC32(CONCAT_WS('|', {', '.join(expressions)}))"
    return _aggregated(mysql, f"SELECT COUNT(*), COALESCE(SUM({row}), 0) FROM `{table}`")


def _aggregated(mysql: MySQLEndpoint, query: str) -> Content:
    connection = mysql.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            rows, total = cursor.fetchone() or (0, 0)
    finally:
        connection.close()
    return Content(int(rows), int(total))


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
