"""A staging task in the worker process that Spark reuses for later tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import staging
from sluicegate.spark.staging import TASKS_PROPERTY, StageOrder, stage_with


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


@pytest.mark.usefixtures("task")
def test_the_collection_after_a_task_skips_what_was_loaded_before_it() -> None:
    schema = pa.schema([("id", pa.int64())])
    sink = MemorySink("rows").bind(schema, lineage="l", apply_timeout_s=1)
    ids = pa.StructArray.from_arrays([pa.array([1, 2], pa.int64())], ["id"])
    order = StageOrder("/nowhere", 0, "a", 1 << 20, (sink,), None)
    loaded = len(gc.get_objects())
    assert list(stage_with(order)([pa.record_batch({"s0": ids})]))
    assert gc.get_freeze_count() >= loaded
