"""At-most-once: nothing is retried, so a stale writer must not fail the only attempt."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from sluicegate.errors import SinkUnavailable
from sluicegate.protocol.markers import Marker
from sluicegate.protocol.record import Chunk
from sluicegate.settings.epoch import AT_MOST_ONCE
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.memory import MemorySink, committed, forget
from sluicegate.spark import apply as spark_apply
from sluicegate.spark.apply import PartOrder
from sluicegate.storage.arrow_encoding import encode_batches
from sluicegate.storage.object_store import LocalObjectStore
from sluicegate.storage.staging_area import StagingArea

ROWS = pa.record_batch({"n": [1, 2, 3]})


class FencedWriter:
    """A writer whose part has run in another worker since: its first request fails."""

    def apply(self, _decision: PartDecision, _rows: Iterator[pa.RecordBatch]) -> Receipt:
        raise SinkUnavailable("fenced")

    def close(self) -> None:
        """It has no connection."""


@dataclass
class OtherProcess:
    """A SparkContext whose tasks run in a Python worker, which has writers of its own."""

    writers: dict[Any, Any] = field(default_factory=dict)

    @property
    def sparkContext(self) -> OtherProcess:  # noqa: N802 - Spark's name
        return self

    def parallelize(self, items: list[bytes], _slices: int) -> OtherProcess:
        self.items = items
        return self

    def map(self, task: Callable[[bytes], bytes]) -> OtherProcess:
        self.task = task
        return self

    def collect(self) -> list[bytes]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(spark_apply, "_writers", self.writers)
            return [self.task(item) for item in self.items]


@pytest.fixture(autouse=True)
def _no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_apply, "_writers", {})


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


@pytest.mark.parametrize("delivery", [AT_MOST_ONCE, "at-least-once", "exactly-once"])
def test_the_driver_applies_a_small_epoch_at_once_after_executors_have_applied_a_large_one(
    order: PartOrder, delivery: str
) -> None:
    """The writers of the executors have fenced those that the driver had for a small epoch before."""
    encoded, spark = encode_batches(ROWS.schema, [ROWS]), OtherProcess()
    inline = Chunk(order.sink.id, 0, (0, 0), 3, len(encoded), hashlib.sha256(encoded).hexdigest())
    area = StagingArea(LocalObjectStore(Path(order.checkpoint)))
    staged = replace(inline, name=area.write(1, "a1", "0", encoded))
    inline = replace(inline, inline=encoded)
    forget("at-most-once")
    for epoch, chunk in enumerate((inline, staged, inline)):
        this, prev = Marker(epoch, f"a{epoch}"), Marker(epoch - 1, f"a{epoch - 1}" if epoch else "")
        one = replace(order, chunks=(chunk,), this=this, prev=prev, delivery=delivery)
        list(spark_apply.apply_parts(cast("Any", spark), [one]))
    assert len(committed("at-most-once")) == 9
