"""What an epoch carries through the driver, and what a task holds, does not grow with the epoch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.protocol.record import Chunk
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.memory import MemorySink
from sluicegate.sinks.reserved_columns import PART
from sluicegate.spark import apply as spark_apply
from sluicegate.spark import staging
from sluicegate.spark.apply import PartOrder, apply_part
from sluicegate.spark.staging import (
    StageAttempt,
    StagedPart,
    StageOrder,
    parse,
    stage_task,
    stage_with,
)
from sluicegate.storage.arrow_encoding import decode_batches, encode_batches
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.storage.staging_area import StagingArea

INLINE_BYTES = 256 << 10
ROW_BYTES = 1000
ROWS = pa.schema([("value", pa.binary())])
BOUND = MemorySink("rows").bind(ROWS, lineage="l", apply_timeout_s=1)


class FakeTask:
    """Stands for pyspark's TaskContext in a task of an epoch with a number of tasks."""

    def __init__(self, task: int, tasks: int) -> None:
        self._task, self._tasks = task, tasks

    def get(self) -> FakeTask:
        return self

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._task

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's name
        return self._task

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        assert name == staging.ATTEMPT_PROPERTY
        return StageAttempt(0, "a", self._tasks).as_property()


def random_rows(rows: int) -> pa.RecordBatch:
    """Return rows of a task that do not compress."""
    values = pa.array([os.urandom(ROW_BYTES) for _ in range(rows)], pa.binary())
    return pa.record_batch({"s0": pa.StructArray.from_arrays([values], ["value"])})


def staged_by(
    tasks: int, batches: Iterable[pa.RecordBatch], folder: Path, patch: pytest.MonkeyPatch
) -> list[Chunk]:
    """Stage the same batches in each of an epoch's tasks."""
    order = StageOrder(str(folder), INLINE_BYTES, (BOUND,), None)
    chunks = []
    for task in range(tasks):
        patch.setattr(staging, "TaskContext", FakeTask(task, tasks))
        reports = parse(stage_with(order)(batches), "a")
        chunks += [report.chunk for report in reports if report.chunk]
    return chunks


@pytest.mark.parametrize("tasks", [1, 3, 20])
def test_all_tasks_together_return_no_more_than_the_inline_bytes(
    tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task has several chunks that would fit alone; every row is inline or in the staging area."""
    monkeypatch.setattr(staging, "CHUNK_BYTES", INLINE_BYTES // tasks // 3)
    rows = INLINE_BYTES // tasks // ROW_BYTES // 5
    batches = [random_rows(rows) for _ in range(20)]
    chunks = staged_by(tasks, batches, tmp_path, monkeypatch)
    inline = sum(chunk.size for chunk in chunks if chunk.inline is not None)
    assert INLINE_BYTES / 2 < inline <= INLINE_BYTES
    area = StagingArea(LocalObjectStore(tmp_path))
    decoded = (batch for chunk in chunks for batch in decode_batches(area.read(chunk)))
    assert sum(batch.num_rows for batch in decoded) == tasks * 20 * rows


def test_a_small_epoch_is_inline_with_many_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no request to the staging area."""
    chunks = staged_by(50, [random_rows(3)], tmp_path, monkeypatch)
    assert all(chunk.inline is not None for chunk in chunks)
    assert list(tmp_path.iterdir()) == []


def test_a_task_holds_no_more_rows_if_a_sink_has_many_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks are closed early when all open ones together are large."""
    monkeypatch.setattr(staging, "CHUNK_BYTES", 10 * ROW_BYTES)
    monkeypatch.setattr(staging, "OPEN_BYTES", 40 * ROW_BYTES)
    parts, fed = 100, 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal fed
        for part in range(parts):
            values = pa.array([os.urandom(ROW_BYTES)], pa.binary())
            struct = [values, pa.array([part], pa.int32())]
            fed += ROW_BYTES
            yield pa.record_batch({"s0": pa.StructArray.from_arrays(struct, ["value", PART])})

    sink = MemorySink("rows", parts=parts).bind(ROWS, lineage="l", apply_timeout_s=1)
    order = StageOrder(str(tmp_path), 1 << 20, (sink,), None)
    largest = closed = 0
    for result in stage_task(order, StageAttempt(0, "a"))(batches()):
        largest = max(largest, fed - closed)
        (report,) = parse([result], "a")
        closed += report.memory_bytes
    assert largest <= 42 * ROW_BYTES
    assert closed >= fed


def test_a_task_reports_the_size_of_its_rows_before_compression(tmp_path: Path) -> None:
    """It is what a sink writes, so it is what bounds a transaction."""
    values = pa.array([b"." * ROW_BYTES] * 1000, pa.binary())
    batch = pa.record_batch({"s0": pa.StructArray.from_arrays([values], ["value"])})
    order = StageOrder(str(tmp_path), INLINE_BYTES, (BOUND,), None)
    (report,) = parse(stage_task(order, StageAttempt(0, "a"))([batch]), "a")
    assert isinstance(report, StagedPart)
    assert report.chunk is not None
    assert report.chunk.size < 100 * ROW_BYTES
    assert report.memory_bytes >= 1000 * ROW_BYTES


class LoggingWriter:
    """Logs each batch that it receives."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def apply(self, _decision: PartDecision, batches: Iterable[pa.RecordBatch]) -> Receipt:
        for _ in batches:
            self._events.append("write")
        return Receipt(Verdict.APPLY)

    def close(self) -> None:
        """It has no connection."""


def test_an_apply_reads_a_chunk_only_after_it_has_written_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(2).column("s0")
    encoded = encode_batches(ROWS, [pa.RecordBatch.from_struct_array(rows)])
    area, digest = StagingArea(LocalObjectStore(tmp_path)), hashlib.sha256(encoded).hexdigest()
    chunks = tuple(
        Chunk(
            BOUND.id, 0, (0, i), 2, len(encoded), digest, name=area.write(0, "a", str(i), encoded)
        )
        for i in range(3)
    )
    events: list[str] = []
    read = StagingArea.read

    def logged_read(self: StagingArea, chunk: Chunk) -> bytes:
        events.append("read")
        return read(self, chunk)

    monkeypatch.setattr(StagingArea, "read", logged_read)
    monkeypatch.setitem(spark_apply._writers, ("l", BOUND.id, 0), LoggingWriter(events))
    order = PartOrder(
        checkpoint=str(tmp_path),
        sink=BOUND,
        part=0,
        chunks=chunks,
        lineage="l",
        this=Marker(0, "a"),
        prev=NO_MARKER,
        delivery="exactly-once",
        traceparent="",
        durable_markers=False,
    )
    apply_part(order)
    assert events == ["read", "write"] * 3
