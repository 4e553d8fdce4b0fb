"""The coordinator's ports over Spark, with a span and a timing for each step."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluicegate.deployment.progress import ProgressReporter
from sluicegate.errors import RowRefused, SluicegateError, StageFailed
from sluicegate.protocol.coordinator import Job
from sluicegate.protocol.phases import DecidedEpoch
from sluicegate.protocol.ports import Staged
from sluicegate.protocol.record import DEAD_LETTERS, ROWS_IN, EpochRecord, EventTime
from sluicegate.sinks.contract import BoundSink
from sluicegate.spark import staging
from sluicegate.spark.apply import PartOrder, apply_parts
from sluicegate.spark.errors import cause_of, raised_in_task
from sluicegate.spark.outputs import Outputs
from sluicegate.spark.query_execution import RunningExecution, check_state
from sluicegate.spark.staging import StagedPart, StageOrder, stage_with
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import ObjectStore
from sluicegate.tracing import Tracing


@dataclass(frozen=True)
class QueryContext:
    """Everything that the epochs of a query share."""

    job: Job
    outputs: Outputs
    sinks: Mapping[str, BoundSink]
    dead_letters: str | None
    checkpoint: str
    store: ObjectStore
    tracing: Tracing
    inline_bytes: int
    progress: ProgressReporter = field(default_factory=lambda: ProgressReporter(None))


@dataclass
class EpochTimings:
    """Durations of an epoch's steps, and what else its log line reports.

    Args:
        steps: milliseconds by step.
        lag: number of records that the sources still hold.
        idle_since_ns: when the previous epoch ended; None for the first.
        started_ns: when this epoch started.
    """

    steps: dict[str, float] = field(default_factory=dict)
    lag: int = 0
    idle_since_ns: int | None = None
    started_ns: int = field(default_factory=time.time_ns)

    def add(self, step: str, start_ns: int) -> None:
        """Add the time since `start_ns` to a step."""
        self.steps[step] = self.steps.get(step, 0.0) + (time.time_ns() - start_ns) / 1e6

    def __str__(self) -> str:
        steps = ", ".join(f"{step} {ms:.0f} ms" for step, ms in self.steps.items())
        return f"{steps}; lag {self.lag:,}{self._busy()}"

    def _busy(self) -> str:
        """Return this epoch's share of the time since the previous one."""
        if self.idle_since_ns is None:
            return ""
        now = time.time_ns()
        busy = (now - self.started_ns) / max(1, now - self.idle_since_ns)
        return f", busy {min(1.0, busy):.0%}"


class TracedLog:
    """`ports.EpochLog` of one epoch: its decision is a span and is timed."""

    def __init__(self, stored: StoredEpochLog, tracing: Tracing, timings: EpochTimings) -> None:
        self._stored, self._tracing, self._timings = stored, tracing, timings
        self.read, self.newest = stored.read, stored.newest
        self.discarded, self.prune_after = stored.discarded, stored.prune_after
        self.mark_applied, self.is_marked_applied = stored.mark_applied, stored.is_marked_applied
        self.create_seal, self.read_any = stored.create_seal, stored.read_any

    def create(self, record: EpochRecord) -> bool:
        start = time.time_ns()
        sizes = {
            "rows": sum(c.rows for c in record.chunks),
            "bytes": sum(c.size for c in record.chunks),
        }
        with self._tracing.span("decide", epoch=record.epoch, attempt=record.attempt, **sizes):
            created = self._stored.create(record)
        self._timings.add("decide", start)
        return created


class TracedSinks:
    """`ports.Sinks` of one epoch: each apply is a span and is timed."""

    def __init__(
        self,
        spark: SparkSession,
        context: QueryContext,
        timings: EpochTimings,
        start_apply: Callable[[DecidedEpoch], None],
        await_applies: Callable[[], int | None],
    ) -> None:
        self._spark, self._context, self._timings = spark, context, timings
        self.start_apply, self.await_applies = start_apply, await_applies

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        start, tracing = time.time_ns(), self._context.tracing
        bound, checkpoint = self._context.sinks[sink], self._context.checkpoint
        orders = [PartOrder.of(record, bound, p, checkpoint, discard=discard) for p in parts]
        with tracing.span("apply", epoch=record.epoch, sink=sink, rows=record.rows(sink)):
            for part, receipt in apply_parts(self._spark, orders):
                for step in receipt.steps:
                    tracing.record(step.name, step.start_ns, step.end_ns, sink=sink, part=part)
        self._timings.add(f"apply {sink}", start)


class BatchPlan:
    """`ports.Plan` of a DataFrame: of a foreachBatch call, or of a batch.

    Args:
        execution: the running micro-batch; None for a batch, which has no watermark and no state.
        context: of the query.
        batch: the rows.
        timings: of the epoch.
    """

    def __init__(
        self,
        execution: RunningExecution | None,
        context: QueryContext,
        batch: DataFrame,
        timings: EpochTimings,
    ) -> None:
        self._execution, self._context, self._batch = execution, context, batch
        self._timings = timings

    def begin_attempt(self) -> tuple[str, str]:
        return uuid.uuid4().hex, Tracing.traceparent()

    def stage(self, epoch: int, attempt: str) -> Staged:
        start, execution = time.time_ns(), self._execution
        before = execution.rows_in() if execution else 0
        with self._context.tracing.span("stage", epoch=epoch, attempt=attempt):
            parts = self._run_tasks(epoch, attempt)
        self._timings.add("stage", start)
        refused = sum(part.refused for part in parts)
        if refused and self._context.dead_letters is None:
            reason = next(part.reason for part in parts if part.refused)
            raise RowRefused(
                f"epoch {epoch}: {refused} rows are refused; the first: {reason}",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="give the job a dead-letter sink, widen the column or limit, or filter such rows",
            )
        chunks = tuple(part.chunk for part in parts if part.chunk is not None)
        counts = {"refused": refused}
        if execution:
            counts |= {ROWS_IN: execution.rows_in() - before}
        kinds = sum((Counter(part.kinds) for part in parts), Counter[str]())
        counts |= {f"{DEAD_LETTERS}{kind}": number for kind, number in sorted(kinds.items())}
        return Staged(chunks, execution.event_times() if execution else (), counts)

    def _run_tasks(self, epoch: int, attempt: str) -> list[StagedPart]:
        """Run the plan in staging tasks and record a span for each chunk."""
        context = self._context
        order = StageOrder(
            checkpoint=context.checkpoint,
            epoch=epoch,
            attempt=attempt,
            inline_bytes=context.inline_bytes,
            sinks=tuple(context.outputs.sinks()),
            dead_letters=context.dead_letters,
        )
        watermark = self._execution.late_watermark_ms() if self._execution else None
        rows = context.outputs.rows_to_stage(self._batch, watermark)
        try:
            results = rows.mapInArrow(stage_with(order), staging.RESULT_TYPE).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            raise _stage_failed(epoch, error) from error
        parts = staging.parse(results)
        for part in parts:
            if part.chunk is not None:
                context.tracing.record(
                    "stage chunk",
                    part.start_ns,
                    part.end_ns,
                    sink=part.chunk.sink,
                    part=part.chunk.part,
                    rows=part.chunk.rows,
                )
        return parts

    def check_state(self, epoch: int) -> None:  # noqa: ARG002 - the plan knows its version
        if self._execution:
            check_state(self._context.store, self._execution.state_operators())

    def restore_watermark(self, event_times: tuple[EventTime, ...]) -> None:
        if self._execution:
            self._execution.restore_watermark(event_times)


def _stage_failed(epoch: int, error: Exception) -> SluicegateError:
    ours = raised_in_task(str(error), f"epoch {epoch}")
    if ours is not None:
        return ours
    return StageFailed(
        f"epoch {epoch} could not be staged: {cause_of(str(error))[:500]}",
        data="the epoch is undecided and nothing of it is visible; its input is read again",
        do="restart the driver; if it fails again, the cause is in the job or its source",
    )
