"""A staging task in the worker process that Spark reuses for later tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from sluicegate import failpoints
from sluicegate.errors import StageFailed
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import staging
from sluicegate.spark.staging import (
    ATTEMPT_PROPERTY,
    NO_EPOCH,
    StageAttempt,
    StageOrder,
    parse,
    stage_with,
)


@pytest.fixture
def task() -> Iterator[TaskContext]:
    """Make this process the worker of a task."""
    context = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId = 0, 0
    staging._freeze_modules.cache_clear()
    yield context
    TaskContext._setTaskContext(None)  # type: ignore[arg-type]
    gc.unfreeze()


def stage(task: TaskContext, epoch: int, first_task: int = 0) -> list[pa.RecordBatch]:
    """Stage two rows."""
    attempt = StageAttempt(epoch, "a", first_task=first_task)
    task._localProperties = {ATTEMPT_PROPERTY: attempt.as_property()}
    schema = pa.schema([("id", pa.int64())])
    sink = MemorySink("rows").bind(schema, lineage="l", apply_timeout_s=1)
    ids = pa.StructArray.from_arrays([pa.array([1, 2], pa.int64())], ["id"])
    order = StageOrder("/nowhere", 1 << 20, (sink,), None)
    return list(stage_with(order)([pa.record_batch({"s0": ids})]))


def test_the_collection_after_a_task_skips_what_was_loaded_before_it(task: TaskContext) -> None:
    loaded = len(gc.get_objects())
    assert stage(task, 0)
    assert gc.get_freeze_count() >= loaded


def test_the_second_spark_job_of_an_epoch_stages_its_chunks_after_those_of_the_first(
    task: TaskContext,
) -> None:
    """Both number their partitions from 0, and a sink of dead letters has chunks of both."""
    parts = parse(stage(task, 0) + stage(task, 0, first_task=4), "a")
    assert [part.chunk.order for part in parts if part.chunk] == [(0, 0), (4, 0)]


def test_a_warm_up_passes_no_failpoint(task: TaskContext) -> None:
    """A standby that warmed up stopped at the failpoint that was meant for the running driver."""
    failpoints.arm("stage-part=raise")
    try:
        assert stage(task, NO_EPOCH)
        with pytest.raises(failpoints.FailpointHit):
            stage(task, 0)
    finally:
        failpoints.arm("")


def test_chunks_that_were_staged_for_another_attempt_are_refused(task: TaskContext) -> None:
    """The attempt reaches a task as a property of the thread that starts the Spark job."""
    with pytest.raises(StageFailed, match="for attempt a, and the driver waits for attempt b"):
        parse(stage(task, 0), "b")
