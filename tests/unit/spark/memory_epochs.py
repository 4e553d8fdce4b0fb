"""Epochs of a job with one sink in memory, run by the real runner; rows are staged without Spark.

The lineage and the sink's store have the name of the checkpoint's folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame

from sluicegate.protocol.job import Job
from sluicegate.protocol.record import Chunk
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.apply import close_writers
from sluicegate.spark.epoch_runner import EpochRunner, Retry, once
from sluicegate.spark.ports import BatchPlan, EpochTimings, QueryContext
from sluicegate.spark.query_execution import KafkaSource
from sluicegate.spark.source_offsets import SourceOffsets
from sluicegate.spark.staging import StagedPart
from sluicegate.storage.arrow_encoding import encode_batches
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.tracing import Tracing

ROWS = pa.record_batch({"n": [1, 2, 3]})


class OneChunk(BatchPlan):
    """A plan whose only task stages `ROWS` in the record, so that the driver itself applies them."""

    def _run_tasks(self, epoch: int, attempt: str) -> list[StagedPart]:
        del epoch, attempt
        content = encode_batches(ROWS.schema, [ROWS])
        (sink,) = self._context.sinks
        digest = hashlib.sha256(content).hexdigest()
        chunk = Chunk(sink, 0, (0, 0), ROWS.num_rows, len(content), digest, inline=content)
        return [StagedPart(0, 1, chunk, refused=1, kinds={"null": 1})]


def runner(
    store: LocalObjectStore,
    *,
    source_offsets: SourceOffsets | None = None,
    sources: Sequence[KafkaSource] = (),
    target: str = "",
    retry: Retry = once,
    **job: Any,  # noqa: ANN401 - of `Job`
) -> EpochRunner:
    """Return the runner of a job with one sink, whose store has the name of the test's folder.

    Each epoch ends at the given offsets of `sources`. A `target` is another store behind the same
    sink.
    """
    lineage = Path(store.url).name
    sink = MemorySink(target or lineage, id=f"memory.{lineage}")
    bound = sink.bind(ROWS.schema, lineage=lineage, apply_timeout_s=5.0)
    context = QueryContext(
        job=Job("j", lineage, {bound.id: bound.binding}, backoff_s=0.001, **job),
        outputs=cast("Any", None),
        sinks={bound.id: bound},
        dead_letters="letters",
        checkpoint=store.url,
        store=store,
        tracing=Tracing("j"),
        inline_bytes=1 << 20,
        max_part_bytes=1 << 20,
        source_offsets=source_offsets,
    )

    def plan(batch: DataFrame, timings: EpochTimings) -> BatchPlan:
        timings.sources = tuple(sources)
        return OneChunk(None, context, batch, timings)

    return EpochRunner(cast("Any", None), context, 0.0, plan, retry)


def run(store: LocalObjectStore, epochs: int = 1, *, overlap: bool = False) -> None:
    """Run epochs, from 0 on, until every sink has them."""
    running = runner(store, overlap=overlap)
    try:
        for epoch in range(epochs):
            store.create(f"offsets/{epoch}", b"v1\n{}\n{}")
            running.run(cast("Any", None), epoch)
            running.background.wait()
    finally:
        running.background.close()
        close_writers(Path(store.url).name)
