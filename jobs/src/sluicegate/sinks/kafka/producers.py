"""One producer that holds a transactional id: its settings, its transactions, its end.

Not here: markers and what is written. A `TransactionalProducer` is used for one transaction after
another until the first error and then thrown away: librdkafka has no KIP-890, so after a timeout or
an ambiguous reply only a new `init_transactions` and the marker tell what is in. Called by `writer`.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sluicegate.sinks.kafka import faults
from sluicegate.sinks.kafka.clients import (
    LOG,
    MARKERS_TOPIC,
    RDKAFKA_LOG,
    Connection,
    Deadline,
    Settings,
)
from sluicegate.sinks.kafka.faults import Undelivered

if TYPE_CHECKING:
    from sluicegate.protocol.markers import Marker
    from sluicegate.sinks.kafka.committed import CommittedMarker

_RDKAFKA_SMALLEST_LIMIT = 1000
_RDKAFKA_LARGEST_LIMIT = 1_000_000_000
_QUEUE_RECORDS = 500_000
_QUEUE_KIB = 131_072
_POLL_EVERY = 1000
_ABORT_S = 5.0
_ERRORS_KEPT = 1000
_MARK_S = 10.0
_GRACE_S = 1.0


class TransactionState(enum.Enum):
    """Where a producer's transaction is."""

    NONE = "none"
    OPEN = "open"
    COMMITTING = "committing"


@dataclass(frozen=True)
class ProducerLimits:
    """What a producer is to keep to.

    Args:
        record_bytes: the topic's `max.message.bytes`.
        transaction_timeout_ms: after which the broker aborts.
        delivery_timeout_ms: after which a record is given up.
        compression: librdkafka's `compression.type`.
    """

    record_bytes: int
    transaction_timeout_ms: int
    delivery_timeout_ms: int
    compression: str


def producer_settings(
    connection: Connection, transactional_id: str, limits: ProducerLimits
) -> Settings:
    """Return the settings of rule 13."""
    largest = min(max(limits.record_bytes, _RDKAFKA_SMALLEST_LIMIT), _RDKAFKA_LARGEST_LIMIT)
    return {
        # Java's partitioner, so that keys meet the records that other clients wrote. May be changed.
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "queue.buffering.max.messages": _QUEUE_RECORDS,
        "queue.buffering.max.kbytes": _QUEUE_KIB,
        **connection.settings(
            transactional_id=transactional_id,
            transaction_timeout_ms=limits.transaction_timeout_ms,
            enable_idempotence=True,
            acks="all",
            compression_type=limits.compression,
            # The broker refuses whole batches over the topic's limit and librdkafka does not split
            # them: 500-byte rows failed on a topic of 100 kB with the default batch of 1 MB.
            message_max_bytes=largest,
            batch_size=min(largest, max(1, limits.record_bytes)),
            message_timeout_ms=min(limits.delivery_timeout_ms, limits.transaction_timeout_ms),
        ),
        "delivery.report.only.error": True,
    }


def _bounded(call: Callable[[], None], timeout_s: float) -> None:
    """Run a call of the transactional API, and give it up a little after its own timeout.

    librdkafka 2.16 does not always keep to the timeout that it is given: after a restart of the only
    broker `send_offsets_to_transaction` of a producer that lived through it waited without end. The
    thread that is given up never comes back; it holds nothing but a producer to be thrown away.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as raised:  # noqa: BLE001 - raised again by the caller, below
            failed.append(raised)

    thread = threading.Thread(target=run, name="sluicegate-kafka-call", daemon=True)
    thread.start()
    thread.join(timeout_s + _GRACE_S)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "librdkafka did not return"))
    if failed:
        raise failed[0]


class TransactionalProducer:
    """A producer that has fenced all earlier ones of its transactional id."""

    def __init__(self, settings: Settings) -> None:
        self.state = TransactionState.NONE
        self._failed: list[KafkaError] = []
        self._failures = 0
        self._producer = Producer(
            {**settings, "on_delivery": self._on_delivery}, logger=RDKAFKA_LOG
        )

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures += 1
            if len(self._failed) < _ERRORS_KEPT:
                self._failed.append(error)

    def init(self, deadline: Deadline) -> None:
        """Fence the earlier producers; returns once their last transaction is in or aborted."""
        # Without a connection that is up init_transactions waits out two back-offs (18 ms become 60).
        # A topic is named because asking for all of them is slow where there are thousands.
        self._producer.list_topics(MARKERS_TOPIC, timeout=deadline.left())
        timeout_s, producer = deadline.left(), self._producer
        _bounded(lambda: producer.init_transactions(timeout_s), timeout_s)

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()
        self.state = TransactionState.OPEN

    def produce(self, topic: str, rows: Iterator[tuple[Any, ...]], deadline: Deadline) -> None:
        """Hand rows over to librdkafka, which sends them behind our back.

        Raises:
            KafkaException: a record was refused at once, or the queue stays full.
            Undelivered: a record that was handed over earlier is lost.
        """
        produce, poll, serve = self._producer.produce, self._producer.poll, self._serve
        for count, row in enumerate(rows, 1):
            try:
                produce(topic, *row)
            except BufferError:
                self._produce_late(topic, row, deadline)
            if count % _POLL_EVERY == 0:
                serve(poll, 0)
                self.check()

    def _produce_late(self, topic: str, row: tuple[Any, ...], deadline: Deadline) -> None:
        while not deadline.passed():
            self._serve(self._producer.poll, deadline.left(0.1))
            self.check()
            try:
                return self._producer.produce(topic, *row)
            except BufferError:
                continue
        raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "the send queue stayed full"))

    def flush(self, deadline: Deadline) -> None:
        """Return once every record is acknowledged by all replicas in sync.

        Raises:
            Undelivered: one is not. `flush` of librdkafka returns as if all were well.
            KafkaException: the time is up.
        """
        left = self._serve(self._producer.flush, deadline.left())
        self.check()
        if left:
            raise KafkaException(
                KafkaError(KafkaError.REQUEST_TIMED_OUT, f"{left} records are unacknowledged")
            )

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Poll or flush, and raise the cause where confluent-kafka hides it behind a SystemError.

        At a fatal error (being fenced is one) it sets an exception while it serves events, and goes
        on serving: the next delivery callback then fails, with or without the first as the cause.
        """
        try:
            return call(timeout_s)
        except SystemError as raised:
            if isinstance(raised.__cause__, KafkaException):
                raise raised.__cause__ from None
            self._producer.begin_transaction()  # after a fatal error every call raises it
            raise

    def check(self) -> None:
        """Raise Undelivered if a record of this producer has failed."""
        error = faults.cause(self._failed)
        if error is not None:
            raise Undelivered(error, self._failures)

    def mark(self, committed: CommittedMarker, marker: Marker, deadline: Deadline) -> None:
        """Put the marker into the open transaction."""
        timeout_s = deadline.left(_MARK_S)
        offsets, group, producer = [committed.position(marker)], committed.group(), self._producer
        _bounded(lambda: producer.send_offsets_to_transaction(offsets, group, timeout_s), timeout_s)

    def commit(self, deadline: Deadline) -> None:
        """Commit; an error other than one that demands an abort leaves it in doubt."""
        self.state = TransactionState.COMMITTING
        timeout_s, producer = deadline.left(), self._producer
        try:
            _bounded(lambda: producer.commit_transaction(timeout_s), timeout_s)
        except KafkaException as raised:
            if faults.error_of(raised).txn_requires_abort():
                self.state = TransactionState.OPEN
            raise
        self.state = TransactionState.NONE

    def abort(self) -> None:
        """Abort the open transaction."""
        producer = self._producer
        _bounded(lambda: producer.abort_transaction(_ABORT_S), _ABORT_S)
        self.state = TransactionState.NONE

    def throw_away(self, *, abort: bool) -> None:
        """End this producer without waiting for what it still has to send.

        Args:
            abort: abort an open transaction first, as a kindness: until somebody inits the same id,
                or the broker's timeout, readers of committed rows wait behind it. Not where the
                broker has just not answered. One whose commit was sent is left alone: it may be in.
        """
        if abort and self.state is TransactionState.OPEN:
            try:
                self.abort()
            except KafkaException as raised:
                reason = faults.said(faults.error_of(raised))
                LOG.info("abort failed; the next init aborts, or the broker's timeout: %s", reason)
        self.state = TransactionState.NONE
        self._producer.purge(blocking=False)
        # Dropping the last reference destroys the handle, in about a millisecond once it is purged.
        del self._producer
