"""Stages an epoch: the plan runs once, and executors make its rows durable for every sink.

Each task splits its rows by sink and part, lets the sinks refuse rows that they could not write, and
encodes the others as Arrow IPC. It returns small chunks in its result and writes the others to the
staging area. A refused row reaches no sink and becomes a dead letter.

What an epoch carries through the driver is bounded by construction: a task knows the number of tasks,
and returns at most an equal share of `inline_bytes`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.util import PythonEvalType

from sluicegate import failpoints
from sluicegate.dead_letters import letter as dead_letter
from sluicegate.errors import SettingsInvalid, StageFailed
from sluicegate.protocol.record import Chunk
from sluicegate.sinks.contract import BoundSink
from sluicegate.sinks.reserved_columns import PART, REFUSED
from sluicegate.storage.arrow_encoding import encode_batches
from sluicegate.storage.object_store import open_checkpoint
from sluicegate.storage.staging_area import StagingArea

CHUNK_BYTES = 16 << 20
"""A chunk is closed at this size in memory: an apply holds one chunk in memory at a time."""

OPEN_BYTES = 4 * CHUNK_BYTES
"""The largest chunks of a task are closed early when its open chunks have this size in memory together,
however many sinks and parts there are."""

ATTEMPT_PROPERTY = "sluicegate.staging.attempt"
"""The local property that has a task's `StageAttempt` as JSON."""

NO_EPOCH = -1
"""The number of an epoch that only warms up a session. It passes no failpoint."""

RESULT_TYPE = StructType([StructField("staged", BinaryType())])
"""The schema of a task's result: a pickled `StagedPart` in each row. As text it would be parsed in the JVM,
each time."""


@dataclass(frozen=True)
class StageOrder:
    """What the staging tasks of all epochs of a query need; sent to the executors.

    Args:
        checkpoint: address of the checkpoint, for chunks that are too large for the task's result.
        inline_bytes: size in bytes of the chunks that all tasks together return in their results.
        sinks: bound, in the order of the struct columns.
        dead_letters: id of the sink for refused rows; None: a refused row fails the epoch.
    """

    checkpoint: str
    inline_bytes: int
    sinks: tuple[BoundSink, ...]
    dead_letters: str | None


@dataclass(frozen=True)
class StageAttempt:
    """What the staging tasks of one attempt at an epoch have in common.

    Args:
        tasks: number of tasks that share `inline_bytes`; PySpark's TaskContext does not have it.
        first_task: number of the first task, in the order of an epoch's chunks.
    """

    epoch: int
    attempt: str
    tasks: int = 1
    first_task: int = 0

    def as_property(self) -> str:
        """Return the value of `ATTEMPT_PROPERTY`."""
        return json.dumps(asdict(self))

    @classmethod
    def of_task(cls, context: TaskContext) -> StageAttempt:
        """Return the attempt of a task that runs."""
        text = context.getLocalProperty(ATTEMPT_PROPERTY)
        assert text is not None, "the stager sets it"
        return cls(**json.loads(text))


@dataclass(frozen=True)
class StagedPart:
    """A task's report of one chunk, or of its refused rows if there is no chunk.

    `memory_bytes` is the size of the chunk's rows before they are encoded, `attempt` that of the task.
    """

    start_ns: int
    end_ns: int
    chunk: Chunk | None = None
    memory_bytes: int = 0
    refused: int = 0
    reason: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict)
    attempt: str = ""


Stage = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
JavaObject = Any


class Stager:
    """Stages the epochs of a query.

    Spark gets the function of its tasks once. PySpark's `mapInArrow` and `toArrow` pickle it in each epoch,
    and make three times as many calls into the JVM, which took longer than to stage a small epoch's rows.

    Args:
        stage: what a task runs, as `stage_with` returns it.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._function: Column | None = None

    def stage(
        self,
        rows: DataFrame,
        epoch: int,
        attempt: str,
        *,
        most_tasks: int | None = None,
        tasks: int | None = None,
        first_task: int = 0,
    ) -> list[StagedPart]:
        """Run the plan of `Outputs.rows_to_stage` once; return the reports of its tasks.

        Args:
            rows: what the plan returns; the columns are those of every epoch.
            epoch: the epoch's number.
            attempt: id of the attempt.
            most_tasks: one task stages several partitions if there are more; None: a task each.
            tasks: number of tasks that share `inline_bytes`; None: those of these rows.
            first_task: number of the first task.

        Raises:
            StageFailed: a task staged its rows for another attempt.
        """
        if most_tasks is not None:
            rows = rows.coalesce(most_tasks)
        plan = rows._jdf.mapInArrow(self._function_of(rows), False, None)  # noqa: FBT003, SLF001 - see above
        staged = DataFrame(plan, rows.sparkSession)
        tasks = number_of_tasks(staged) if tasks is None else tasks
        value = StageAttempt(epoch, attempt, tasks, first_task).as_property()
        rows.sparkSession.sparkContext.setLocalProperty(ATTEMPT_PROPERTY, value)
        return parse(staged._collect_as_arrow(), attempt)  # type: ignore[operator] # noqa: SLF001 - see above

    def _function_of(self, rows: DataFrame) -> JavaObject:
        """Return the function of the tasks, for rows with these columns."""
        if self._function is None:
            columns = (F.col(name) for name in rows.columns)
            kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
            function = pandas_udf(self._stage, RESULT_TYPE, kind)  # type: ignore[call-overload]
            self._function = function(*columns)
            assert self._function is not None
        return self._function._jc  # noqa: SLF001 - no public API


def number_of_tasks(rows: DataFrame) -> int:
    """Return how many tasks run a plan.

    The plan is the one that runs: a shuffle that adaptive execution starts here is not repeated.
    """
    return int(rows._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001 - no public API


def stage_with(order: StageOrder) -> Stage:
    """Return the function that Spark runs on each partition of `Outputs.rows_to_stage`."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task of Spark"
        _freeze_modules()
        of = StageAttempt.of_task(context)
        yield from stage_task(order, of, context.partitionId(), context.taskAttemptId())(batches)

    return stage


def stage_task(order: StageOrder, of: StageAttempt, task: int = 0, task_attempt: int = 0) -> Stage:
    """Return what stages the rows of one task.

    Args:
        order: the query's.
        of: the attempt at an epoch.
        task: number of the task among those of its Spark job.
        task_attempt: Spark's id of the attempt at the task.
    """
    return _PartStager(order, of, of.first_task + task, task_attempt).run


@cache
def _freeze_modules() -> None:
    """Exclude what this worker has loaded from garbage collection, once.

    Spark's daemon runs `gc.collect` in a worker after every task. Traversing the objects of pyspark,
    pyarrow and the sinks took longer each time than staging a task's 50,000 rows.
    """
    gc.freeze()


class _PartStager:
    """Stages the rows of one task."""

    def __init__(self, order: StageOrder, of: StageAttempt, task: int, task_attempt: int) -> None:
        self._order, self._of, self._task, self._task_attempt = order, of, task, task_attempt
        self._inline_bytes_left = order.inline_bytes // of.tasks
        self._open: dict[tuple[int, int], list[pa.RecordBatch]] = {}
        self._bytes: dict[tuple[int, int], int] = {}
        self._sequence = 0
        self._refused, self._reason = 0, ""
        self._kinds: Counter[str] = Counter()
        self._start_ns = time.time_ns()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._stage_batch(batch)
            for key in sorted(self._bytes, key=self._bytes.__getitem__, reverse=True):
                if self._bytes[key] >= CHUNK_BYTES or sum(self._bytes.values()) > OPEN_BYTES:
                    yield self._close(key)
            if self._of.epoch != NO_EPOCH:
                failpoints.reach("stage-part", epoch=self._of.epoch)
        for key in sorted(self._open):
            yield self._close(key)
        if self._refused or self._kinds:
            counts = self._refused, self._reason, self._kinds
            yield self._result(StagedPart(self._start_ns, time.time_ns(), None, 0, *counts))

    def _stage_batch(self, batch: pa.RecordBatch) -> None:
        """Split a batch by sink and part, and separate the refused rows."""
        columns = [self._rows_of(batch, i) for i in range(len(self._order.sinks))]
        refused = _refused_by_sinks(self._order.sinks, columns) | _refused_by_job(batch)
        for i, (sink, (at, rows)) in enumerate(zip(self._order.sinks, columns, strict=True)):
            accepted = rows
            if refused:
                bad = pc.is_in(at, value_set=pa.array(list(refused), pa.int64()))
                accepted = rows.filter(pc.invert(bad))
            if sink.id == self._order.dead_letters:
                self._kinds += dead_letter.count_kinds(accepted)
            self._add(i, sink, accepted)
        if refused:
            self._dead_letter(batch, refused)

    def _rows_of(self, batch: pa.RecordBatch, i: int) -> tuple[pa.Array, pa.RecordBatch]:
        """Return a sink's rows of a batch, and their positions in the batch."""
        struct = batch.column(i)
        at = pa.arange(0, batch.num_rows)
        if struct.null_count:
            valid = struct.is_valid()
            struct, at = struct.filter(valid), at.filter(valid)
        return at, pa.RecordBatch.from_struct_array(struct)

    def _add(self, i: int, sink: BoundSink, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if sink.binding.parts == 1:
            self._put((i, 0), rows)
            return
        parts = rows.column(PART)
        rows = rows.drop_columns([PART])
        for part in pc.unique(parts).to_pylist():
            if part is None or not 0 <= part < sink.binding.parts:
                raise _no_such_part(sink, part)
            self._put((i, part), rows.filter(pc.equal(parts, part)))

    def _put(self, key: tuple[int, int], rows: pa.RecordBatch) -> None:
        self._open.setdefault(key, []).append(rows)
        self._bytes[key] = self._bytes.get(key, 0) + rows.nbytes

    def _dead_letter(self, batch: pa.RecordBatch, refused: dict[int, str]) -> None:
        """Stage refused rows as dead letters; without a dead-letter sink only count them."""
        self._refused += len(refused)
        first = next(iter(refused.values()))
        self._reason = str((dead_letter.letter_of_reason(first) or {}).get("reason", first))
        for i, sink in enumerate(self._order.sinks):
            if sink.id == self._order.dead_letters:
                schema = pa.schema(batch.schema.field(i).type.fields)
                for at, reason in refused.items():
                    row = batch.slice(at, 1)
                    letter = (
                        dead_letter.letter_of_row(row.column(i)[0])
                        or dead_letter.letter_of_reason(reason)
                        or dead_letter.refused_letter(row, reason)
                    )
                    staged = dead_letter.stage_letter(sink, schema, letter)
                    self._kinds += dead_letter.count_kinds(staged)
                    self._add(i, sink, staged)

    def _close(self, key: tuple[int, int]) -> pa.RecordBatch:
        """Make one chunk durable and return its report."""
        i, part = key
        rows, memory_bytes = self._open.pop(key), self._bytes.pop(key)
        encoded = encode_batches(rows[0].schema, rows)
        sink = self._order.sinks[i].id
        sequence, self._sequence = self._sequence, self._sequence + 1
        name = None
        if len(encoded) <= self._inline_bytes_left:
            self._inline_bytes_left -= len(encoded)
        else:
            area = StagingArea(open_checkpoint(self._order.checkpoint))
            tail = f"{sink}/{part}-{self._task}-{self._task_attempt}-{sequence}"
            name = area.write(self._of.epoch, self._of.attempt, tail, encoded)
        chunk = Chunk(
            sink=sink,
            part=part,
            order=(self._task, sequence),
            rows=sum(b.num_rows for b in rows),
            size=len(encoded),
            sha256=hashlib.sha256(encoded).hexdigest(),
            inline=None if name else encoded,
            name=name,
        )
        return self._result(StagedPart(self._start_ns, time.time_ns(), chunk, memory_bytes))

    def _result(self, part: StagedPart) -> pa.RecordBatch:
        pickled = pickle.dumps(replace(part, attempt=self._of.attempt))
        return pa.record_batch({"staged": pa.array([pickled], pa.binary())})


def _no_such_part(sink: BoundSink, part: int | None) -> SettingsInvalid:
    number = "null" if part is None else part
    return SettingsInvalid(
        f"sink {sink.id} gives a row the part {number}, and it has parts 0 to {sink.binding.parts - 1}",
        data="the epoch is undecided and nothing of it is visible; no transaction would write the row",
        do="correct the sink's part_expression: each row needs a part, rows with null keys too",
    )


def parse(results: Iterable[pa.RecordBatch], attempt: str) -> list[StagedPart]:
    """Return the reports of the tasks of an attempt; raises StageFailed if a task ran for another one."""
    staged = (value for batch in results for value in batch.column("staged").to_pylist())
    parts: list[StagedPart] = [pickle.loads(value) for value in staged]  # noqa: S301 - pickled by us
    for part in parts:
        if part.attempt != attempt:
            raise StageFailed(
                f"a task staged rows for attempt {part.attempt}, and the driver waits for attempt {attempt}",
                data="the epoch is undecided and nothing of it is visible",
                do="restart the driver; report a bug if it happens again",
            )
    return parts


def _refused_by_job(batch: pa.RecordBatch) -> dict[int, str]:
    """Return position and reason of the rows that the job itself refuses."""
    index = batch.schema.get_field_index(REFUSED)
    return _reasons(range(batch.num_rows), batch.column(index)) if index >= 0 else {}


def _refused_by_sinks(
    sinks: tuple[BoundSink, ...], columns: list[tuple[pa.Array, pa.RecordBatch]]
) -> dict[int, str]:
    """Return position and reason of the rows that a sink cannot write; usually none (rule 10)."""
    refused: dict[int, str] = {}
    for sink, (at, rows) in zip(sinks, columns, strict=True):
        reasons = sink.refusals(rows) if rows.num_rows else None
        if reasons is not None:
            for position, reason in _reasons(at.to_pylist(), reasons).items():
                refused.setdefault(position, f"refused by {sink.id}: {reason}")
    return refused


def _reasons(positions: Sequence[int], reasons: pa.Array) -> dict[int, str]:
    """Return position and reason of each row that has a reason."""
    if reasons.null_count == len(reasons):  # as usual: nothing is converted
        return {}
    # as bytes: a job may make a reason of a value that is not UTF-8
    pairs = zip(positions, reasons.cast(pa.binary()).to_pylist(), strict=True)
    return {at: reason.decode(errors="replace") for at, reason in pairs if reason is not None}
