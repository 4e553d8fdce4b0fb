"""A running streaming query: its start, its epochs, and its stop at the end of an epoch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluicegate import failpoints
from sluicegate.errors import SluicegateError, StoreUnavailable
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.spark import shutdown
from sluicegate.spark.apply import close_writers
from sluicegate.spark.checkpoint_files import checkpoint_files
from sluicegate.spark.epoch_runner import EpochRunner
from sluicegate.spark.errors import refused_query, translate_failure
from sluicegate.spark.foreach_batch import foreach_batch
from sluicegate.spark.interrupt import first_interrupt
from sluicegate.spark.pacing import Pace, TriggerClock
from sluicegate.spark.ports import QueryContext
from sluicegate.spark.query_execution import committed_sources
from sluicegate.spark.run import BackgroundService, Run
from sluicegate.spark.s3a import spark_url
from sluicegate.spark.session import jvm_process
from sluicegate.spark.start_times import StartPart
from sluicegate.spark.stop_handler import StopRequestHandler
from sluicegate.spark.watch import ProgressLimit, deadline
from sluicegate.storage.lineage import delete_checkpoint

log = logging.getLogger("sluicegate.query")

_POLL_S = 0.2
"""How long a failed apply in the background, or a stop request, may go unnoticed."""

_COMMIT_WAIT_S = 10.0
"""How long a stop waits for Spark's own commit of an epoch; without it the epoch is replayed."""

_IDLE_MESSAGES = ("Waiting for next trigger", "Waiting for data to arrive")
"""Status messages of MicroBatchExecution in Spark 4.1; before the first trigger there are others."""


def is_idle(query: StreamingQuery) -> bool:
    """Return whether a query waits between two triggers, whether or not the last one found data.

    A StreamingQueryListener was rejected: Spark would call into Python on the bus that all queries
    share, also while a query stops or the JVM dies. `lastProgress` ignores triggers without data
    (Spark reports them only to listeners, every ten seconds).
    """
    status = query.status
    return not status["isTriggerActive"] and status["message"] in _IDLE_MESSAGES


class _StopRequested(Exception):
    """Ends the query between two epochs."""


class EpochsQuery(Run):
    """A running query, returned by `EpochsWriter.start`."""

    def __init__(
        self,
        spark: SparkSession,
        context: QueryContext,
        settings: EpochSettings,
        output_mode: str,
        services: Sequence[BackgroundService] = (),
    ) -> None:
        self._context, self._settings, self._services = context, settings, services
        self._spark = spark
        self._runner = EpochRunner(spark, context, settings.timeout_s, retry=self._retry)
        self._stop_handler = StopRequestHandler(
            context.checkpoint, context.store, context.job.lineage
        )
        self._epoch_lock = threading.Lock()
        self._pace = Pace(settings)
        self._progress_limit = ProgressLimit(settings.progress_timeout_s)
        self._stopping = self._canceled = False
        self._last_epoch: int | None = None
        self._first_epoch_s: float | None = None
        self._has_planned = False
        self._first_idle = context.source_offsets is not None
        self._error: SluicegateError | None = None
        if (jvm := jvm_process()) is not None:
            failpoints.hook("kill-jvm", jvm.kill)
        stream = (
            context.outputs.stream()
            .writeStream.outputMode(output_mode)
            .queryName(context.job.name)
            .option("checkpointLocation", spark_url(context.checkpoint))
        )
        stream = foreach_batch(stream, self._run_epoch)
        if settings.interval == AVAILABLE_NOW:
            triggered = stream.trigger(availableNow=True)
        else:
            triggered = stream.trigger(processingTime=settings.interval)
        with context.start_times.part(StartPart.RECOVERY):
            self._runner.recover()
        try:
            shutdown.register(self)
            with context.start_times.part(StartPart.QUERY):
                for service in services:
                    service.start(context.store)
                with checkpoint_files(spark, context.checkpoint):
                    self._query: StreamingQuery = triggered.start()
        except BaseException as error:
            self._abandon_start()
            if isinstance(error, AnalysisException):
                raise refused_query(error, output_mode) from error
            raise
        self._started_s, self._clock = time.monotonic(), TriggerClock(settings)
        context.metrics.start_took(context.start_times.seconds)
        context.metrics.query_started()

    def _abandon_start(self) -> None:
        """Close what was opened for a query that does not start."""
        self._stopping = True
        shutdown.unregister(self)
        for service in self._services:
            service.stop()
        background = self._runner.background
        background.close()
        failure = background.failure()
        if failure is not None:
            log.error("the apply of a pending epoch failed: %s", failure)
        close_writers(self._context.job.lineage)
        self._context.close()

    @property
    def lineage(self) -> str:
        """The id of the checkpoint's history."""
        return self._context.job.lineage

    @property
    def is_active(self) -> bool:
        """Whether the query is running."""
        return bool(self._query.isActive)

    @property
    def has_settled(self) -> bool:
        """Whether it has completed an epoch since its start, or has none to apply and found no input."""
        return self._last_epoch is not None or self._is_at_rest()

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the query ends, by default without limit; return whether it has.

        Ctrl-C during the wait cancels the query, unless the user installed a handler for SIGINT.

        Raises:
            SluicegateError: it failed. A query that was stopped or has read all input did not.
        """
        with first_interrupt() as interrupted:
            return self._await_end(timeout_s, interrupted)

    def _await_end(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> bool:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        canceled = False
        with self._progress_limit.watched(lambda: is_idle(self._query)) as note_progress:
            while not self._poll_end(deadline):
                note_progress()
                if interrupted():
                    log.info("%s stops at the end of the epoch", self._context.job.name)
                    canceled = True
                    break
                if self._should_stop():
                    self._stop_between_epochs()
                    continue
                self._look_after_query()
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        if canceled:
            self.cancel()
        else:
            self._close()
        return True

    def _look_after_query(self) -> None:
        """Do what may be due, above all while the query idles."""
        self._context.metrics.sample(lambda: (is_idle(self._query), self._query.lastProgress))
        self._report_first_plan()
        if self._runner.has_unmarked_epoch() and is_idle(self._query):
            self._mark_applied()
        elif self._context.progress.due() and is_idle(self._query):
            self._context.progress.idle()
        elif self._first_idle and self._is_at_rest():
            self._first_idle = False
            self._commit_source_offsets()

    def _is_at_rest(self) -> bool:
        """Return whether Spark has found no input, and no apply runs in the background."""
        return is_idle(self._query) and not self._runner.background.is_running()

    def _report_first_plan(self) -> None:
        """Export once how long Spark took to plan the first epoch, or to find no input."""
        if self._has_planned or not (self._first_epoch_s or is_idle(self._query)):
            return
        self._has_planned = True
        planned_s = self._first_epoch_s or time.monotonic()
        took_s = max(0.0, planned_s - self._started_s)
        self._context.metrics.start_took({StartPart.FIRST_EPOCH: took_s})

    def stop(self) -> None:
        """Stop at the end of the running epoch; no further epoch starts.

        Raises:
            SluicegateError: the query failed.
        """
        self._stop_between_epochs()
        self._poll_end(None)  # Spark may have ended it before
        self._close()

    def cancel(self) -> None:
        """Stop, then delete the checkpoint if `on_cancel` is 'delete'.

        Raises:
            SluicegateError: the query failed; the checkpoint is retained.
            EpochUnfinished: a decided epoch may not be in every sink; the checkpoint is retained.
            StoreUnavailable: the checkpoint is only partly deleted; delete the rest by hand.
        """
        self.stop()
        if self._settings.on_cancel == "delete":
            self._runner.check_all_applied()
            delete_checkpoint(self._context.store)
            log.info("the checkpoint %s is deleted", self._context.checkpoint)

    def _run_epoch(self, batch: DataFrame, epoch: int) -> None:
        """The foreachBatch callback."""
        self._first_epoch_s = self._first_epoch_s or time.monotonic()
        with (
            self._progress_limit.epoch(),
            self._epoch_slot(),
            deadline(epoch, self._settings.timeout_s),
        ):
            try:
                self._retry(epoch, partial(self._runner.run, batch, epoch))
                self._last_epoch = epoch
            except SluicegateError as error:
                self._error = self._error or error
                raise
            finally:
                self._pace.epoch_ended()

    def _retry(self, epoch: int, attempt: Callable[[], None]) -> None:
        """Call the attempt, and again after each failure that is tolerated, unless the query stops."""
        self._pace.run(epoch, attempt, self._may_retry)

    def _may_retry(self) -> bool:
        """Return whether nothing stops the query, as an apply in the background that failed for good does."""
        return not self._stopping and self._runner.background.failure() is None

    @contextmanager
    def _epoch_slot(self) -> Iterator[None]:
        """Wait for the pause, then hold the lock that a stop takes between two epochs."""
        while not self._pace.may_start() or not self._epoch_lock.acquire(timeout=0.05):
            if self._stopping:
                raise _StopRequested
        try:
            if self._stopping:
                raise _StopRequested
            yield
        finally:
            self._epoch_lock.release()

    def _mark_applied(self) -> None:
        """Mark the last epoch while the query idles: its markers may expire before the next one."""
        try:
            self._runner.mark_applied()
        except StoreUnavailable as error:
            log.warning("the last epoch is not marked as applied yet, retrying: %s", error)

    def _commit_source_offsets(self) -> None:
        """Commit where a query stands that has found nothing new: the driver before may not have.

        Every sink has what Spark had committed when the query started. What it has committed since then
        may still be applied in the background.
        """
        try:
            sources = committed_sources(self._query)
        except Exception as error:  # noqa: BLE001 - a job never fails for a number in a tool
            log.warning("offsets of the sources are unknown until the next epoch: %s", error)
            return
        if self._last_epoch is None and self._context.source_offsets:
            self._context.source_offsets.applied(sources)

    def _poll_end(self, deadline: float | None) -> bool:
        """Wait briefly for the query's end; return whether it has ended."""
        left = _POLL_S if deadline is None else deadline - time.monotonic()
        try:
            # Spark accepts fractions of a second; its annotation says int
            timeout_s = max(0.001, min(left, _POLL_S))
            return self._query.awaitTermination(timeout_s) is not False  # type: ignore[arg-type]
        except StreamingQueryException as error:
            stopped = self._stopping and "_StopRequested" in str(error)
            if self._error is None and not stopped:
                self._error = translate_failure(error)
            return True

    def _should_stop(self) -> bool:
        failure = self._failure() or self._runner.background.failure() or self._clock.failure()
        self._error = self._error or failure
        requested = self._stop_handler.requested()
        if requested:
            shutdown.query_stopped()
        return requested or shutdown.requested() or failure is not None

    def _failure(self) -> SluicegateError | None:
        """Return the error of a service that has ended."""
        return next((error for s in self._services if (error := s.failure())), None)

    def _stop_between_epochs(self) -> None:
        """Stop Spark's query between epochs.

        `StreamingQuery.stop` during a callback breaks the stream's thread and cannot cancel it.
        """
        self._stopping = True
        for service in self._services:
            service.stop()
        self._await_epoch()
        try:
            self._await_commit()
            self._query.stop()
        finally:
            self._epoch_lock.release()

    def _await_epoch(self) -> None:
        """Take the lock that the running epoch holds; if the apply before it fails, end its stage."""
        while True:
            if not self._canceled and self._runner.background.failure() is not None:
                self._cancel_stage()
            if self._epoch_lock.acquire(timeout=_POLL_S):
                return

    def _cancel_stage(self) -> None:
        """Cancel the tasks of the epoch after one whose apply failed: it cannot be decided.

        What stopped the apply may hold up the stage too, for as long as the timeouts of its source.
        """
        self._canceled = True
        self._spark.sparkContext.cancelJobGroup(str(self._query.runId))

    def _await_commit(self) -> None:
        """Let Spark commit the last epoch, which the next start would otherwise replay."""
        deadline = time.monotonic() + _COMMIT_WAIT_S
        while self._last_epoch is not None and self.is_active and time.monotonic() < deadline:
            try:
                if self._context.store.read(f"commits/{self._last_epoch}") is not None:
                    return
            except StoreUnavailable as error:
                log.warning("the query stops although Spark may not have committed: %s", error)
                return
            time.sleep(0.02)

    def _close(self) -> None:
        """Stop the services, wait for the apply in the background, answer a stop request."""
        try:
            for service in self._services:
                service.stop()
            self._error = self._error or self._failure()  # its last lines, which it had received
            try:
                self._runner.drain()
            except SluicegateError as error:  # it is the reason why a stage was canceled
                self._error = error if self._canceled else self._error or error
            self._runner.background.close()
            close_writers(self._context.job.lineage)
            self._error = self._stop_handler.complete(self._error)
            self._context.close()
        finally:
            shutdown.unregister(self)
        if self._error is not None:
            raise self._error
