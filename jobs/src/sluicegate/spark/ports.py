"""The coordinator's ports over Spark, with a span and a timing for each step."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluicegate.deployment.executors import ExecutorsReporter
from sluicegate.deployment.progress import ProgressReporter
from sluicegate.errors import PartTooLarge, RowRefused, SinkRegressed
from sluicegate.metrics import DriverMetrics
from sluicegate.protocol.job import Job
from sluicegate.protocol.ports import Staged
from sluicegate.protocol.record import (
    DEAD_LETTERS,
    ROWS_IN,
    STATE_ROWS,
    DecidedEpoch,
    EpochRecord,
    EventTime,
)
from sluicegate.sinks.contract import BoundSink
from sluicegate.spark.apply import PartOrder, SinkMarkers, apply_parts
from sluicegate.spark.dropped_rows import may_have_dropped, split
from sluicegate.spark.errors import stage_failure
from sluicegate.spark.outputs import Outputs
from sluicegate.spark.query_execution import KafkaSource, RunningExecution, check_state
from sluicegate.spark.source_offsets import SourceOffsets
from sluicegate.spark.staging import (
    StagedPart,
    StageOrder,
    Stager,
    number_of_tasks,
    stage_with,
)
from sluicegate.spark.start_times import StartTimes
from sluicegate.spark.task_count import most_tasks
from sluicegate.storage.epoch_log import StoredEpochLog, StoredOffsets
from sluicegate.storage.epoch_report import (
    APPLY,
    OFFSET_LOG,
    PLANNING,
    SOURCE,
    STATE,
    TimedStep,
    writer_steps,
)
from sluicegate.storage.object_store import ObjectStore
from sluicegate.tracing import Tracing

log = logging.getLogger("sluicegate.apply")

_BEFORE_AN_EPOCH = {
    PLANNING: ("queryPlanning",),
    OFFSET_LOG: ("walCommit",),
    SOURCE: ("latestOffset", "getOffset", "setOffsetRange", "getBatch"),
}
"""Spark's names of what a trigger does before an epoch, as in `StreamingQueryProgress.durationMs`; the last
step first."""


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
    max_part_bytes: int
    check_taken_over: Callable[[str], None] = lambda _sink: None
    progress: ProgressReporter = field(default_factory=lambda: ProgressReporter(None))
    executors: ExecutorsReporter | None = None
    metrics: DriverMetrics = field(default_factory=DriverMetrics)
    source_offsets: SourceOffsets | None = None
    start_times: StartTimes = field(default_factory=StartTimes)

    @cached_property
    def stager(self) -> Stager:
        """Stages the epochs."""
        sinks = tuple(self.outputs.sinks())
        order = StageOrder(self.checkpoint, self.inline_bytes, sinks, self.dead_letters)
        return Stager(stage_with(order))

    def close(self) -> None:
        """Send what is still to be reported, and stop serving metrics."""
        if self.source_offsets:
            self.source_offsets.close()
        self.progress.close()
        if self.executors:
            self.executors.close()
        self.tracing.close()
        self.metrics.close()


@dataclass
class EpochTimings:
    """Durations of an epoch's steps in ms, and what else its log line reports.

    `steps` adds up the times of a step that was repeated; `timed` has each of them, and those of
    the writers of the sinks. `sources` has the Kafka sources and where the epoch ends in them;
    `idle_since_ns` is when the previous epoch ended, None for the first; `planned_ms` is when the
    epoch was planned, in ms since 1970, by default when it started.
    """

    steps: dict[str, float] = field(default_factory=dict)
    timed: list[TimedStep] = field(default_factory=list)
    sources: tuple[KafkaSource, ...] = ()
    idle_since_ns: int | None = None
    started_ns: int = field(default_factory=time.time_ns)
    planned_ms: float = 0.0

    def __post_init__(self) -> None:
        """Set the default of `planned_ms`."""
        self.planned_ms = self.planned_ms or self.started_ns / 1e6

    @property
    def writer_steps(self) -> dict[tuple[str, str], float]:
        """The ms of each step of the sinks' writers, by sink and step."""
        return writer_steps(self.timed)

    @property
    def lag(self) -> int:
        """The number of records that the sources still hold."""
        return sum(source.lag for source in self.sources)

    @contextmanager
    def step(self, name: str, sink: str = "") -> Iterator[None]:
        """Add the time of the block to a step, also if the block raises."""
        start_ns = time.time_ns()
        try:
            yield
        finally:
            step = TimedStep.of_ns(name, start_ns, time.time_ns(), sink)
            self.timed.append(step)
            key = f"{name} {sink}" if sink else name
            self.steps[key] = self.steps.get(key, 0.0) + step.duration_ms

    def add_planned(self, durations_ms: Mapping[str, int]) -> None:
        """Add the steps that Spark ran before the epoch was handed over, in their order.

        Args:
            durations_ms: by Spark's names.
        """
        end_ms = self.started_ns / 1e6
        for name, of_spark in _BEFORE_AN_EPOCH.items():
            ms = float(sum(durations_ms.get(each, 0) for each in of_spark))
            end_ms -= ms
            self.timed.insert(0, TimedStep(name, round(end_ms, 3), ms))

    def add_state(self, ms: float) -> None:
        """Add about how long state stores committed at the end of the last step, the stage."""
        stage = self.timed[-1]
        ms = round(min(ms, stage.duration_ms), 3)
        end_ms = stage.start_ms + stage.duration_ms
        self.timed.append(TimedStep(STATE, round(end_ms - ms, 3), ms))

    def __str__(self) -> str:
        """Return the durations, and this epoch's share of the time since the previous one."""
        steps = ", ".join(f"{step} {ms:.0f} ms" for step, ms in self.steps.items())
        text, now = f"{steps}; lag {self.lag:,}", time.time_ns()
        if self.idle_since_ns is None:
            return text
        busy = (now - self.started_ns) / max(1, now - self.idle_since_ns)
        return f"{text}, busy {min(1.0, busy):.0%}"


class TracedLog:
    """`ports.EpochLog` of one epoch: its decision is a span and is timed."""

    def __init__(self, stored: StoredEpochLog, tracing: Tracing, timings: EpochTimings) -> None:
        self._stored, self._tracing, self._timings = stored, tracing, timings
        self.read, self.newest = stored.read, stored.newest
        self.discarded, self.prune_after = stored.discarded, stored.prune_after
        self.mark_applied, self.is_marked_applied = stored.mark_applied, stored.is_marked_applied
        self.create_seal, self.read_any = stored.create_seal, stored.read_any

    def create(self, record: EpochRecord) -> bool:
        rows, size = sum(c.rows for c in record.chunks), sum(c.size for c in record.chunks)
        ids: dict[str, str | int] = {"epoch": record.epoch, "attempt": record.attempt}
        span = self._tracing.span("decide", rows=rows, bytes=size, **ids)
        with self._timings.step("decide"), span:
            return self._stored.create(record)


class TracedSinks:
    """`ports.Sinks` of one epoch: each apply is a span and is timed."""

    def __init__(
        self,
        spark: SparkSession,
        context: QueryContext,
        timings: EpochTimings,
        markers: SinkMarkers,
        start_apply: Callable[[DecidedEpoch], None],
        await_applies: Callable[[], int | None],
    ) -> None:
        self._spark, self._context, self._timings = spark, context, timings
        self.start_apply, self.await_applies = start_apply, await_applies
        self.seed_markers, self.refresh_markers = markers.seed, markers.refresh
        self._regressed: set[str] = set()

    def apply(
        self, record: EpochRecord, sink: str, parts: tuple[int, ...], *, discard: bool
    ) -> None:
        tracing = self._context.tracing
        self._context.metrics.decided(record)
        self._context.metrics.apply_tried(sink)
        orders = [
            PartOrder(
                checkpoint=self._context.checkpoint,
                sink=self._context.sinks[sink],
                part=part,
                chunks=() if discard else record.part_chunks(sink, part),
                lineage=record.lineage,
                this=record.marker,
                prev=record.prev_of(sink, part),
                delivery=record.delivery,
                traceparent=record.traceparent,
                durable_markers=record.sinks[sink].durable_markers,
                form=record.sinks[sink].form,
            )
            for part in parts
        ]
        span = tracing.span("apply", epoch=record.epoch, sink=sink, rows=record.rows(sink))
        with self._timings.step(APPLY, sink), span, self._regression_logged(sink):
            for part, receipt in apply_parts(self._spark, orders):
                for step in receipt.steps:
                    tracing.record(step.name, step.start_ns, step.end_ns, sink=sink, part=part)
                    timed = TimedStep.of_ns(step.name, step.start_ns, step.end_ns, sink, part)
                    self._timings.timed.append(timed)

    @contextmanager
    def _regression_logged(self, sink: str) -> Iterator[None]:
        """Log that a sink has lost epochs which are applied again, once, not for each of them."""
        try:
            yield
        except SinkRegressed as error:
            if sink in self._context.job.redoable and sink not in self._regressed:
                self._regressed.add(sink)
                log.warning("%s: the epochs that it lost are applied again", error.what)
            raise


class BatchPlan:
    """`ports.Plan` of a DataFrame; a batch has no execution, and so no watermark and no state.

    `rows` are those of each partition that the plan reads, if they are known.
    """

    def __init__(
        self,
        execution: RunningExecution | None,
        context: QueryContext,
        batch: DataFrame,
        timings: EpochTimings,
        rows: Sequence[int] | None = None,
    ) -> None:
        self._execution, self._context, self._batch = execution, context, batch
        self._timings, self._rows = timings, rows

    def offsets(self, epoch: int, store: ObjectStore) -> StoredOffsets:
        """Return the offset log of a store, which knows what the query has in memory for its epoch."""
        running = {epoch: self._execution.end_offsets()} if self._execution else None
        return StoredOffsets(store, running)

    def begin_attempt(self) -> tuple[str, str]:
        return uuid.uuid4().hex, Tracing.traceparent()

    def stage(self, epoch: int, attempt: str) -> Staged:
        execution, span = self._execution, self._context.tracing.span
        with self._timings.step("stage"):
            before = execution.rows_in() if execution else 0
            state_before = (execution.state_rows() if execution else None) or 0
            with span("stage", epoch=epoch, attempt=attempt):
                parts = self._run_tasks(epoch, attempt)
        state_ms = execution.state_ms() if execution else None
        if state_ms is not None:
            self._timings.add_state(state_ms)
        refused = sum(part.refused for part in parts)
        if refused and self._context.dead_letters is None:
            reason = next(part.reason for part in parts if part.refused)
            raise RowRefused(
                f"epoch {epoch}: {refused} rows are refused; the first: {reason}",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="give the job a dead-letter sink, widen the column or limit, or filter such rows",
            )
        self._check_part_sizes(epoch, parts)
        chunks = tuple(part.chunk for part in parts if part.chunk is not None)
        counts = {"refused": refused}
        if execution:
            counts |= {ROWS_IN: execution.rows_in() - before}
            state_rows = execution.state_rows()
            counts |= {} if state_rows is None else {STATE_ROWS: state_rows - state_before}
        kinds = sum((Counter(part.kinds) for part in parts), Counter[str]())
        counts |= {f"{DEAD_LETTERS}{kind}": number for kind, number in sorted(kinds.items())}
        return Staged(chunks, execution.event_times() if execution else (), counts)

    def _run_tasks(self, epoch: int, attempt: str) -> list[StagedPart]:
        """Run the plan in staging tasks and record a span for each chunk."""
        try:
            parts = self._stage_outputs(epoch, attempt)
        except (PySparkException, Py4JJavaError) as error:
            raise stage_failure(str(error), epoch) from error
        record = self._context.tracing.record
        for part in parts:
            if (chunk := part.chunk) is not None:
                ids: dict[str, str | int] = {"sink": chunk.sink, "part": chunk.part}
                record("stage chunk", part.start_ns, part.end_ns, rows=chunk.rows, **ids)
        return parts

    def _stage_outputs(self, epoch: int, attempt: str) -> list[StagedPart]:
        """Stage all outputs; those of dropped rows only if another output has dropped a row."""
        outputs, execution, batch = self._context.outputs, self._execution, self._batch
        most = self._most_tasks()
        stage = partial(self._context.stager.stage, epoch=epoch, attempt=attempt, most_tasks=most)
        watermark = execution.late_watermark_ms() if execution else None
        halves = None
        if execution and outputs.may_be_split:
            halves = split(batch, execution.plan)
        if execution is None or halves is None:
            return stage(outputs.rows_to_stage(batch, watermark))
        others, dropped = halves
        tasks = number_of_tasks(batch)
        parts = stage(outputs.rows_to_stage(others, watermark), tasks=tasks)
        if may_have_dropped(batch.sparkSession, execution.plan):
            rows = outputs.rows_to_stage(dropped, watermark)
            parts += stage(rows, tasks=tasks, first_task=tasks)
        return parts

    def _most_tasks(self) -> int | None:
        """Return how many tasks may stage the epoch, None if as many as there are partitions."""
        if self._execution is None or self._rows is None:
            return None
        cores = self._execution.enough_tasks()
        return cores and most_tasks(self._rows, cores)

    def _check_part_sizes(self, epoch: int, staged: list[StagedPart]) -> None:
        """Raise PartTooLarge for a part that one transaction may not be able to write (rule 10)."""
        sizes, limit = Counter[tuple[str, int]](), self._context.max_part_bytes
        for report in staged:
            if report.chunk is not None:
                sizes[report.chunk.sink, report.chunk.part] += report.memory_bytes
        for (sink, part), size in sizes.most_common(1):
            if size > limit:
                raise PartTooLarge(
                    f"epoch {epoch} has {size:,} bytes for part {part} of sink {sink}, and "
                    f"max-part-bytes is {limit:,}",
                    data="the epoch is undecided, nothing of it is visible in any sink, nothing is "
                    f"lost; its input is fixed in offsets/{epoch}, so a lower max-records or "
                    "maxOffsetsPerTrigger makes only later epochs smaller",
                    do="raise max-part-bytes, and apply-timeout-s so that the sink can write that "
                    "much in one transaction; or raise parts= of the sink",
                )

    def check_state(self, epoch: int) -> None:
        if self._execution:
            store = self._context.store
            state = check_state(store, self._execution.state_operators())
            # the decision must not outlive in a power cut what it was made with, nor the commit before
            logs = (f"commits/{epoch - 1}", f"offsets/{epoch}", "sources/")
            store.sync(["metadata", *logs, *state])

    def restore_watermark(self, event_times: tuple[EventTime, ...]) -> None:
        if self._execution:
            self._execution.restore_watermark(event_times)
