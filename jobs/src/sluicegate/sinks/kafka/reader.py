"""Reads committed records: a topic up to its end, a topic as it grows, or single records by offset.

Partitions are assigned, no group is joined and no offset is committed, so a reader leaves nothing
on the broker and disturbs no job. Partitions that are added while it reads are not seen.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from sluicegate.errors import SinkUnavailable, TargetMissing
from sluicegate.sinks.kafka import errors as kafka_errors
from sluicegate.sinks.kafka.connection import RDKAFKA_LOG, Connection, Deadline

_ANSWER_S = 30.0
"""A broker that returns nothing for so long, with records left to read, counts as unreachable."""

_TICK_S = 0.2
"""How long a batch waits to fill up; the last batch of a topic always takes this long."""

_PAUSE_S = 0.02
_BATCH = 5000
_READ_THROUGH = 5000
"""Gaps up to this many records are read through; a seek costs a request."""

_TRANSIENT = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN"})
"""librdkafka reconnects by itself; if it cannot, `_ANSWER_S` ends the wait."""

Bounds = Mapping[int, tuple[int, int]]
"""Partition -> its oldest offset, and the offset after its last record. Control records count."""


class Position(NamedTuple):
    """The address of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Record(NamedTuple):
    """A record of a topic; `timestamp_ms` is -1 if it has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1


def read_committed(connection: Connection, topic: str) -> Iterator[Record]:
    """Yield a topic's committed records with a reader of their own; see `CommittedReader.read`."""
    with CommittedReader(connection) as reader:
        yield from reader.read(topic)


class CommittedReader:
    """A consumer of committed records. A context manager that closes itself.

    Args:
        connection: the brokers.
        committed: False also returns records of open and aborted transactions.
        skip_gaps: continue with the oldest record if retention removed the next one; the default
            raises SinkUnavailable, so that no gap stays unseen.
    """

    def __init__(
        self, connection: Connection, *, committed: bool = True, skip_gaps: bool = False
    ) -> None:
        self._connection = connection
        settings = connection.settings(
            group_id=f"sluicegate.reader.{uuid.uuid4().hex}",  # required, never joined
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            isolation_level="read_committed" if committed else "read_uncommitted",
            auto_offset_reset="earliest" if skip_gaps else "error",
            queued_max_messages_kbytes=8192,
        )
        self._consumer = Consumer(settings, logger=RDKAFKA_LOG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions.

        Raises:
            TargetMissing: the topic does not exist.
            SinkUnavailable: no broker answers.
        """
        with self._translated_errors(f"the partitions of topic {topic}"):
            metadata = self._consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        if metadata.error is not None or not metadata.partitions:
            raise TargetMissing(
                f"Kafka at {self._connection.bootstrap}: topic {topic} does not exist",
                data="nothing was read or written",
                do="check the name and the servers; `sluicegate targets` creates the topics of a packaged job",
            )
        return sorted(metadata.partitions)

    def bounds(self, topic: str) -> Bounds:
        """Return the bounds of all partitions; raises as `partitions`.

        A reader of committed records sees the last stable offset as the end, so it never waits for
        an open transaction.
        """
        return {number: self._bounds_of(topic, number) for number in self.partitions(topic)}

    def _bounds_of(self, topic: str, partition: int) -> tuple[int, int]:
        with self._translated_errors(f"the bounds of topic {topic}"):
            begin, end = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=_ANSWER_S
            )
            return begin, end

    def stable_bounds(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        """Return a partition's bounds once every transaction that is open in it now has ended.

        Raises:
            TargetMissing: the topic does not exist.
            SinkUnavailable: one is still open at the deadline, or no broker answers.
        """
        self.partitions(topic)
        with CommittedReader(self._connection, committed=False) as uncommitted:
            begin, end = uncommitted._bounds_of(topic, partition)
        while self._bounds_of(topic, partition)[1] < end:
            if deadline.passed():
                raise self._unanswered(
                    f"partition {partition} of topic {topic} up to offset {end}",
                    "a transaction is open there; if it does not end, find and abort it with "
                    "kafka-transactions.sh find-hanging",
                )
            time.sleep(_PAUSE_S)
        return begin, end

    def await_stable(self, topic: str, timeout_s: float) -> bool:
        """Wait until no transaction is open on a topic; return False if one still is.

        A commit that was acknowledged becomes visible a few milliseconds later.
        """
        deadline = Deadline(timeout_s)
        with CommittedReader(self._connection, committed=False) as uncommitted:
            while self.bounds(topic) != uncommitted.bounds(topic):
                if deadline.passed():
                    return False
                time.sleep(_PAUSE_S)
        return True

    def read(
        self, topic: str, bounds: Bounds | None = None, *, since_ms: int | None = None
    ) -> Iterator[Record]:
        """Yield a topic's records; those of one partition in order, partitions interleaved.

        Args:
            topic: must exist.
            bounds: what to read; default: up to the end that each partition has at the start.
            since_ms: skip records with an older timestamp, ms since 1970.

        Raises:
            TargetMissing: the topic does not exist.
            SinkUnavailable: the brokers stopped answering, or refused.
        """
        # All ends are read first: records appended while reading are left out in every partition.
        bounds = self.bounds(topic) if bounds is None else bounds
        ends = {number: end for number, (_, end) in bounds.items()}
        begins = {number: begin for number, (begin, _) in bounds.items()}
        if since_ms is not None:
            begins = {n: self._offset_at(topic, n, since_ms, end) for n, end in ends.items()}
        return self._consume(topic, begins, ends)

    def follow(
        self, topic: str, *, from_beginning: bool = False, until_end: bool = False
    ) -> Iterator[Record]:
        """Yield records as they arrive.

        Args:
            topic: must exist.
            from_beginning: start with the oldest record, not at the end.
            until_end: stop at the end that each partition has at the start.
        """
        bounds = self.bounds(topic)
        ends = {number: end for number, (_, end) in bounds.items()}
        begins = {number: begin for number, (begin, _) in bounds.items()}
        return self._consume(topic, begins if from_beginning else ends, ends if until_end else None)

    def pick(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[Record]:
        """Yield the records at these offsets, in order; offsets without a record are skipped."""
        low, high = self.bounds(topic).get(partition, (0, 0))
        runs: list[list[int]] = []
        for offset in sorted(offset for offset in set(offsets) if low <= offset < high):
            if runs and offset - runs[-1][-1] <= _READ_THROUGH:
                runs[-1].append(offset)
            else:
                runs.append([offset])
        for run in runs:
            wanted = set(run)
            for record in self._consume(topic, {partition: run[0]}, {partition: run[-1] + 1}):
                if record.offset in wanted:
                    yield record

    def _offset_at(self, topic: str, partition: int, since_ms: int, end: int) -> int:
        with self._translated_errors(f"the offsets of topic {topic}"):
            (position,) = self._consumer.offsets_for_times(
                [TopicPartition(topic, partition, since_ms)], timeout=_ANSWER_S
            )
        return int(position.offset) if position.offset >= 0 else end

    def _consume(
        self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int] | None
    ) -> Iterator[Record]:
        """Yield records from `begins` up to but not at `ends`; forever without ends.

        A partition without an end answers once in any case: with a record, or that it has none.
        """
        left = {number for number in begins if ends is None or begins[number] < ends[number]}
        unanswered = set(left)
        assigned = [TopicPartition(topic, number, begins[number]) for number in left]
        with self._translated_errors(f"topic {topic}"), self._assigned(assigned):
            last_answer = time.monotonic()
            while left:
                messages = self._consumer.consume(_BATCH, timeout=_TICK_S)
                answers = [message for message in messages if not _is_transient(message.error())]
                if (
                    not answers
                    and time.monotonic() - last_answer > _ANSWER_S
                    and (unanswered or ends)
                ):
                    reason = f"nothing arrived for {_ANSWER_S:g} s"
                    raise self._unanswered(f"topic {topic}", reason)
                for message in answers:
                    error, number = message.error(), int(message.partition() or 0)
                    unanswered.discard(number)
                    end = None if ends is None else ends.get(number)
                    if error is None and (end is None or int(message.offset() or 0) < end):
                        yield _record(message)
                    if _is_last(error, message.offset(), end) and number in left:
                        left.discard(number)
                        self._consumer.incremental_unassign([TopicPartition(topic, number)])
                if answers:
                    last_answer = time.monotonic()

    @contextlib.contextmanager
    def _assigned(self, partitions: list[TopicPartition]) -> Iterator[None]:
        try:
            self._consumer.assign(partitions)
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # closed before the records were all read
                self._consumer.unassign()

    @contextlib.contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            reason = kafka_errors.describe(kafka_errors.error_of(error))
            raise self._unanswered(what, reason) from error

    def _unanswered(self, what: str, reason: str) -> SinkUnavailable:
        return SinkUnavailable(
            f"Kafka at {self._connection.bootstrap} did not return {what}: {reason}",
            data="reading changes nothing; output so far is right but incomplete",
            do="check the brokers and the name, then run the command again",
        )


def _record(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    # A message that was read has a list of headers; the annotation is for messages to be sent too.
    headers: Any = tuple(message.headers() or ())
    key: Any = message.key()
    value: Any = message.value()
    return Record(
        int(message.partition() or 0),
        int(message.offset() or 0),
        key,
        value,
        headers,
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
    )


def _is_last(error: KafkaError | None, offset: int | None, end: int | None) -> bool:
    """Return whether no record before `end` can follow.

    The last offsets before the end may be control records, or aborted: then no record arrives, only
    the end-of-partition event.
    """
    if error is None:
        return end is not None and offset is not None and offset >= end - 1
    if error.name() == "_PARTITION_EOF":
        return end is not None
    raise KafkaException(error)


def _is_transient(error: KafkaError | None) -> bool:
    return error is not None and error.name() in _TRANSIENT
