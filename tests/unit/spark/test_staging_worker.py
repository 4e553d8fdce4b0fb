"""A staging task in the worker process that Spark reuses for later tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from sluicegate import failpoints
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import staging
from sluicegate.spark.staging import NO_EPOCH, TASKS_PROPERTY, StageOrder, parse, stage_with


@pytest.fixture
def task() -> Iterator[None]:
    """Make this process the worker of a task."""
    context = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId = 0, 0
    context._localProperties = {TASKS_PROPERTY: "1"}
    staging._freeze_modules.cache_clear()
    yield
    TaskContext._setTaskContext(None)  # type: ignore[arg-type]
    gc.unfreeze()


def stage(epoch: int, first_task: int = 0) -> list[pa.RecordBatch]:
    """Stage two rows."""
    schema = pa.schema([("id", pa.int64())])
    sink = MemorySink("rows").bind(schema, lineage="l", apply_timeout_s=1)
    ids = pa.StructArray.from_arrays([pa.array([1, 2], pa.int64())], ["id"])
    order = StageOrder("/nowhere", epoch, "a", 1 << 20, (sink,), None, first_task)
    return list(stage_with(order)([pa.record_batch({"s0": ids})]))


@pytest.mark.usefixtures("task")
def test_the_collection_after_a_task_skips_what_was_loaded_before_it() -> None:
    loaded = len(gc.get_objects())
    assert stage(0)
    assert gc.get_freeze_count() >= loaded


@pytest.mark.usefixtures("task")
def test_the_second_spark_job_of_an_epoch_stages_its_chunks_after_those_of_the_first() -> None:
    """Both number their partitions from 0, and a sink of dead letters has chunks of both."""
    parts = parse(pa.Table.from_batches(stage(0) + stage(0, first_task=4)))
    assert [part.chunk.order for part in parts if part.chunk] == [(0, 0), (4, 0)]


@pytest.mark.usefixtures("task")
def test_a_warm_up_passes_no_failpoint() -> None:
    """A standby that warmed up stopped at the failpoint that was meant for the running driver."""
    failpoints.arm("stage-part=raise")
    try:
        assert stage(NO_EPOCH)
        with pytest.raises(failpoints.FailpointHit):
            stage(0)
    finally:
        failpoints.arm("")
