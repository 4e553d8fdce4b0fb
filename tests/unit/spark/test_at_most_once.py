"""At-most-once in a task: nothing is tried again, so nothing may be spoilt beforehand."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.protocol.errors import SinkUnavailable
from sluicegate.protocol.markers import Verdict
from sluicegate.protocol.record import AT_MOST_ONCE
from sluicegate.sinks.contract import PartDecision, Receipt
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import applying
from sluicegate.spark.applying import PartOrder


class Fenced:
    """A writer whose part has run in another worker since: it fails at its first word."""

    def apply(self, _decision: PartDecision, _rows: Iterator[pa.RecordBatch]) -> Receipt:
        raise SinkUnavailable("fenced")

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def order(tmp_path: Path) -> PartOrder:
    """Give the order to apply an epoch of no rows."""
    sink = MemorySink("at-most-once").bind(
        pa.schema([("n", pa.int64())]), lineage="l", apply_timeout_s=5.0
    )
    return PartOrder(
        checkpoint=str(tmp_path),
        sink=sink,
        part=0,
        chunks=(),
        lineage="l",
        epoch=2,
        attempt="b",
        prev_epoch=1,
        prev_attempt="a",
        delivery=AT_MOST_ONCE,
        traceparent="",
    )


def told(order: PartOrder) -> object:
    """Return what a task that applies it says."""
    answer = applying._apply_pickled(pickle.dumps(order))
    return pickle.loads(answer)  # noqa: S301 - our own


def test_a_writer_of_an_earlier_epoch_does_not_cost_the_next(
    order: PartOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(applying._writers, ("l", order.sink.id, 0), Fenced())
    assert isinstance(told(order), Receipt)


def test_a_task_that_is_run_again_writes_nothing(order: PartOrder) -> None:
    told(order)
    again = told(order)
    assert isinstance(again, Receipt)
    assert again.verdict is Verdict.SKIP
