"""Applies one part of a decided epoch to a Kafka topic: rows and marker in one transaction (rule 13)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
from confluent_kafka import KafkaException

from sluicegate.errors import SinkUnavailable, SluicegateError
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.sinks.contract import PartDecision, Receipt, apply_steps
from sluicegate.sinks.kafka import connection as kafka_connection
from sluicegate.sinks.kafka import errors as kafka_errors
from sluicegate.sinks.kafka import serialization
from sluicegate.sinks.kafka.connection import LOG, MARKERS_TOPIC, Deadline
from sluicegate.sinks.kafka.errors import Undelivered
from sluicegate.sinks.kafka.marker_reader import MarkerReader
from sluicegate.sinks.kafka.producer import (
    TransactionalProducer,
    TransactionState,
    producer_settings,
)
from sluicegate.sinks.kafka.topic import KafkaTopic, transaction_timeout_ms

_BACKOFF_S = (0.5, 2.0)
_READ_ONCE_S = 1.0
_PENDING_S = 5.0
_CONFIRM_S = 10.0
_ABORTED = b"aborted"


class KafkaPartWriter:
    """A producer and a marker reader of one part. Used by one thread at a time."""

    def __init__(self, topic: KafkaTopic, part: int) -> None:
        self._topic, self._part = topic, part
        self._where = f"topic {topic.name}, part {part}"
        group = kafka_connection.group_id(topic.lineage, topic.sink_id)
        self._reader = MarkerReader(topic.connection, group, part)
        self._producer: TransactionalProducer | None = None
        self._marker: Marker | None = None
        try:
            self._refresh(self._reopen(self._deadline()))
        except BaseException:
            self.close()
            raise

    def marker(self, *, durable: bool = False) -> Marker | None:
        if self._producer and self._producer.state is not TransactionState.NONE:
            # A read would wait for our own transaction. The marker from before it is still the
            # committed one: another writer of this part would have fenced us first.
            return self._marker
        deadline = self._deadline()
        found = self._reader.read(deadline)
        return self._recover_marker(deadline) if found is None and durable else found

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write rows and marker in one transaction; see the contract.

        Without rows but with a marker, only the marker moves: a discard (rule 14). Without either,
        no transaction is opened (rule 5).
        """
        deadline, start_ns = self._deadline(), time.time_ns()
        if self._producer and self._producer.must_be_replaced():
            self._discard_producer()
        if decision.markers and self._compare_marker(decision, deadline) is Verdict.SKIP:
            return Receipt(Verdict.SKIP)
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None and not decision.markers:
            return Receipt(Verdict.APPLY)
        try:
            producer = self._producer or self._reopen(deadline)
            batches = rows if first is None else chain((first,), rows)
            return self._transact(producer, decision, batches, deadline, start_ns)
        except (KafkaException, Undelivered) as raised:
            self._discard_producer(abort=kafka_errors.is_definite(raised))
            if kafka_errors.is_fenced(raised):
                return self._yield_to_new_owner(decision, deadline, raised)
            raise kafka_errors.apply_error(raised, self._where, "applying") from raised
        except BaseException:
            # From the rows' iterator, a failpoint or `_confirm`. Never undoes what is committed.
            self._discard_producer()
            raise

    def close(self) -> None:
        self._discard_producer()
        self._reader.close()

    def _refresh(self, producer: TransactionalProducer) -> None:
        """Commit the marker again, alone, because group offsets expire since their last commit.

        An error leaves the commit in doubt, which is harmless here: the marker stays the same.
        """
        if self._marker is None:
            return
        deadline = self._deadline()
        try:
            self._commit_marker(producer, self._marker, deadline)
        except (KafkaException, Undelivered) as raised:
            self._discard_producer(abort=kafka_errors.is_definite(raised))
            raise kafka_errors.apply_error(raised, self._where, "refreshing the marker") from raised

    def _commit_marker(
        self, producer: TransactionalProducer, marker: Marker, deadline: Deadline
    ) -> None:
        """Commit a marker in a transaction of its own."""
        producer.begin()
        self._produce_marker(producer, marker, deadline)
        producer.flush(deadline)
        producer.send_marker(self._reader, marker, deadline)
        producer.commit(deadline)

    def _produce_marker(
        self, producer: TransactionalProducer, marker: Marker, deadline: Deadline
    ) -> None:
        """Add the durable marker to the open transaction."""
        producer.produce(MARKERS_TOPIC, iter((self._reader.durable(marker),)), deadline)

    def _compare_marker(self, decision: PartDecision, deadline: Deadline) -> Verdict:
        """Compare the known marker; if it demands neither apply nor skip, read it again first.

        The known marker was read after our init or after our last commit. Every marker of this part
        is committed under our transactional id; another producer of that id must init it first, and
        after that none of our transactions commits. So until we are fenced, the known marker is the
        committed one. If we are fenced without knowing it, SKIP stays right, because what we
        committed stays committed, and APPLY is harmless, because our transaction cannot commit and
        raises. Any other verdict may only mean that another writer moved the marker: take the part
        over and read it.
        """
        if self._producer is not None:
            try:
                return decision.verdict(self._marker, self._where)
            except SluicegateError:
                LOG.info("%s: another writer moved the marker; taking the part over", self._where)
                self._discard_producer(abort=False)
        self._reopen(deadline)
        if self._marker is None and decision.durable_markers and decision.prev != NO_MARKER:
            self._recover_marker(deadline)
        return decision.verdict(self._marker, self._where)

    def _recover_marker(self, deadline: Deadline) -> Marker | None:
        """Return the durable marker, and commit the group offset again that has expired.

        Only after our init: no other writer of the part can move the marker any more, and its
        last transaction has ended.
        """
        producer = self._producer or self._reopen(deadline)
        self._marker = self._reader.read_durable(deadline)
        self._refresh(producer)
        return self._marker

    def _transact(
        self,
        producer: TransactionalProducer,
        decision: PartDecision,
        batches: Iterator[pa.RecordBatch],
        deadline: Deadline,
        start_ns: int,
    ) -> Receipt:
        times_ns = [start_ns]
        producer.begin()
        decision.reach("apply-begun")
        times_ns.append(time.time_ns())
        rows = size = 0
        traceparent = decision.traceparent if self._topic.trace_headers else ""
        for batch in batches:
            arguments = serialization.produce_arguments(batch, traceparent)
            producer.produce(self._topic.name, arguments, deadline)
            rows, size = rows + batch.num_rows, size + serialization.size_of(batch)
        if decision.markers:
            self._produce_marker(producer, decision.this, deadline)
        decision.reach("apply-written")
        times_ns.append(time.time_ns())
        producer.flush(deadline)
        decision.reach("apply-flushed")
        times_ns.append(time.time_ns())
        if decision.markers:
            producer.send_marker(self._reader, decision.this, deadline)
        decision.reach("before-commit")
        producer.commit(deadline)
        decision.reach("after-commit")
        if decision.markers:
            self._confirm(decision, deadline)
        times_ns.append(time.time_ns())
        return Receipt(Verdict.APPLY, rows=rows, bytes=size, steps=apply_steps(times_ns))

    def _yield_to_new_owner(
        self, decision: PartDecision, deadline: Deadline, raised: Exception
    ) -> Receipt:
        """Let the producer that fenced us finish: two retrying writers must not fence each other forever.

        Reads the marker at once, and again after a pause of random length, before the error lets the
        caller init again.
        """
        for wait in (False, True):
            if wait:
                _back_off(deadline)
            if decision.markers and self._read_marker_once() == decision.this:
                LOG.info(
                    "%s: fenced by another writer, which has applied %s", self._where, decision.this
                )
                return Receipt(Verdict.SKIP)
        raise SinkUnavailable(
            f"{self._where}: another writer of this part has fenced this one: {raised}",
            data="nothing of this writer's transaction is visible",
            do="nothing: the next attempt reads the marker; run only one driver per checkpoint",
        ) from raised

    def _read_marker_once(self) -> Marker | None:
        try:
            return self._reader.read(Deadline(_READ_ONCE_S))
        except SinkUnavailable as error:
            # No answer while the other writer's transaction has its marker pending.
            LOG.info("%s: the marker is still pending: %s", self._where, error.what)
            return None

    def _reopen(self, deadline: Deadline) -> TransactionalProducer:
        """Init a new producer, then read the marker: after the init nobody else can move it."""
        topic = self._topic
        settings = producer_settings(
            topic.connection,
            kafka_connection.transactional_id(topic.lineage, topic.sink_id, self._part),
            record_bytes=topic.limits.record_limit_bytes,
            transaction_timeout_ms=transaction_timeout_ms(topic.apply_timeout_s),
            delivery_timeout_ms=int(topic.apply_timeout_s * 1000),
            compression=topic.compression,
        )
        producer = TransactionalProducer(settings)
        try:
            producer.init(deadline)
            self._marker = self._read_settled_marker(producer, deadline)
        except (KafkaException, Undelivered) as raised:
            producer.discard(abort=False)
            if kafka_errors.is_fenced(raised):
                _back_off(deadline)
            raise kafka_errors.apply_error(raised, self._where, "taking the part over") from raised
        except BaseException:
            producer.discard(abort=False)
            raise
        self._producer = producer
        return producer

    def _read_settled_marker(
        self, producer: TransactionalProducer, deadline: Deadline
    ) -> Marker | None:
        """Return the committed marker, after ending a transaction that the broker forgot to end.

        Init returns once our id has no transaction left. A marker that is pending even so means that
        the coordinator lost track of the transaction. Kafka 4.3 and 4.4 do, for each partition
        without a leader when they end a transaction; while the only broker restarts, no partition has
        one ("Couldn't find leader endpoint ... likely deleted already" in its log). Readers of
        committed records would wait forever.

        A broker ends the transaction in the topic and in the markers' topic in one step, and in the
        group later. So if the durable marker is committed, the rows are too, and the group offset is
        committed here. Otherwise the transaction is aborted: no apply returns before it has read its
        marker (`_confirm`), so that epoch is still being retried. The broker ends transactions by
        producer, so ours ends the old one in every partition that it touches.
        """
        try:
            return self._reader.read(Deadline(deadline.left(_PENDING_S)))
        except kafka_errors.MarkerPending as error:
            pending = error.what
        committed = self._reader.read_last_if_committed()
        if committed is not None:
            LOG.warning(
                "%s: %s, but committed as %s: committing it", self._where, pending, committed
            )
            self._commit_marker(producer, committed, deadline)
            return self._reader.read(deadline)
        LOG.warning("%s: %s: aborting it", self._where, pending)
        producer.begin()
        records = (
            (_ABORTED, _ABORTED, partition) for partition in range(self._topic.limits.partitions)
        )
        aborted = Marker(-1, "aborted")
        producer.produce(self._topic.name, records, deadline)
        self._produce_marker(producer, aborted, deadline)
        producer.send_marker(self._reader, aborted, deadline)
        producer.flush(deadline)
        producer.abort()
        return self._reader.read(deadline)

    def _confirm(self, decision: PartDecision, deadline: Deadline) -> None:
        """Read a commit's marker back; `_read_settled_marker` says why an answer is not enough."""
        marker = self._reader.read(Deadline(deadline.left(_CONFIRM_S)))
        if marker is None or marker.epoch < decision.this.epoch:
            raise SinkUnavailable(
                f"{self._where}: the commit was acknowledged, but the marker is {marker or 'absent'}",
                data="the broker has lost the transaction that it acknowledged",
                do="nothing: the apply is repeated after reading the marker again",
            )
        self._marker = marker

    def _deadline(self) -> Deadline:
        return Deadline(self._topic.apply_timeout_s)

    def _discard_producer(self, *, abort: bool = True) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard(abort=abort)


def _back_off(deadline: Deadline) -> None:
    time.sleep(deadline.left(random.uniform(*_BACKOFF_S)))  # noqa: S311 - jitter, not a secret
