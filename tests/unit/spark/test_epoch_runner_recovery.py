"""What the runner removes of attempts that were not decided; the rows are staged without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from sluicegate.errors import SinkRegressed, StageFailed
from sluicegate.sinks.contract import Receipt
from sluicegate.sinks.memory import committed
from sluicegate.spark import ports
from sluicegate.spark.apply import PartOrder, apply_parts, close_writers
from sluicegate.spark.ports import BatchPlan
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import ROWS, run, runner

CHANGES, SNAPSHOT = "state/0/0/2.changelog", "state/0/0/2.zip"


@pytest.mark.parametrize("offsets", [b"v1\n{}\n{}", b""], ids=["complete", "empty"])
def test_a_start_removes_the_snapshots_of_an_attempt_that_was_not_decided(
    tmp_path: Path, offsets: bytes
) -> None:
    """Also after a power cut, which leaves files of Spark empty."""
    store = LocalObjectStore(tmp_path)
    run(store)
    for name in (CHANGES, SNAPSHOT):
        store.create(name, b"")
    store.create("offsets/1", offsets)
    runner(store).recover()
    assert list(store.names("state/")) == [CHANGES]


def test_a_start_without_an_undecided_attempt_does_not_list_the_state(tmp_path: Path) -> None:
    class NoState(LocalObjectStore):
        def names(self, prefix: str) -> Iterator[str]:
            assert not prefix.startswith("state/")
            return super().names(prefix)

    store = NoState(tmp_path)
    run(store)
    runner(store).recover()


def test_a_driver_removes_the_snapshots_of_its_own_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> None:
        raise StageFailed("once")

    store = LocalObjectStore(tmp_path)
    for name in ("offsets/0", CHANGES, SNAPSHOT):
        store.create(name, b"v1\n{}\n{}")
    running = runner(store)
    with monkeypatch.context() as failing:
        failing.setattr(BatchPlan, "check_state", fails)
        with pytest.raises(StageFailed):
            running.run(cast("Any", None), 0)
    assert set(store.names("state/")) == {CHANGES, SNAPSHOT}
    running.run(cast("Any", None), 0)
    running.background.close()
    close_writers(tmp_path.name)
    assert list(store.names("state/")) == [CHANGES]


def test_the_log_says_once_that_a_sink_gets_again_what_it_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that repairs a failed-over MySQL by itself must not do so in silence."""
    older = iter([True, True])  # at the apply, and when it is tried again by the repair

    def regressed(spark: SparkSession, orders: list[PartOrder]) -> Iterator[tuple[int, Receipt]]:
        if next(older, False):
            raise SinkRegressed("the marker is older")
        return apply_parts(spark, orders)

    store, name = LocalObjectStore(tmp_path), tmp_path.name
    run(store)
    store.create("offsets/1", b"v1\n{}\n{}")
    running = runner(store, redoable=frozenset({f"memory.{name}"}))
    monkeypatch.setattr(ports, "apply_parts", regressed)
    with caplog.at_level(logging.WARNING, "sluicegate.apply"):
        running.run(cast("Any", None), 1)
    running.background.close()
    close_writers(name)
    assert len(committed(name)) == 2 * ROWS.num_rows
    assert caplog.messages == ["the marker is older: the epochs that it lost are applied again"]
