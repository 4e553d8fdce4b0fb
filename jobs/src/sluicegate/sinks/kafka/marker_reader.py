"""Reads the committed marker of a part: a group offset, with a consumer that never joins the group."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sluicegate.protocol.markers import Marker
from sluicegate.sinks.kafka import errors
from sluicegate.sinks.kafka.connection import (
    MARKERS_TOPIC,
    RDKAFKA_LOG,
    Connection,
    Deadline,
    group_id,
)

_PAUSE_S = 0.02


def committed_marker(
    connection: Connection, lineage: str, sink: str, part: int, *, timeout_s: float = 10.0
) -> Marker | None:
    """Return a part's marker without disturbing a running driver: nothing is fenced or moved.

    Raises:
        SinkUnavailable: no answer in time, or a transaction stays open all that time.
    """
    with closing(MarkerReader(connection, group_id(lineage, sink), part)) as reader:
        return reader.read(Deadline(timeout_s))


class MarkerReader:
    """Reads one part's marker, and knows the group for `send_offsets_to_transaction`."""

    def __init__(self, connection: Connection, group: str, part: int) -> None:
        self.where = f"marker of part {part} in group {group}"
        self._part = part
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
