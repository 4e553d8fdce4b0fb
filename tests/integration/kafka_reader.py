"""Reads a topic as any consumer of committed records would. Called by tests only."""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

_PATIENCE_S = 30.0


class Record(NamedTuple):
    """One committed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


def read_topic(bootstrap: str, topic: str, settled: bool = True) -> list[Record]:  # noqa: FBT001, FBT002
    """Return all committed records, by partition in order.

    Args:
        bootstrap: the brokers.
        topic: its name.
        settled: first wait until no transaction is open: a commit that was acknowledged becomes
            visible a few milliseconds later.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        if settled:
            _wait_settled(bootstrap, consumer, topic, sorted(partitions))
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return sorted(_read(consumer, set(partitions)))
    finally:
        consumer.close()


def _wait_settled(bootstrap: str, consumer: Consumer, topic: str, partitions: list[int]) -> None:
    plain = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-plain",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        end = time.monotonic() + _PATIENCE_S
        for number in partitions:
            where = TopicPartition(topic, number)
            while consumer.get_watermark_offsets(where, 5) != plain.get_watermark_offsets(where, 5):
                assert time.monotonic() < end, f"a transaction stays open in {topic} [{number}]"
                time.sleep(0.01)
    finally:
        plain.close()


def _read(consumer: Consumer, left: set[int]) -> list[Record]:
    found: list[Record] = []
    end = time.monotonic() + _PATIENCE_S
    while left:
        assert time.monotonic() < end, "the topic cannot be read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            headers = dict(message.headers() or []).items()
            found.append(
                Record(
                    message.partition() or 0,
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    list(headers),
                )
            )
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition())
        else:
            _fail(error)
    return found


def _fail(error: KafkaError) -> None:
    raise AssertionError(error.str())
