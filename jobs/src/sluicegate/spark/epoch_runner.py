"""Runs the epochs of a query in the driver: `EpochRunner.run` is what foreachBatch calls."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from opentelemetry.trace import Span
from pyspark.sql import DataFrame, SparkSession

from sluicegate.deployment.progress import VerdictReport
from sluicegate.errors import EpochUnfinished, SluicegateError
from sluicegate.protocol.coordinator import apply, retry_apply, run_epoch
from sluicegate.protocol.effects import run_effects
from sluicegate.protocol.ports import ApplyPorts, LogPorts
from sluicegate.protocol.record import DEAD_LETTERS, ROWS_IN, DecidedEpoch
from sluicegate.protocol.recovery import (
    mark_applied,
    pending_apply,
    unapplied,
    unapplied_record,
    undecided_attempt,
)
from sluicegate.settings.epoch import AT_MOST_ONCE
from sluicegate.spark.apply import (
    BackgroundApply,
    SinkMarkers,
    close_writers,
)
from sluicegate.spark.catch_up import CatchUp
from sluicegate.spark.ports import BatchPlan, EpochTimings, QueryContext, TracedLog, TracedSinks
from sluicegate.spark.query_execution import KafkaSource, RunningExecution, RunningQuery
from sluicegate.spark.task_count import rows_by_partition
from sluicegate.spark.watch import deadline
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets, SystemClock
from sluicegate.storage.epoch_report import EpochReport, write_report
from sluicegate.storage.read_ahead import ReadAhead
from sluicegate.storage.state_files import remove_undecided_snapshots
from sluicegate.storage.verdict import EPOCHS, STAGE, verdict

log = logging.getLogger("sluicegate.epoch")

Retry = Callable[[int, Callable[[], None]], None]
"""Calls an attempt at an epoch, by its number, and again after each failure that is tolerated."""


def once(_epoch: int, attempt: Callable[[], None]) -> None:
    """Tolerate no failure."""
    attempt()


class EpochRunner:
    """Runs epochs one after another, in the thread of Spark's callback.

    Args:
        timeout_s: time limit of an apply in the background or in a recovery; one that exceeds it ends
            the process (rule 18). 0: no limit. The limit of an epoch covers its retries, and so is the
            caller's.
        make_plan: returns the plan of an epoch; default: that of the running micro-batch.
        retry: repeats an apply in the background. The caller of `run` repeats that itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        context: QueryContext,
        timeout_s: float,
        make_plan: Callable[[DataFrame, EpochTimings], BatchPlan] | None = None,
        retry: Retry = once,
    ) -> None:
        self._spark, self._context, self._timeout_s = spark, context, timeout_s
        self._reads = ReadAhead(context.store)
        self._log, self._offsets = StoredEpochLog(self._reads), StoredOffsets(self._reads)
        self._log_ports = LogPorts(self._log, self._offsets, SystemClock())
        self.background = BackgroundApply()
        self._markers = SinkMarkers(context.sinks, context.check_taken_over)
        self._make_plan, self._retry = make_plan or self._micro_batch_plan, retry
        self._query: RunningQuery | None = None
        self._catch_up = CatchUp(spark)
        self._last_applied: DecidedEpoch | None = None
        self._marked: DecidedEpoch | None = None
        self._ended_ns: int | None = None
        self._reports: tuple[EpochReport, ...] = ()
        self._failed_stages = Counter[int]()
        self._sources_before: tuple[KafkaSource, ...] = ()

    def run(self, batch: DataFrame, epoch: int) -> None:
        """Run one attempt at an epoch: stage, decide, apply (`coordinator.run_epoch`).

        With `overlap` it returns when the apply has started in the background.
        """
        job, timings = self._context.job, EpochTimings(idle_since_ns=self._ended_ns)
        self._reads.begin(epoch)
        if self._failed_stages[epoch]:
            remove_undecided_snapshots(self._context.store, epoch)
        with self._epoch_span(epoch) as span:
            plan = self._make_plan(batch, timings)
            self._context.metrics.planned(epoch, timings)
            offsets = plan.offsets(epoch, self._reads)
            ports = self._apply_ports(timings, span, offsets).with_plan(plan)
            try:
                decided = run_effects(run_epoch(job, epoch), ports)
            except SluicegateError:  # it may be tolerated: then the epoch is run again
                self._failed_stages[epoch] += any(s.name == STAGE for s in timings.timed)
                raise
            finally:
                self._reads.drop()
        if not job.applies_in_background(decided.record):
            self._after_apply(decided, timings, span, self._thrown_away(decided))
        self._sources_before = timings.sources
        self._ended_ns = time.time_ns()

    def recover(self) -> None:
        """Remove what a killed driver left undecided, and start to apply what it left unapplied.

        That is an overlapped epoch, which is applied in the background. The query may start meanwhile:
        no epoch is decided before the apply has ended. An error of the apply is raised as that of any
        apply in the background.
        """
        undecided = run_effects(undecided_attempt(self._context.job), self._log_ports)
        if undecided is not None:  # before its offsets, which prove it, may be removed as empty
            remove_undecided_snapshots(self._context.store, undecided)
        self._offsets.remove_empty()
        pending = run_effects(pending_apply(self._context.job), self._log_ports)
        if self._context.progress.enabled:
            self._context.progress.before(self._newest_applied(pending), self._verdict)
        if pending is not None:
            self._start_apply(pending)

    def drain(self) -> None:
        """Wait for the apply in the background, and mark the last epoch so that sinks may change.

        Raises:
            SluicegateError: the apply failed; the next start applies the epoch.
        """
        self.background.wait()
        if self.has_unmarked_epoch():
            self.mark_applied()

    def has_unmarked_epoch(self) -> bool:
        """Return whether only this process knows that every sink has the last epoch."""
        last = self._last_applied
        return last is not None and last.record.overlapped and last is not self._marked

    def mark_applied(self) -> None:
        """Mark the last applied epoch, so that the next start need not read its markers."""
        last = self._last_applied
        if last is not None:
            run_effects(mark_applied(last), self._log_ports)
            self._marked = last

    def check_all_applied(self) -> None:
        """Check that every sink has the newest decision, before its checkpoint is deleted.

        Raises:
            EpochUnfinished: a sink may lack it.
        """
        record, last = run_effects(unapplied_record(), self._log_ports), self._last_applied
        if record is not None and (last is None or last.record.epoch != record.epoch):
            raise EpochUnfinished(
                f"epoch {record.epoch} is decided and may not be in every sink yet",
                data="the checkpoint is retained and nothing is lost",
                do="start the job so that it applies the epoch, then cancel it again",
            )

    def apply_only(self) -> int | None:
        """Apply and mark the newest decision, then close everything; no query is started.

        Returns:
            The epoch that was applied, None if every sink had every epoch.

        Raises:
            SluicegateError: it cannot be applied; it stays decided.
        """
        context, epoch = self._context, None
        try:
            decided = run_effects(unapplied(context.job), self._log_ports)
            if decided is not None:
                self._start_apply(decided)
                self.background.wait()
                run_effects(mark_applied(decided), self._log_ports)
                epoch = decided.record.epoch
        finally:
            self.background.close()
            close_writers(context.job.lineage)
            context.close()
        result = "every epoch was applied already" if epoch is None else f"epoch {epoch} is applied"
        log.info("%s: %s; no query is started", context.job.name, result)
        return epoch

    def _micro_batch_plan(self, batch: DataFrame, timings: EpochTimings) -> BatchPlan:
        if self._query is None:
            self._query = RunningQuery(self._spark)
            self._query.prime_sources()
        execution = RunningExecution(self._query)
        timings.add_planned(execution.durations_ms())
        timings.sources, timings.planned_ms = execution.kafka_sources(), execution.planned_ms()
        self._catch_up.planned(execution, timings.lag)
        rows = None
        if (scans := self._query.kafka_scans) is not None:
            rows = rows_by_partition(self._sources_before, timings.sources, scans)
        return BatchPlan(execution, self._context, batch, timings, rows)

    def _apply_ports(
        self, timings: EpochTimings, span: Span, offsets: StoredOffsets | None = None
    ) -> ApplyPorts:
        def start_apply(decided: DecidedEpoch) -> None:
            work = partial(self._apply_in_background, decided, ports, timings, span)
            self.background.start(work)

        wait = self.background.wait
        sinks = TracedSinks(self._spark, self._context, timings, self._markers, start_apply, wait)
        traced_log = TracedLog(self._log, self._context.tracing, timings)
        ports = ApplyPorts(traced_log, offsets or self._offsets, SystemClock(), sinks)
        return ports

    def _apply_in_background(
        self, decided: DecidedEpoch, ports: ApplyPorts, timings: EpochTimings, span: Span
    ) -> int:
        job, epoch = self._context.job, decided.record.epoch
        applied: DecidedEpoch | None = None

        def attempt() -> None:
            nonlocal applied
            if applied is None:
                applied = decided
                run_effects(apply(job, decided), ports)
            else:
                applied = run_effects(retry_apply(job, decided.record), ports)

        with deadline(epoch, self._timeout_s), self._context.tracing.within(span):
            self._retry(epoch, attempt)
        self._after_apply(applied or decided, timings, span, self._thrown_away(decided))
        return epoch

    def _start_apply(self, found: DecidedEpoch) -> None:
        """Start to apply, in the background, an epoch that this process found decided."""
        with self._epoch_span(found.record.epoch) as span:
            self._apply_ports(EpochTimings(), span).sinks.start_apply(found)

    def _thrown_away(self, decided: DecidedEpoch) -> int:
        """Return how many stages of the epoch failed in this process and were not decided."""
        # of a replay in the same driver, the last stage that failed was decided before it did
        return max(0, self._failed_stages.pop(decided.record.epoch, 0) - decided.replayed)

    def _after_apply(
        self, decided: DecidedEpoch, timings: EpochTimings, span: Span, thrown_away: int
    ) -> None:
        """End the epoch's span, report, count and log the epoch, which every sink has."""
        record = decided.record
        span.set_attributes({"attempt": record.attempt, "replayed": decided.replayed})
        span.end()
        self._last_applied = decided
        metrics = self._context.metrics
        metrics.applied(decided, timings)
        report = EpochReport.of(
            decided,
            tuple(timings.timed),
            thrown_away=thrown_away,
            waits_since_s=metrics.oldest_input.since_s,
        )
        self._reports = (*self._reports, report)[-EPOCHS:]
        self._context.progress.epoch(record.epoch, decided=not decided.replayed)
        if self._context.source_offsets:
            self._context.source_offsets.applied(timings.sources)
        log.info("%s", _summary(decided, timings))
        write_report(self._context.store, report)

    def _verdict(self) -> VerdictReport:
        """Return what bounds the job by this driver's last epochs; called in another thread."""
        found = verdict(self._reports)
        return {"reason": found.reason, "message": f"{found.sentence} {found.executors}".strip()}

    def _newest_applied(self, pending: DecidedEpoch | None) -> int | None:
        """Return the newest epoch that every sink has, according to the logs.

        Args:
            pending: the epoch that a start has to apply.
        """
        newest = self._log.newest() if pending is None else pending.record.epoch
        if newest is None:
            return self._context.job.first_epoch - 1 if self._context.job.first_epoch else None
        if pending is None and self._offsets.is_committed(newest):
            return newest
        return newest - 1 if newest else None

    def _epoch_span(self, epoch: int) -> AbstractContextManager[Span]:
        context = self._context
        return context.tracing.root("epoch", epoch=epoch, lineage=context.job.lineage)


def _summary(decided: DecidedEpoch, timings: EpochTimings) -> str:
    record, counts = decided.record, decided.record.counts
    rows = ", ".join(f"{sink} {record.rows(sink)}" for sink in record.sinks)
    how = "replayed" if decided.replayed else "committed"
    if decided.replayed and record.delivery == AT_MOST_ONCE:
        how = "not written again, so what its driver had not written is lost"
    text = f"epoch {record.epoch} {how}: {rows} rows"
    if ROWS_IN in counts:
        text += f", {counts[ROWS_IN]} in"
    kinds = [name for name in counts if name.startswith(DEAD_LETTERS)]
    if kinds:
        letters = ", ".join(f"{counts[kind]} {kind.removeprefix(DEAD_LETTERS)}" for kind in kinds)
        text += f", dead letters: {letters}"
    return f"{text}; {timings}"
