"""Applies one part of a decided epoch to a Kafka topic: one transaction, rows and marker (rule 13).

Not here: which rows, when, and what follows an error; the coordinator decides. Called through
`BoundKafka.open` by whoever applies (an executor, or the driver), and kept between epochs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from sluicegate.protocol.errors import SinkUnavailable, SluicegateError
from sluicegate.protocol.markers import Marker, Verdict, judge
from sluicegate.sinks.contract import PartDecision, Receipt, Step
from sluicegate.sinks.kafka import clients, faults, records
from sluicegate.sinks.kafka.clients import LOG, Deadline
from sluicegate.sinks.kafka.committed import CommittedMarker
from sluicegate.sinks.kafka.faults import Undelivered
from sluicegate.sinks.kafka.producers import (
    ProducerLimits,
    TransactionalProducer,
    TransactionState,
    producer_settings,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.sinks.kafka.bound import BoundKafka

_BACKOFF_S = (0.5, 2.0)
_MARKER_PEEK_S = 1.0
_UNSETTLED_S = 5.0
_CONFIRM_S = 10.0
_NEVER_SEEN = b"aborted"


class KafkaPartWriter:
    """A producer and a marker reader of one part. Used by one thread at a time."""

    def __init__(self, sink: BoundKafka, part: int) -> None:
        self._sink, self._part = sink, part
        self._where = f"topic {sink.topic}, part {part}"
        self._committed = CommittedMarker(
            sink.connection, clients.group_id(sink.lineage, sink.id), part
        )
        self._producer: TransactionalProducer | None = None
        self._found: Marker | None = None
        try:
            self._reopen(Deadline(sink.apply_timeout_s))
            self.refresh()
        except BaseException:
            self.close()
            raise

    # --- the contract -----------------------------------------------------------------------

    def marker(self) -> Marker | None:
        """Return the committed marker; see the contract."""
        if self._producer and self._producer.state is not TransactionState.NONE:
            # A read would wait for our own transaction. What was there before it is still what is
            # committed: whoever else could commit to this part would have fenced us first.
            return self._found
        return self._committed.read(Deadline(self._sink.apply_timeout_s))

    def apply(self, decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        """Write rows and marker in one transaction; see the contract.

        Without rows but with a marker only the marker moves: that is what a discard is (rule 14).
        Without either no transaction is opened (rule 5).
        """
        deadline, start_ns = Deadline(self._sink.apply_timeout_s), time.time_ns()
        if decision.markers and self._judge(decision, deadline) is Verdict.SKIP:
            return Receipt(Verdict.SKIP)
        rows = _not_empty(batches)
        first = next(rows, None)
        if first is None and not decision.markers:
            return Receipt(Verdict.APPLY)
        try:
            producer = self._producer or self._reopen(deadline)
            found = rows if first is None else chain((first,), rows)
            return self._transact(producer, decision, found, deadline, start_ns)
        except (KafkaException, Undelivered) as raised:
            self._throw_away(abort=faults.is_answer(raised))
            if faults.is_fenced(faults.error_of(raised)):
                return self._give_way(decision, deadline, raised)
            raise faults.while_applying(raised, self._where, "applying") from raised
        except BaseException:
            # Of the rows' iterator, a failpoint or `_confirm`. What is committed is not undone by it.
            self._throw_away()
            raise

    def close(self) -> None:
        """Let go of both connections; an open transaction is aborted."""
        self._throw_away()
        self._committed.close()

    # --- what keeps a marker alive ----------------------------------------------------------

    def refresh(self) -> None:
        """Commit the present marker once more, alone: group offsets expire.

        Called at open, which `MarkerKeeper` does often enough. Does nothing where there is no marker yet.

        Raises:
            SinkUnavailable: in doubt, which for a refresh is harmless; open a new writer.
        """
        if self._found is None:
            return
        deadline = Deadline(self._sink.apply_timeout_s)
        try:
            producer = self._producer or self._reopen(deadline)
            if self._found is not None:
                producer.begin()
                producer.mark(self._committed, self._found, deadline)
                producer.commit(deadline)
        except (KafkaException, Undelivered) as raised:
            self._throw_away(abort=faults.is_answer(raised))
            raise faults.while_applying(raised, self._where, "refreshing the marker") from raised

    # --- the parts of an apply --------------------------------------------------------------

    def _judge(self, decision: PartDecision, deadline: Deadline) -> Verdict:
        """Judge by the marker that is known; where that says neither apply nor skip, by a new read.

        The known marker was read after our init, or after our last commit. Every marker of this
        part is committed under our transactional id, and another producer of that id must init it
        first, after which nothing of ours commits. So while we are alive and not fenced it is the
        committed one; and if we are fenced and do not know it: SKIP stands, as what we committed is
        in for ever; APPLY is harmless, as our transaction cannot commit, and raises. Anything else
        may only mean that another writer has been here: take the part over and read.
        """
        if self._producer is not None:
            try:
                return self._verdict(decision)
            except SluicegateError:
                LOG.info(
                    "%s: the marker has moved without this writer, which takes the part over",
                    self._where,
                )
                self._throw_away(abort=False)
        self._reopen(deadline)
        return self._verdict(decision)

    def _verdict(self, decision: PartDecision) -> Verdict:
        return judge(self._found, this=decision.this, prev=decision.prev, where=self._where)

    def _transact(
        self,
        producer: TransactionalProducer,
        decision: PartDecision,
        batches: Iterator[pa.RecordBatch],
        deadline: Deadline,
        start_ns: int,
    ) -> Receipt:
        times = [start_ns]
        producer.begin()
        decision.reach("apply-begun")
        times.append(time.time_ns())
        rows = size = 0
        traceparent = decision.traceparent if self._sink.trace_headers else ""
        for batch in batches:
            producer.produce(self._sink.topic, records.arguments(batch, traceparent), deadline)
            rows, size = rows + batch.num_rows, size + records.size_of(batch)
        decision.reach("apply-written")
        times.append(time.time_ns())
        producer.flush(deadline)
        times.append(time.time_ns())
        if decision.markers:
            producer.mark(self._committed, decision.this, deadline)
        decision.reach("before-commit")
        producer.commit(deadline)
        decision.reach("after-commit")
        if decision.markers:
            self._confirm(decision, deadline)
        times.append(time.time_ns())
        names = ("begin", "write", "flush", "commit")
        steps = tuple(Step(n, a, b) for n, a, b in zip(names, times, times[1:], strict=False))
        return Receipt(Verdict.APPLY, rows=rows, bytes=size, steps=steps)

    def _give_way(self, decision: PartDecision, deadline: Deadline, raised: Exception) -> Receipt:
        """Let the producer that fenced us finish: two retries must not fence each other for ever.

        Looks at the marker first and again after a pause of random length, before anybody who is
        told of the error can init again.
        """
        for wait in (False, True):
            if wait:
                _back_off(deadline)
            if decision.markers and self._peek() == decision.this:
                LOG.info(
                    "%s: fenced by another writer, which has applied %s", self._where, decision.this
                )
                return Receipt(Verdict.SKIP)
        raise SinkUnavailable(
            f"{self._where}: another writer of this part has fenced this one: {raised}",
            data="nothing of this writer's transaction is visible",
            do="nothing: the apply is repeated and the marker tells; keep one driver per checkpoint",
        ) from raised

    def _peek(self) -> Marker | None:
        try:
            return self._committed.read(Deadline(_MARKER_PEEK_S))
        except SinkUnavailable as error:
            # As long as the other's transaction has its marker pending there is no answer.
            LOG.info("%s: the marker is not settled yet: %s", self._where, error.what)
            return None

    def _reopen(self, deadline: Deadline) -> TransactionalProducer:
        """Init a new producer, and read the marker after it: only then nobody else can move it."""
        sink = self._sink
        limits = ProducerLimits(
            record_bytes=sink.record_limit_bytes,
            transaction_timeout_ms=sink.transaction_timeout_ms,
            delivery_timeout_ms=int(sink.apply_timeout_s * 1000),
            compression=sink.compression,
        )
        name = clients.transactional_id(sink.lineage, sink.id, self._part)
        producer = TransactionalProducer(producer_settings(sink.connection, name, limits))
        try:
            producer.init(deadline)
            self._found = self._settled_marker(producer, deadline)
        except KafkaException as raised:
            producer.throw_away(abort=False)
            if faults.is_fenced(faults.error_of(raised)):
                _back_off(deadline)
            raise faults.while_applying(raised, self._where, "taking the part over") from raised
        except BaseException:
            producer.throw_away(abort=False)
            raise
        self._producer = producer
        return producer

    def _settled_marker(self, producer: TransactionalProducer, deadline: Deadline) -> Marker | None:
        """Return the committed marker, after aborting what the broker has forgotten to end.

        Init returns when our id has no transaction left. If a marker is pending even so, the broker
        has lost track of it: Kafka 4.4, killed between answering a commit and writing it to the
        partitions, and started again as the only broker, loads transactions before it knows of
        topics and skips the writing ("Couldn't find leader endpoint ... likely deleted already" in
        its log). Readers would wait for ever. Aborting is right: no apply returned before it had
        read its marker (`_confirm`), so the epoch in question is still being retried. The broker
        ends transactions by producer, so an abort of ours ends them in every partition it touches.
        """
        try:
            return self._committed.read(Deadline(deadline.left(_UNSETTLED_S)))
        except faults.Unsettled as error:
            LOG.warning("%s: %s: aborting it", self._where, error.what)
        producer.begin()
        everywhere = (
            (_NEVER_SEEN, _NEVER_SEEN, partition) for partition in range(self._sink.partitions)
        )
        producer.produce(self._sink.topic, everywhere, deadline)
        producer.mark(self._committed, Marker(-1, "aborted"), deadline)
        producer.flush(deadline)
        producer.abort()
        return self._committed.read(deadline)

    def _confirm(self, decision: PartDecision, deadline: Deadline) -> None:
        """Read back the marker of a commit; see `_settled_marker` for why an answer is not enough."""
        found = self._committed.read(Deadline(deadline.left(_CONFIRM_S)))
        if found is None or found.epoch < decision.this.epoch:
            raise SinkUnavailable(
                f"{self._where}: the commit was acknowledged and the marker is {found or 'absent'}",
                data="the broker has lost the transaction that it acknowledged",
                do="nothing: the apply is repeated and the marker tells",
            )
        self._found = found

    def _throw_away(self, *, abort: bool = True) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.throw_away(abort=abort)


def _back_off(deadline: Deadline) -> None:
    time.sleep(deadline.left(random.uniform(*_BACKOFF_S)))  # noqa: S311 - jitter, not a secret


def _not_empty(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)
