"""What the epochs of a runner leave in the driver's metrics; the rows are staged without Spark."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from sluicegate import failpoints
from sluicegate.errors import SinkUnavailable, StageFailed
from sluicegate.metrics import DriverMetrics
from sluicegate.protocol.job import Job
from sluicegate.protocol.record import Chunk
from sluicegate.sinks.contract import Receipt
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.apply import PartOrder, apply_part, close_writers
from sluicegate.spark.epoch_runner import EpochRunner
from sluicegate.spark.ports import BatchPlan, EpochTimings, QueryContext
from sluicegate.spark.staging import StagedPart
from sluicegate.storage.arrow_encoding import encode_batches
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.tracing import Tracing

ROWS = pa.record_batch({"n": [1, 2, 3]})
IN_DOUBT = "sluicegate_epoch_in_doubt_timestamp_seconds"


class OneChunk(BatchPlan):
    """A plan whose only task stages `ROWS` in the record, so that the driver itself applies them."""

    def _run_tasks(self, epoch: int, attempt: str) -> list[StagedPart]:
        del epoch, attempt
        content = encode_batches(ROWS.schema, [ROWS])
        (sink,) = self._context.sinks
        digest = hashlib.sha256(content).hexdigest()
        chunk = Chunk(sink, 0, (0, 0), ROWS.num_rows, len(content), digest, inline=content)
        return [StagedPart(0, 1, chunk)]


def run(folder: Path, *, overlap: bool = False) -> DriverMetrics:
    """Run epoch 0 in a checkpoint until every sink has it, or until it fails; return the metrics."""
    store, lineage = LocalObjectStore(folder), folder.name
    store.create("offsets/0", b"v1\n{}\n{}")
    bound = MemorySink(lineage).bind(ROWS.schema, lineage=lineage, apply_timeout_s=5.0)
    metrics = DriverMetrics("j", lineage, [bound.id])
    context = QueryContext(
        job=Job("j", lineage, {bound.id: bound.binding}, overlap=overlap, backoff_s=0.001),
        outputs=cast("Any", None),
        sinks={bound.id: bound},
        dead_letters=None,
        checkpoint=store.url,
        store=store,
        tracing=Tracing("j"),
        inline_bytes=1 << 20,
        max_part_bytes=1 << 20,
        metrics=metrics,
    )

    def plan(batch: DataFrame, timings: EpochTimings) -> BatchPlan:
        return OneChunk(None, context, batch, timings)

    runner = EpochRunner(cast("Any", None), context, 0.0, plan)
    try:
        runner.run(cast("Any", None), 0)
        runner.background.wait()
    except (failpoints.FailpointHit, StageFailed):
        pass
    finally:
        runner.background.close()
        close_writers(lineage)
    return metrics


def value(metrics: DriverMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"job": "j", **labels})


@pytest.mark.parametrize("overlap", [False, True], ids=["at once", "overlapped"])
def test_an_epoch_is_counted_when_every_sink_has_it(tmp_path: Path, *, overlap: bool) -> None:
    metrics = run(tmp_path, overlap=overlap)
    (sink,) = {
        sample.labels["sink"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "sluicegate_sink_rows_total"
    }
    assert value(metrics, "sluicegate_sink_rows_total", sink=sink) == ROWS.num_rows
    assert value(metrics, "sluicegate_epoch_applied") == 0
    assert value(metrics, IN_DOUBT) is None
    for step in ({"step": "stage", "sink": ""}, {"step": "apply", "sink": sink}):
        assert value(metrics, "sluicegate_epoch_step_seconds_count", **step) == 1


@pytest.mark.parametrize("overlap", [False, True], ids=["at once", "overlapped"])
def test_an_epoch_that_was_not_applied_is_in_doubt(tmp_path: Path, *, overlap: bool) -> None:
    failpoints.arm("after-apply@0=raise")
    try:
        metrics = run(tmp_path, overlap=overlap)
    finally:
        failpoints.arm("")
    assert value(metrics, "sluicegate_epoch_decided") == 0
    assert value(metrics, "sluicegate_epoch_applied") is None
    in_doubt_s = value(metrics, IN_DOUBT)
    assert in_doubt_s is not None
    again = run(tmp_path, overlap=overlap)
    assert (value(again, "sluicegate_epoch_applied"), value(again, IN_DOUBT)) == (0, None)


def test_each_try_of_an_apply_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outages = [SinkUnavailable("away"), SinkUnavailable("still away")]

    def unreliable(order: PartOrder) -> Receipt:
        if outages:
            raise outages.pop()
        return apply_part(order)

    monkeypatch.setattr("sluicegate.spark.apply.apply_part", unreliable)
    metrics = run(tmp_path)
    sink = f"memory.{tmp_path.name}"
    assert value(metrics, "sluicegate_apply_tries_total", sink=sink) == 3
    assert value(metrics, "sluicegate_epoch_seconds_count") == 1
