"""Reads a Kafka topic once, read_committed, up to where it ended when the reading began.

Not a source of a job: nothing is committed, no group is joined, and what is appended meanwhile
is left alone. Callers: the verifiers of the packaged jobs.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sluicegate.protocol.errors import SinkUnavailable, TargetMissing
from sluicegate.sinks.kafka.access import client_settings

RDKAFKA_LOG = logging.getLogger("sluicegate_jobs.librdkafka")

_ANSWER_S = 30.0
"""A broker that gives nothing for so long, with records left to read, counts as gone."""

_BATCH = 10_000

_TICK_S = 0.2
"""A batch that is not full is waited for so long, so it is the time of the last one of a topic."""

_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001 - its names
"""librdkafka connects again by itself; if it cannot, `_ANSWER_S` ends the wait."""


class Record(NamedTuple):
    """A committed record of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


class TopicReader:
    """The records that a topic held when this object was made; may be iterated once.

    Records of a partition come in their order, partitions in any.

    Args:
        bootstrap: brokers, 'host:port[,host:port]'.
        topic: must exist.

    Raises:
        TargetMissing: there is no such topic.
        SinkUnavailable: no broker answers.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = _consumer(bootstrap, f"sluicegate.reader.{uuid.uuid4().hex}")
        try:
            bounds = {number: self._bounds(number) for number in self._partitions()}
        except KafkaException as error:
            self._consumer.close()
            raise _unanswered(f"the bounds of topic {topic}", error) from error
        except TargetMissing:
            self._consumer.close()
            raise
        self.begins: Mapping[int, int] = {number: low for number, (low, _) in bounds.items()}
        """Partition -> the oldest offset that is kept."""
        self.ends: Mapping[int, int] = {number: high for number, (_, high) in bounds.items()}
        """Partition -> the offset behind the last stable one; control records count."""

    def __iter__(self) -> Iterator[Record]:
        """Yield the committed records.

        Raises:
            SinkUnavailable: the broker stopped answering, or refused.
        """
        left = {number for number, end in self.ends.items() if end > self.begins[number]}
        try:
            self._consumer.assign(
                [TopicPartition(self._topic, number, self.begins[number]) for number in left]
            )
            heard = time.monotonic()
            while left:
                messages = self._consumer.consume(_BATCH, timeout=_TICK_S)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _ANSWER_S:
                    raise _unanswered(f"topic {self._topic}", None)
                yield from self._records(messages, left)
        except KafkaException as error:
            raise _unanswered(f"topic {self._topic}", error) from error
        finally:
            self._consumer.close()

    def _records(self, messages: list[Message], left: set[int]) -> Iterator[Record]:
        """Yield what is within the bounds; take partitions that are through out of `left`."""
        for message in messages:
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None:
                self._judge(error, partition, left)
                continue
            if partition is None or offset is None:  # only of messages that were never in a topic
                continue
            if offset < self.ends[partition]:
                # a message that was read has a list; its annotation is of those to be sent too
                headers: Any = tuple(message.headers() or ())
                _, at_ms = message.timestamp()
                yield Record(partition, offset, message.key(), message.value(), headers, at_ms)
            if offset >= self.ends[partition] - 1:
                self._through(partition, left)

    def _judge(self, error: KafkaError, partition: int | None, left: set[int]) -> None:
        # The records before the end may be control records, or aborted: then none reaches us, and
        # only this event says that all was read.
        if error.code() == KafkaError._PARTITION_EOF and partition is not None:  # noqa: SLF001
            self._through(partition, left)
        elif error.code() not in _PASSING:
            raise KafkaException(error)

    def _through(self, partition: int, left: set[int]) -> None:
        if partition in left:
            left.discard(partition)
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def _partitions(self) -> list[int]:
        found = self._consumer.list_topics(self._topic, timeout=_ANSWER_S).topics[self._topic]
        if found.error is not None or not found.partitions:
            raise TargetMissing(
                f"there is no topic {self._topic} ({found.error})",
                data="nothing was compared",
                do="check the name and the servers; `sluicegate targets` creates missing topics",
            )
        return sorted(found.partitions)

    def _bounds(self, partition: int) -> tuple[int, int]:
        where = TopicPartition(self._topic, partition)
        # Of a read_committed consumer the upper one is the last stable offset, so an open
        # transaction of somebody else is never waited for.
        low, high = self._consumer.get_watermark_offsets(where, timeout=_ANSWER_S)
        return int(low), int(high)


def _consumer(bootstrap: str, group: str) -> Consumer:
    settings: dict[str, Any] = {
        **client_settings(bootstrap),
        "group.id": group,  # required, never joined: partitions are assigned by hand
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        # a gap must be seen, not jumped over
        "auto.offset.reset": "error",
    }
    return Consumer(settings, logger=RDKAFKA_LOG)


def _unanswered(what: str, error: KafkaException | None) -> SinkUnavailable:
    return SinkUnavailable(
        f"Kafka gave no answer for {what}: {error or f'nothing came for {_ANSWER_S:.0f} s'}",
        data="nothing was compared; nothing was changed",
        do="look at the brokers, then run the check again",
    )
