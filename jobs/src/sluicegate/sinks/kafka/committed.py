"""The committed marker of a part: group offsets, read with a consumer that never joins the group.

Not here: moving the marker; that is part of the writer's transaction. Called by `writer`, and by
the CLI, which only looks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sluicegate.protocol.markers import Marker
from sluicegate.sinks.kafka import faults
from sluicegate.sinks.kafka.clients import (
    MARKERS_TOPIC,
    RDKAFKA_LOG,
    Connection,
    Deadline,
    group_id,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_PAUSE_S = 0.02


def committed_marker(
    connection: Connection, lineage: str, sink: str, part: int, *, timeout_s: float = 10.0
) -> Marker | None:
    """Return a part's marker without disturbing a living driver: nothing is fenced or moved.

    Raises:
        SinkUnavailable: no answer in time, or a transaction is open for all of it.
    """
    reader = CommittedMarker(connection, group_id(lineage, sink), part)
    try:
        return reader.read(Deadline(timeout_s))
    finally:
        reader.close()


class CommittedMarker:
    """Reads one part's marker, and knows the group for `send_offsets_to_transaction`."""

    def __init__(self, connection: Connection, group: str, part: int) -> None:
        self.where = f"marker of part {part} in group {group}"
        self._part = part
        settings = connection.settings(
            group_id=group,
            enable_auto_commit=False,
            # The broker then answers only when no transaction has an offset pending; librdkafka asks
            # again after retry.backoff.ms. Just after a commit that is the usual case, hence 5 ms.
            isolation_level="read_committed",
            retry_backoff_ms=5,
        )
        self._consumer = Consumer(settings, logger=RDKAFKA_LOG)

    def read(self, deadline: Deadline) -> Marker | None:
        """Return the marker; waits for an open transaction's marker to be settled.

        Raises:
            SinkUnavailable: not settled, or no answer, within the deadline.
        """
        while True:
            try:
                found = self._ask(deadline)
            except KafkaException as raised:
                if faults.error_of(raised).name() in faults.PASSING and not deadline.passed():
                    time.sleep(_PAUSE_S)
                    continue
                if faults.error_of(raised).name() == "_TIMED_OUT":
                    raise faults.unsettled(raised, self.where) from raised
                raise faults.while_applying(raised, self.where, "reading") from raised
            # An offset is never negative once committed; -1001 means that there is none.
            return Marker(found.offset - 1, found.metadata or "") if found.offset >= 0 else None

    def _ask(self, deadline: Deadline) -> TopicPartition:
        found = self._consumer.committed(
            [TopicPartition(MARKERS_TOPIC, self._part)], timeout=deadline.left()
        )[0]
        error: KafkaError | None = found.error
        if error is not None:
            raise KafkaException(error)
        return found

    def position(self, marker: Marker) -> TopicPartition:
        """Return a marker as the group offset that stands for it."""
        return TopicPartition(MARKERS_TOPIC, self._part, marker.epoch + 1, metadata=marker.attempt)

    def group(self) -> Any:  # noqa: ANN401 - an opaque handle without a public type
        """Return the group's metadata for `send_offsets_to_transaction`."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
