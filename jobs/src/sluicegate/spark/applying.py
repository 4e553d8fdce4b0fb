"""Applying: decided chunks reach their sinks, in the driver or in executors.

Inline chunks are written by the driver, without a Spark job; staged ones by executors, a part
each. Writers are long-lived, one for each (lineage, sink, part) in a process, and thrown away at
any error. Called by `driver`, and by the CLI without Spark.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import SinkUnavailable, SluicegateError
from sluicegate.protocol.markers import Marker, Verdict
from sluicegate.protocol.record import AT_MOST_ONCE, EXACTLY_ONCE, Chunk, EpochRecord
from sluicegate.sinks.chunks import unpack
from sluicegate.sinks.contract import BoundSink, PartDecision, PartWriter, Receipt
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import open_objects
from sluicegate.storage.staging import StagingArea

log = logging.getLogger("sluicegate.apply")

_writers: dict[tuple[str, str, int], PartWriter] = {}
"""The writers of this process (the driver, or a Python worker that Spark reuses)."""


@dataclass(frozen=True)
class PartOrder:
    """One part of a sink to be applied; travels to an executor."""

    checkpoint: str
    sink: BoundSink
    part: int
    chunks: tuple[Chunk, ...]
    lineage: str
    epoch: int
    attempt: str
    prev_epoch: int
    prev_attempt: str
    delivery: str
    traceparent: str

    @classmethod
    def of(
        cls, record: EpochRecord, sink: BoundSink, part: int, checkpoint: str, *, discard: bool
    ) -> PartOrder:
        """Return the order for a part of a decided epoch."""
        prev = record.prev_of(sink.id, part)
        return cls(
            checkpoint=checkpoint,
            sink=sink,
            part=part,
            chunks=() if discard else record.part_chunks(sink.id, part),
            lineage=record.lineage,
            epoch=record.epoch,
            attempt=record.attempt,
            prev_epoch=prev.epoch,
            prev_attempt=prev.attempt,
            delivery=record.delivery,
            traceparent=record.traceparent,
        )


def apply_part(order: PartOrder) -> Receipt:
    """Apply one part in this process."""
    key = (order.lineage, order.sink.id, order.part)
    area = StagingArea(open_objects(order.checkpoint))
    decision = PartDecision(
        lineage=order.lineage,
        this=Marker(order.epoch, order.attempt),
        prev=Marker(order.prev_epoch, order.prev_attempt),
        markers=order.delivery == EXACTLY_ONCE,
        traceparent=order.traceparent,
        reach=lambda point: failpoints.reach(point, epoch=order.epoch, sink=order.sink.id),
    )
    try:
        writer = _writers.get(key)
        if writer is None:
            writer = _writers[key] = order.sink.open(order.part)
        return writer.apply(decision, _rows(area, order.chunks))
    except BaseException:
        drop_writer(key)
        raise


def _rows(area: StagingArea, chunks: tuple[Chunk, ...]) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        yield from unpack(area.read(chunk))


def drop_writer(key: tuple[str, str, int]) -> None:
    """Throw a writer away; whatever it had open is rolled back."""
    writer = _writers.pop(key, None)
    if writer is not None:
        writer.close()


def close_writers() -> None:
    """Let go of every connection of this process."""
    for key in list(_writers):
        drop_writer(key)


class MarkerKeeper:
    """Keeps the markers of idle parts alive: a store may let them expire (Kafka's group offsets).

    Opening a writer refreshes its part's marker, and fences older writers of the part, so this is
    done between epochs, in the driver, at the start and as often as the sink asks.
    """

    def __init__(self, sinks: Mapping[str, BoundSink]) -> None:
        self._sinks = sinks
        self._refreshed: dict[str, float] = {}

    def keep(self, record: EpochRecord) -> None:
        """Refresh every marker that is due; a failure is logged and the next epoch tries again."""
        if record.delivery != EXACTLY_ONCE:
            return
        for sink, parts in record.chain().items():
            bound = self._sinks.get(sink)
            every = bound.refresh_every_s if bound else None
            if bound is None or every is None or not self._due(sink, every):
                continue
            try:
                for part in parts:
                    key = (record.lineage, sink, part)
                    drop_writer(key)
                    _writers[key] = bound.open(part)
            except SluicegateError as error:
                log.warning("markers of %s were not refreshed, tried again: %s", sink, error)
            else:
                self._refreshed[sink] = time.monotonic()

    def _due(self, sink: str, every_s: float) -> bool:
        last = self._refreshed.get(sink)
        return last is None or time.monotonic() - last >= every_s


class AppliedSinks:
    """`ports.Sinks` over bound sinks.

    Args:
        sinks: by id.
        checkpoint: where staged chunks are.
        spark: the session whose executors apply large parts; None applies all here.
        seen: told of each part that was applied.
        settled: waits for an apply that runs behind; see `ports.Sinks`.
    """

    def __init__(
        self,
        sinks: Mapping[str, BoundSink],
        checkpoint: str,
        spark: SparkSession | None,
        seen: Callable[[str, int, Receipt], None],
        settled: Callable[[], int | None],
    ) -> None:
        self._sinks, self._checkpoint, self._spark, self._seen = sinks, checkpoint, spark, seen
        self.settled = settled

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        bound = self._sinks[sink]
        orders = [PartOrder.of(record, bound, p, self._checkpoint, discard=discard) for p in parts]
        if self._spark is None or all(c.inline is not None for o in orders for c in o.chunks):
            for order in orders:
                self._seen(sink, order.part, apply_part(order))
            return
        for part, receipt in _distribute(self._spark, orders):
            self._seen(sink, part, receipt)


def _distribute(spark: SparkSession, orders: list[PartOrder]) -> list[tuple[int, Receipt]]:
    """Apply each part in a task of its own; every task is let end before an error is raised."""
    jobs = spark.sparkContext.parallelize([pickle.dumps(order) for order in orders], len(orders))
    try:
        answers = jobs.map(_apply_pickled).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise SinkUnavailable(
            f"executors that applied sink {orders[0].sink.id} were lost: {_first_line(error)}",
            data="parts may be applied or not; each part's marker tells, nothing is repeated",
            do="nothing: the apply is repeated; look at the executors if it goes on",
        ) from error
    outcomes = [pickle.loads(answer) for answer in answers]
    for outcome in outcomes:
        if isinstance(outcome, SluicegateError):
            raise outcome
    return [(order.part, outcome) for order, outcome in zip(orders, outcomes, strict=True)]


def _apply_pickled(pickled: bytes) -> bytes:
    """Run in a task: an error travels back as a value, so that the driver sees what it was."""
    order: PartOrder = pickle.loads(pickled)
    try:
        if order.delivery == AT_MOST_ONCE:
            # one that a worker elsewhere has fenced since fails, and nothing is tried again here
            drop_writer((order.lineage, order.sink.id, order.part))
            if not _claimed(order):
                return pickle.dumps(Receipt(Verdict.SKIP))
        return pickle.dumps(apply_part(order))
    except SluicegateError as error:
        return pickle.dumps(error)


def _claimed(order: PartOrder) -> bool:
    """Say whether this task is the first for its part: Spark may run a task again (at-most-once)."""
    log = StoredEpochLog(open_objects(order.checkpoint))
    return log.claim(order.epoch, order.sink.id, order.part)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
