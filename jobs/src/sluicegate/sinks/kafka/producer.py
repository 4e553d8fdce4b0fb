"""A producer that holds a transactional id: its settings and its transactions.

A `TransactionalProducer` runs one transaction after another until the first error, or the first failed
connect, and is then discarded: librdkafka does not implement KIP-890, so after a timeout or an
ambiguous reply only a new `init_transactions` and the marker show what was committed.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sluicegate.protocol.markers import Marker
from sluicegate.sinks.kafka import errors
from sluicegate.sinks.kafka.connection import (
    ANSWER_MS,
    LOG,
    MARKERS_TOPIC,
    RDKAFKA_LOG,
    Connection,
    Deadline,
    Settings,
)
from sluicegate.sinks.kafka.errors import Undelivered
from sluicegate.sinks.kafka.marker_reader import MarkerReader

_RDKAFKA_MIN_BYTES = 1000
_RDKAFKA_MAX_BYTES = 1_000_000_000
_POLL_EVERY = 1000
_ABORT_S = 5.0
_MAX_ERRORS = 1000
_SEND_MARKER_S = 10.0
_SEND_MARKER_AFTER_LOSS_S = 2.0
_GRACE_S = 1.0
_CHECK_EVERY_S = 1.0


class TransactionState(enum.Enum):
    """The state of a producer's transaction."""

    NONE = "none"
    OPEN = "open"
    COMMITTING = "committing"


def producer_settings(
    connection: Connection,
    transactional_id: str,
    *,
    record_bytes: int,
    transaction_timeout_ms: int,
    delivery_timeout_ms: int,
    compression: str,
) -> Settings:
    """Return the settings of a transactional producer (rule 13).

    Args:
        connection: the brokers.
        transactional_id: of the producer.
        record_bytes: the topic's `max.message.bytes`.
        transaction_timeout_ms: after which the broker aborts.
        delivery_timeout_ms: after which librdkafka gives a record up.
        compression: librdkafka's `compression.type`.
    """
    answer_ms = int(str(connection.config.get("socket.timeout.ms", ANSWER_MS)))
    largest = min(max(record_bytes, _RDKAFKA_MIN_BYTES), _RDKAFKA_MAX_BYTES)
    return {
        # The partitioner of Java clients: keys share a partition with those clients' records. The
        # user's config may change it.
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 131_072,
        **connection.settings(
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            enable_idempotence=True,
            acks="all",
            compression_type=compression,
            # The broker refuses whole batches over the topic's limit and librdkafka does not split
            # them: 500-byte rows failed on a topic of 100 kB with the default batch of 1 MB.
            message_max_bytes=largest,
            batch_size=min(largest, max(1, record_bytes)),
            message_timeout_ms=min(delivery_timeout_ms, transaction_timeout_ms),
            # librdkafka refuses a longer one than the transaction's
            socket_timeout_ms=min(answer_ms, transaction_timeout_ms),
        ),
        "delivery.report.only.error": True,
    }


def _bounded(call: Callable[..., None], timeout_s: float, *arguments: object) -> None:
    """Run a call of the transactional API, whose last argument is its timeout; abandon it a little later.

    librdkafka 2.16 does not always obey its timeout (its issue 5456): after a restart of the only broker,
    `send_offsets_to_transaction` of a producer that survived the restart never returned. The abandoned
    thread never ends; it holds nothing but a producer that is discarded.
    """
    raised_in_call: list[BaseException] = []

    def run() -> None:
        try:
            call(*arguments, timeout_s)
        except BaseException as raised:  # noqa: BLE001 - re-raised below
            raised_in_call.append(raised)

    thread = threading.Thread(target=run, name="sluicegate-kafka-call", daemon=True)
    thread.start()
    thread.join(timeout_s + _GRACE_S)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "librdkafka did not return"))
    if raised_in_call:
        raise raised_in_call[0]


class ClientLog:
    """The log of a producer. It shows that the producer will never send to a partition again.

    A broker that goes down may answer that a partition has no leader. librdkafka (2.12 to 2.16, its
    issue 5430) then ignores every later answer about that partition: the records stay in the queue until
    their timeout. 1 of 9 kills of the only broker's pod did that.
    """

    def __init__(self) -> None:
        self.forgot_leader = False

    def log(self, level: int, form: str, *arguments: object) -> None:
        """Log a line. The arguments are librdkafka's name for its kind, the client's name, and the text."""
        kind, text = str(arguments[0]), str(arguments[-1])
        self.forgot_leader |= kind == "METADATAUPDATE" and "new leader-1 " in text
        RDKAFKA_LOG.log(level, form, *arguments)


class TransactionalProducer:
    """A producer that has fenced all earlier ones of its transactional id."""

    def __init__(self, settings: Settings) -> None:
        self.state = TransactionState.NONE
        self._errors: list[KafkaError] = []
        self._undelivered = 0
        self._lost_connection = False
        self._client_log = ClientLog()
        callbacks = {"on_delivery": self._on_delivery, "error_cb": self._on_error}
        self._producer = Producer({**settings, **callbacks}, logger=self._client_log)

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._undelivered += 1
            if len(self._errors) < _MAX_ERRORS:
                self._errors.append(error)

    def _on_error(self, error: KafkaError) -> None:
        self._lost_connection |= errors.is_silence(error.name())

    def must_be_replaced(self) -> bool:
        """Return whether a connect failed since the init, or librdkafka has forgotten a leader.

        The next transaction could then hang, see `_bounded` and `ClientLog`. A new producer costs a few
        tens of milliseconds.
        """
        try:
            self._serve(self._producer.poll, 0)
        except KafkaException:  # fatal, such as being fenced: the next transaction raises it again
            return False
        return self._lost_connection or self._client_log.forgot_leader

    def init(self, deadline: Deadline) -> None:
        """Fence the earlier producers; returns once their last transaction is committed or aborted."""
        # Without an open connection init_transactions waits for two backoffs (60 ms, not 18). Only one
        # topic is listed: listing all of them is slow where there are thousands.
        self._producer.list_topics(MARKERS_TOPIC, timeout=deadline.left())
        _bounded(self._producer.init_transactions, deadline.left())
        self._serve(self._producer.poll, 0)
        self._lost_connection = False  # errors from before the init affect no later transaction

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()
        self.state = TransactionState.OPEN

    def produce(self, topic: str, rows: Iterator[tuple[Any, ...]], deadline: Deadline) -> None:
        """Queue rows in librdkafka, which sends them in the background.

        Raises:
            KafkaException: a record was refused at once, or the queue stays full.
            Undelivered: a record that was queued earlier was not delivered.
        """
        produce, poll, serve = self._producer.produce, self._producer.poll, self._serve
        try:
            for count, row in enumerate(rows, 1):
                try:
                    produce(topic, *row)
                except BufferError:
                    self._produce_when_free(topic, row, deadline)
                if count % _POLL_EVERY == 0:
                    serve(poll, 0)
                    self.check()
        except KafkaException as raised:
            if errors.is_fatal(raised):
                self._raise_fatal_cause()
            raise

    def _produce_when_free(self, topic: str, row: tuple[Any, ...], deadline: Deadline) -> None:
        while not deadline.passed():
            self._serve(self._producer.poll, deadline.left(0.1))
            self.check()
            try:
                return self._producer.produce(topic, *row)
            except BufferError:
                continue
        raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "the send queue stayed full"))

    def flush(self, deadline: Deadline) -> None:
        """Return once all in-sync replicas have acknowledged every record.

        Raises:
            Undelivered: a record was not delivered; librdkafka's `flush` does not report it.
            KafkaException: the deadline has passed, or librdkafka will never send a record.
        """
        left = len(self._producer)
        while left and not deadline.passed():
            left = self._serve(self._producer.flush, deadline.left(_CHECK_EVERY_S))
            self.check()
        if left:
            raise KafkaException(
                KafkaError(KafkaError.REQUEST_TIMED_OUT, f"{left} records are unacknowledged")
            )

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Poll or flush, and raise the cause that confluent-kafka hides inside a SystemError.

        On a fatal error (being fenced is one) it sets an exception while it serves events and goes
        on serving: the next delivery callback then fails, with or without the first as its cause.
        """
        try:
            return call(timeout_s)
        except SystemError as raised:
            if isinstance(raised.__cause__, KafkaException):
                raise raised.__cause__ from None
            self._raise_fatal_cause()
            raise

    def _raise_fatal_cause(self) -> None:
        """Raise the fatal error of this producer, such as being fenced, if it has one.

        After one every call of the transactional API raises it; `produce` says only that there is one.
        """
        self._producer.begin_transaction()

    def check(self) -> None:
        """Raise Undelivered if a record was not delivered, KafkaException if one never will be."""
        error = errors.root_cause(self._errors)
        if error is not None:
            raise Undelivered(error, self._undelivered)
        if self._client_log.forgot_leader:
            reason = "librdkafka has forgotten the leader of a partition (its issue 5430)"
            raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, reason))

    def send_marker(self, reader: MarkerReader, marker: Marker, deadline: Deadline) -> None:
        """Add the marker to the open transaction.

        If a broker has gone since the init, the call may hang although another one is the coordinator of
        the group already (librdkafka's issue 5511), and a new producer finds that one.
        """
        limit_s = _SEND_MARKER_AFTER_LOSS_S if self._lost_connection else _SEND_MARKER_S
        timeout_s, offsets = deadline.left(limit_s), [reader.position(marker)]
        send = self._producer.send_offsets_to_transaction
        _bounded(send, timeout_s, offsets, reader.group())

    def commit(self, deadline: Deadline) -> None:
        """Commit. An error leaves the outcome in doubt, unless it requires an abort."""
        self.state = TransactionState.COMMITTING
        try:
            _bounded(self._producer.commit_transaction, deadline.left())
        except KafkaException as raised:
            if errors.error_of(raised).txn_requires_abort():
                self.state = TransactionState.OPEN
            raise
        self.state = TransactionState.NONE

    def abort(self) -> None:
        """Abort the open transaction."""
        _bounded(self._producer.abort_transaction, _ABORT_S)
        self.state = TransactionState.NONE

    def discard(self, *, abort: bool) -> None:
        """Destroy this producer without waiting for its unsent records.

        Args:
            abort: abort an open transaction first. Otherwise it blocks readers of committed records
                until the next init of the same id, or until the broker's timeout. False where the
                broker has just not answered. A transaction whose commit was sent is never aborted:
                it may be committed.
        """
        if abort and self.state is TransactionState.OPEN:
            try:
                self.abort()
            except KafkaException as raised:
                reason = errors.describe(errors.error_of(raised))
                LOG.info("abort failed; the next init or the broker's timeout aborts: %s", reason)
        self.state = TransactionState.NONE
        self._producer.purge(blocking=False)
        # Dropping the last reference destroys the handle, in about 1 ms after the purge.
        del self._producer
