"""Applies decided chunks to their sinks, in the driver or in executors.

The driver writes inline chunks itself, without a Spark job; executors write staged chunks, one task
per part. A process keeps one writer per lineage, sink and part, and discards it after any error.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluicegate import failpoints
from sluicegate.errors import MarkerMismatch, SinkUnavailable, SluicegateError, StageFailed
from sluicegate.protocol.markers import (
    NO_MARKER,
    Marker,
    check_undecided,
    is_seed_of,
    marker_to_name,
)
from sluicegate.protocol.record import Chunk, EpochRecord
from sluicegate.settings.epoch import AT_MOST_ONCE, EXACTLY_ONCE
from sluicegate.sinks.contract import BoundSink, PartDecision, PartWriter, Receipt
from sluicegate.storage.arrow_encoding import decode_batches
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_checkpoint
from sluicegate.storage.staging_area import StagingArea

log = logging.getLogger("sluicegate.apply")

_WriterKey = tuple[str, str, int]
"""Lineage, sink id, part."""

_writers: dict[_WriterKey, PartWriter] = {}
"""The writers of this process: the driver, or a Python worker that Spark reuses."""


@dataclass(frozen=True)
class PartOrder:
    """One part of a decided epoch to apply to a sink; sent to an executor."""

    checkpoint: str
    sink: BoundSink
    part: int
    chunks: tuple[Chunk, ...]
    lineage: str
    this: Marker
    prev: Marker
    delivery: str
    traceparent: str
    durable_markers: bool
    form: str = ""

    @property
    def writer_key(self) -> _WriterKey:
        """The key of the part's writer."""
        return self.lineage, self.sink.id, self.part


def apply_part(order: PartOrder) -> Receipt:
    """Apply one part in this process."""
    area = StagingArea(open_checkpoint(order.checkpoint))
    decision = PartDecision(
        lineage=order.lineage,
        this=order.this,
        prev=order.prev,
        markers=order.delivery == EXACTLY_ONCE,
        durable_markers=order.durable_markers,
        traceparent=order.traceparent,
        form=order.form,
        reach=lambda point: failpoints.reach(point, epoch=order.this.epoch, sink=order.sink.id),
    )
    try:
        writer = _writers.get(order.writer_key)
        if writer is None:
            writer = _writers[order.writer_key] = order.sink.open(order.part)
        rows = (batch for chunk in order.chunks for batch in decode_batches(area.read(chunk)))
        return writer.apply(decision, rows)
    except BaseException:
        discard_writer(order.writer_key)
        raise


def discard_writer(key: _WriterKey) -> None:
    """Close a writer; its open transaction is rolled back."""
    writer = _writers.pop(key, None)
    if writer is not None:
        writer.close()


def close_writers(lineage: str) -> None:
    """Close this process's writers of a lineage; other queries of the process have their own."""
    for key in list(_writers):
        if key[0] == lineage:
            discard_writer(key)


def apply_parts(spark: SparkSession, orders: list[PartOrder]) -> Iterator[tuple[int, Receipt]]:
    """Apply parts of one decided epoch to one sink; yield each part and its receipt."""
    if all(chunk.inline is not None for order in orders for chunk in order.chunks):
        for order in orders:
            yield order.part, apply_part(order)
    else:
        yield from _apply_on_executors(spark, orders)


def _apply_on_executors(spark: SparkSession, orders: list[PartOrder]) -> list[tuple[int, Receipt]]:
    """Apply each part in its own task; raise an error only after all tasks have ended.

    The tasks open writers of their own, which fence those of the driver: the next apply in the driver
    would fail with them, and at-most-once has no other try.
    """
    for order in orders:
        discard_writer(order.writer_key)
    tasks = spark.sparkContext.parallelize([pickle.dumps(order) for order in orders], len(orders))
    try:
        results = tasks.map(_apply_in_task).collect()
    except (PySparkException, Py4JJavaError) as error:
        cause = next(iter(str(error).splitlines()), type(error).__name__)
        raise SinkUnavailable(
            f"executors failed while they applied sink {orders[0].sink.id}: {cause}",
            data="each part may be applied or not; its marker shows which, and nothing is repeated",
            do="nothing: the apply is retried; check the executors if this continues",
        ) from error
    outcomes = [pickle.loads(result) for result in results]
    for outcome in outcomes:
        if isinstance(outcome, SluicegateError):
            raise outcome
    return [(order.part, outcome) for order, outcome in zip(orders, outcomes, strict=True)]


def _apply_in_task(pickled: bytes) -> bytes:
    """Apply a pickled order; an error is returned as a value, so that the driver gets it unchanged."""
    order: PartOrder = pickle.loads(pickled)
    try:
        if order.delivery == AT_MOST_ONCE:
            # another worker may have fenced a cached writer since; its failure would not be retried
            discard_writer(order.writer_key)
            epoch_log = StoredEpochLog(open_checkpoint(order.checkpoint))
            # Spark runs a task again if it has lost the first one: only that one may have written
            if not epoch_log.claim(order.this.epoch, order.sink.id, order.part):
                raise SinkUnavailable(
                    f"the task that applied part {order.part} of sink {order.sink.id} was lost",
                    data="its rows were written or not; with at-most-once they are not written again",
                    do="nothing",
                )
        return pickle.dumps(apply_part(order))
    except SluicegateError as error:
        return pickle.dumps(error)


@contextmanager
def errors_of_sinks() -> Iterator[None]:
    """Raise StageFailed in place of an error that a sink of the user's own raises in the block."""
    try:
        yield
    except SluicegateError:
        raise
    except Exception as error:
        raise StageFailed(
            f"the apply of an epoch failed: {type(error).__name__}: {error}",
            data="the epoch is decided, and is applied at the next start; nothing is lost, unless the "
            "delivery is at-most-once",
            do="restart the driver; if it fails again, the cause is in a sink",
        ) from error


class BackgroundApply:
    """Runs applies in a background thread, one at a time: while the next epoch is planned and staged."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "sluicegate-apply")
        self._running: Future[int] | None = None
        self._last_epoch: int | None = None
        self._failure: SluicegateError | None = None

    def start(self, work: Callable[[], int]) -> None:
        """Wait for the apply that runs, then start work that returns the epoch it has applied."""
        self.wait()
        self._running = self._pool.submit(work)

    def wait(self) -> int | None:
        """Wait until nothing runs; return the last epoch that was applied, None if none was.

        Raises:
            SluicegateError: the apply failed; raised once. StageFailed if a sink raised another error, as
                for one that Spark reports.
        """
        running, self._running = self._running, None
        if running is not None:
            self._last_epoch = self._result(running)
        return self._last_epoch

    def is_running(self) -> bool:
        """Return whether an apply has not ended yet."""
        running = self._running
        return running is not None and not running.done()

    def failure(self) -> SluicegateError | None:
        """Return the error of the last apply that has failed, None if none has."""
        running = self._running
        if running is not None and running.done():
            with suppress(SluicegateError):
                self._result(running)
        return self._failure

    def _result(self, running: Future[int]) -> int:
        """Wait for an apply and return its epoch; its error is kept."""
        try:
            with errors_of_sinks():
                return running.result()
        except SluicegateError as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Wait for the running apply and end the thread."""
        self._pool.shutdown()


class SinkMarkers:
    """Makes sure that a sink has the markers that a decision needs; for `ports.Sinks`.

    Opening a writer refreshes its part's marker and fences older writers of the part. So this runs
    in the driver while no apply runs, and only when a marker may be another than expected: before the
    first epoch of a part, at its first epoch in this process, when nobody has opened the part for long,
    and in a retry of an epoch that has seeded the part: its record must name the seed as well.

    Args:
        sinks: of the job, by id.
        check_taken_over: verifies that a sink still has what a moved job took over from its parent.
            Called after the first marker of a part is seeded: if the sink loses its last
            transactions before, the check fails; if it loses them later, the seed is missing.
    """

    def __init__(
        self,
        sinks: Mapping[str, BoundSink],
        check_taken_over: Callable[[str], None] = lambda _sink: None,
    ) -> None:
        self._sinks, self._check_taken_over = sinks, check_taken_over
        self._opened_s: dict[tuple[str, int], float] = {}
        self._named: dict[tuple[str, int], Marker] = {}

    def seed(
        self,
        record: EpochRecord,
        sink: str,
        *,
        may_expire: bool,
        may_regress: bool,
        durable: bool,
    ) -> dict[int, Marker]:
        """Check markers and seed absent ones before the decision; see `ports.Sinks.seed_markers`."""
        markers: dict[int, Marker] = {}
        for part in record.parts_with_rows(sink):
            if self._is_due(sink, part, record.prev_of(sink, part)):
                check = partial(
                    check_undecided,
                    this=record.marker,
                    where=f"sink {sink}, part {part}, {record.sinks[sink].target}",
                    may_regress=may_regress,
                )
                markers[part] = self._seed_part(
                    record, sink, part, check, may_expire=may_expire, durable=durable
                )
        if any(record.prev_of(sink, part) == NO_MARKER for part in markers):
            self._check_taken_over(sink)
        return markers

    def refresh(self, record: EpochRecord) -> None:
        """Refresh the markers of a decided epoch; see `ports.Sinks.refresh_markers`."""
        if record.delivery != EXACTLY_ONCE:
            return
        for sink in record.sinks:
            try:
                for part in record.parts_with_rows(sink):
                    if self._sinks[sink].refresh_every_s is not None:
                        self._open(record.lineage, sink, part)
            except SluicegateError as error:
                log.warning("markers of %s were not refreshed before the apply: %s", sink, error)

    def _seed_part(
        self,
        record: EpochRecord,
        sink: str,
        part: int,
        check: Callable[..., None],
        *,
        may_expire: bool,
        durable: bool,
    ) -> Marker:
        writer, expected = self._open(record.lineage, sink, part), record.prev_of(sink, part)
        try:
            found = writer.marker()
            if found is None and durable and expected != NO_MARKER:
                found = writer.marker(durable=True)
            before = marker_to_name(
                found, expected=expected, new_id=uuid.uuid4().hex, may_expire=may_expire
            )
            if before == expected:
                check(found, prev=expected)
            if before not in (found, expected):
                self._write_seed(writer, record.lineage, before, found or NO_MARKER)
        except BaseException:
            discard_writer((record.lineage, sink, part))
            del self._opened_s[sink, part]
            raise
        self._named[sink, part] = before
        if found is None and before.epoch != NO_MARKER.epoch:
            log.warning(
                "the marker of sink %s part %d has expired; every sink has epoch %d, so nothing is in "
                "doubt, and the marker is written again",
                sink,
                part,
                record.epoch - 1,
            )
        return before

    @staticmethod
    def _write_seed(writer: PartWriter, lineage: str, seed: Marker, found: Marker) -> None:
        try:
            writer.apply(PartDecision(lineage=lineage, this=seed, prev=found), ())
        except MarkerMismatch as error:
            raise SinkUnavailable(
                f"another writer moved the marker while it was seeded: {error.what}",
                data="nothing is decided and nothing was written",
                do="nothing: the next attempt reads the marker again",
            ) from error

    def _is_due(self, sink: str, part: int, expected: Marker) -> bool:
        """Return whether the marker may be another than the log expects.

        The former process may have had another server. A marker expires by the wall clock: the brokers
        use theirs.
        """
        opened_s, every_s = self._opened_s.get((sink, part)), self._sinks[sink].refresh_every_s
        if opened_s is None or expected == NO_MARKER:
            return True
        if is_seed_of(self._named.get((sink, part)), expected):
            return True
        return every_s is not None and not 0 <= time.time() - opened_s < every_s

    def _open(self, lineage: str, sink: str, part: int) -> PartWriter:
        key = (lineage, sink, part)
        discard_writer(key)
        writer = _writers[key] = self._sinks[sink].open(part)
        self._opened_s[sink, part] = time.time()
        return writer
