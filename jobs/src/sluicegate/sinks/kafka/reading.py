"""Reads committed records: a topic up to where it ended, or single records by their offsets.

No group is joined and nothing is committed, so that no job is disturbed. Not here: what a record
means (`letters`). Called by `letters` and `replay`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sluicegate.protocol.errors import SinkUnavailable, TargetMissing
from sluicegate.sinks.kafka import faults
from sluicegate.sinks.kafka.clients import RDKAFKA_LOG, Connection

_ANSWER_S = 30.0
_TICK_S = 0.2
_BATCH = 5000
_NEAR = 5000
"""Records that are read through rather than jumped over: a jump costs a request."""

_PASSING = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN"})


class Position(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class CommittedReader:
    """A consumer of committed records; to be closed.

    Args:
        connection: the brokers.
        committed: False reads open and aborted transactions too.
    """

    def __init__(self, connection: Connection, *, committed: bool = True) -> None:
        self._where = connection.bootstrap
        settings = connection.settings(
            group_id=f"sluicegate.reader.{uuid.uuid4().hex}",  # required, never joined
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            isolation_level="read_committed" if committed else "read_uncommitted",
            # an offset that was just pruned: what is left is read, and its offset tells
            auto_offset_reset="earliest",
            queued_max_messages_kbytes=8192,
        )
        self._consumer = Consumer(settings, logger=RDKAFKA_LOG)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions.

        Raises:
            TargetMissing: there is no such topic.
            SinkUnavailable: no broker answers.
        """
        try:
            found = self._consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        except KafkaException as error:
            raise self._unanswered(f"what topic {topic} has", error) from error
        if found.error is not None or not found.partitions:
            raise TargetMissing(
                f"Kafka at {self._where}: there is no topic {topic}",
                data="nothing was read or written",
                do="check the name and the servers",
            )
        return sorted(found.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the oldest offset, and the one behind the last that is stable (or there at all)."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=_ANSWER_S
            )
        except KafkaException as error:
            raise self._unanswered(f"the bounds of topic {topic}", error) from error
        return int(low), int(high)

    def all_of(self, topic: str, since_ms: int | None = None) -> Iterator[Message]:
        """Yield a topic's records up to where it ends now, a partition after another.

        Args:
            topic: must exist.
            since_ms: leave out what has an older timestamp, ms since 1970.
        """
        # asked at once: what is appended while the first partitions are read is left alone in all
        bounds = {number: self.bounds(topic, number) for number in self.partitions(topic)}
        for partition, (low, end) in bounds.items():
            begin = low if since_ms is None else self._at(topic, partition, since_ms, end)
            if begin < end:
                yield from self._from(topic, partition, begin, end)

    def pick(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[Message]:
        """Yield the records at these offsets, in order; those that are not there are left out."""
        low, high = self.bounds(topic, partition)
        runs: list[list[int]] = []
        for offset in sorted(offset for offset in set(offsets) if low <= offset < high):
            if runs and offset - runs[-1][-1] <= _NEAR:
                runs[-1].append(offset)
            else:
                runs.append([offset])
        for run in runs:
            mine = set(run)
            for message in self._from(topic, partition, run[0], run[-1] + 1):
                if message.offset() in mine:
                    yield message

    def _at(self, topic: str, partition: int, since_ms: int, end: int) -> int:
        try:
            found = self._consumer.offsets_for_times(
                [TopicPartition(topic, partition, since_ms)], timeout=_ANSWER_S
            )[0].offset
        except KafkaException as error:
            raise self._unanswered(f"offsets of topic {topic}", error) from error
        return int(found) if found >= 0 else end

    def _from(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Message]:
        """Yield a partition's committed records from `begin` up to but not at `end`."""
        try:
            self._consumer.assign([TopicPartition(topic, partition, begin)])
            heard = time.monotonic()
            while True:
                messages = self._consumer.consume(_BATCH, timeout=_TICK_S)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _ANSWER_S:
                    raise self._unanswered(f"topic {topic}", None)
                for message in messages:
                    error, offset = message.error(), message.offset()
                    if error is None and offset is not None and offset < end:
                        yield message
                    if self._is_last(error, offset, end):
                        return
        except KafkaException as error:
            raise self._unanswered(f"topic {topic}", error) from error
        finally:
            self._consumer.unassign()

    def _is_last(self, error: KafkaError | None, offset: int | None, end: int) -> bool:
        """Say whether nothing before the end can follow; control records never reach us."""
        if error is None:
            return offset is not None and offset >= end - 1
        if error.name() == "_PARTITION_EOF":
            return True
        if error.name() not in _PASSING:
            raise KafkaException(error)
        return False

    def _unanswered(self, what: str, error: KafkaException | None) -> SinkUnavailable:
        said = faults.said(faults.error_of(error)) if error else f"nothing came in {_ANSWER_S:g} s"
        return SinkUnavailable(
            f"Kafka at {self._where} gave no answer for {what}: {said}",
            data="nothing was changed by this question",
            do="look at the brokers, then run the command again",
        )
