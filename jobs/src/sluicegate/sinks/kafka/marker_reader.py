"""Reads the committed marker of a part: a group offset, with a consumer that never joins the group.

Group offsets expire. Therefore each transaction that moves one also writes the same marker as a
record of `sluicegate.markers`, which is compacted: the durable marker. It is read only where the group
offset has expired, because readers of committed records wait for the transactions of other jobs.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sluicegate.errors import TargetMissing
from sluicegate.protocol.markers import Marker
from sluicegate.sinks.kafka import errors
from sluicegate.sinks.kafka.connection import (
    LOG,
    MARKERS_TOPIC,
    RDKAFKA_LOG,
    Connection,
    Deadline,
    group_id,
)
from sluicegate.sinks.kafka.reader import CommittedReader, Record

_PAUSE_S = 0.02


def committed_marker(
    connection: Connection, lineage: str, sink: str, part: int, *, timeout_s: float = 10.0
) -> Marker | None:
    """Return a part's marker without disturbing a running driver: nothing is fenced or moved.

    Raises:
        SinkUnavailable: no answer in time, or a transaction stays open all that time.
    """
    deadline = Deadline(timeout_s)
    with closing(MarkerReader(connection, group_id(lineage, sink), part)) as reader:
        return reader.read(deadline) or reader.read_durable(deadline)


class MarkerReader:
    """Reads one part's marker, and knows the group for `send_offsets_to_transaction`."""

    def __init__(self, connection: Connection, group: str, part: int) -> None:
        self.where = f"marker of part {part} in group {group}"
        self._connection, self._part = connection, part
        self._key = f"{group}.{part}".encode()
        settings = connection.settings(
            group_id=group,
            enable_auto_commit=False,
            # The broker answers only once no transaction has an offset pending; librdkafka retries
            # after retry.backoff.ms. Just after a commit one usually is pending, hence 5 ms.
            isolation_level="read_committed",
            retry_backoff_ms=5,
        )
        self._consumer = Consumer(settings, logger=RDKAFKA_LOG)

    def read(self, deadline: Deadline) -> Marker | None:
        """Return the marker; waits until no open transaction has it pending.

        Raises:
            SinkUnavailable: still pending at the deadline, or no answer.
        """
        while True:
            try:
                position = self._fetch(deadline)
            except KafkaException as raised:
                name = errors.error_of(raised).name()
                if name in errors.TRANSIENT and not deadline.passed():
                    time.sleep(_PAUSE_S)
                    continue
                if name == "_TIMED_OUT":
                    raise errors.marker_pending(raised, self.where) from raised
                raise errors.apply_error(raised, self.where, "reading") from raised
            if position.offset < 0:  # -1001: none is committed
                return None
            return Marker(position.offset - 1, position.metadata or "")

    def read_durable(self, deadline: Deadline) -> Marker | None:
        """Return the durable marker; waits for transactions of other jobs in its partition.

        Reads that partition from its beginning. The caller must have opened the part, or must not
        mind that a transaction of it commits meanwhile.

        Raises:
            SinkUnavailable: a transaction is still open at the deadline, or no answer.
        """
        with CommittedReader(self._connection) as reader:
            try:
                bounds = reader.stable_bounds(MARKERS_TOPIC, self._part, deadline)
            except TargetMissing:
                return None
            found = self._last_durable(reader, bounds)
        marker = None if found is None else _marker(found)
        LOG.info(
            "the group offset of the %s is absent; the durable marker is %s",
            self.where,
            marker or "absent",
        )
        return marker

    def read_last_if_committed(self) -> Marker | None:
        """Return the durable marker of the part's last transaction, or None if it is open or aborted.

        The caller must have opened the part: no other writer of it begins a transaction meanwhile.

        Raises:
            MarkerPending: another job's transaction, open before it, hides which one it is.
            SinkUnavailable: no answer.
        """
        with CommittedReader(self._connection, committed=False) as reader:
            last = self._last_durable(reader, reader.bounds(MARKERS_TOPIC)[self._part])
        if last is None:
            return None
        with CommittedReader(self._connection) as reader:
            begin, stable = reader.bounds(MARKERS_TOPIC)[self._part]
            committed = self._last_durable(reader, (begin, stable))
        # The last stable offset is the first record of the first open transaction, and a
        # transaction has one durable marker.
        if last.offset > stable:
            raise errors.MarkerPending(
                f"{self.where} is pending, and partition {self._part} of {MARKERS_TOPIC} cannot say "
                f"whether it is committed: a transaction of another job is open at offset {stable}",
                data="the last epoch of this part is committed or will be applied again, never both",
                do="wait until that transaction has ended; if it hangs, find and abort it with "
                "kafka-transactions.sh find-hanging",
            )
        return _marker(last) if committed == last else None

    def _last_durable(self, reader: CommittedReader, bounds: tuple[int, int]) -> Record | None:
        found: Record | None = None
        for record in reader.read(MARKERS_TOPIC, {self._part: bounds}):
            if record.key == self._key:
                found = record
        return found

    def durable(self, marker: Marker) -> tuple[bytes, bytes, int]:
        """Return value, key and partition of the record that represents a marker."""
        value = json.dumps({"epoch": marker.epoch, "attempt": marker.attempt}).encode()
        return value, self._key, self._part

    def _fetch(self, deadline: Deadline) -> TopicPartition:
        (position,) = self._consumer.committed(
            [TopicPartition(MARKERS_TOPIC, self._part)], timeout=deadline.left()
        )
        error: KafkaError | None = position.error
        if error is not None:
            raise KafkaException(error)
        return position

    def position(self, marker: Marker) -> TopicPartition:
        """Return the group offset that represents a marker."""
        return TopicPartition(MARKERS_TOPIC, self._part, marker.epoch + 1, metadata=marker.attempt)

    def group(self) -> Any:  # noqa: ANN401 - an opaque handle without a public type
        """Return the group's metadata for `send_offsets_to_transaction`."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


def _marker(record: Record) -> Marker:
    return Marker(**json.loads(record.value or b""))
