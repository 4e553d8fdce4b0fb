"""At-most-once in a task: nothing is retried, so a stale writer must not fail the only attempt."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.errors import SinkUnavailable
from sluicegate.protocol.markers import Marker
from sluicegate.settings.epoch import AT_MOST_ONCE
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import apply as spark_apply
from sluicegate.spark.apply import PartOrder


class FencedWriter:
    """A writer whose part has run in another worker since: its first request fails."""

    def apply(self, _decision: PartDecision, _rows: Iterator[pa.RecordBatch]) -> Receipt:
        raise SinkUnavailable("fenced")

    def close(self) -> None:
        """It has no connection."""


@pytest.fixture
def order(tmp_path: Path) -> PartOrder:
    """Return the order to apply an epoch without rows."""
    sink = MemorySink("at-most-once").bind(
        pa.schema([("n", pa.int64())]), lineage="l", apply_timeout_s=5.0
    )
    return PartOrder(
        checkpoint=str(tmp_path),
        sink=sink,
        part=0,
        chunks=(),
        lineage="l",
        this=Marker(2, "b"),
        prev=Marker(1, "a"),
        delivery=AT_MOST_ONCE,
        traceparent="",
        durable_markers=False,
    )


def apply_in_task(order: PartOrder) -> object:
    """Return the result of a task that applies the order."""
    result = spark_apply._apply_in_task(pickle.dumps(order))
    return pickle.loads(result)  # noqa: S301 - pickled by us


def test_a_fenced_writer_of_an_earlier_epoch_is_replaced(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(spark_apply._writers, ("l", order.sink.id, 0), FencedWriter())
    assert isinstance(apply_in_task(order), Receipt)


def test_a_task_that_runs_again_writes_nothing_and_is_in_doubt(order: PartOrder) -> None:
    """The first one may have died before its commit: the driver must not count its rows as delivered."""
    apply_in_task(order)
    again = apply_in_task(order)
    assert isinstance(again, SinkUnavailable)
    assert "was lost" in again.what
