"""The report that a driver writes after each epoch; the rows are staged here without Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from sluicegate import failpoints
from sluicegate.errors import (
    SinkRejected,
    SinkUnavailable,
    SluicegateError,
    StageFailed,
    StoreUnavailable,
)
from sluicegate.sinks.memory import committed
from sluicegate.spark.apply import close_writers
from sluicegate.spark.ports import BatchPlan, EpochTimings, TracedSinks
from sluicegate.spark.query_execution import KafkaSource
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import read_report
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.spark.memory_epochs import ROWS, run, runner


class ReadOnlyReports(LocalObjectStore):
    """A store that creates objects and replaces none."""

    def put(self, name: str, content: Iterable[bytes]) -> None:
        raise StoreUnavailable(f"no permission to write {name}, {list(content)}")


@pytest.mark.parametrize("overlap", [False, True], ids=["at once", "overlapped"])
def test_an_epoch_leaves_a_report_of_every_step(tmp_path: Path, *, overlap: bool) -> None:
    store = LocalObjectStore(tmp_path)
    run(store, overlap=overlap)
    report, record = read_report(store, 0), StoredEpochLog(store).read(0)
    assert report is not None
    assert record is not None
    names = [step.name for step in report.steps]
    assert names == ["stage", "decide", "begin", "write", "flush", "commit", "apply"]
    (sink,) = report.sinks
    assert [(step.sink, step.part) for step in report.steps] == [
        *[("", None)] * 2,
        *[(sink, 0)] * 4,
        (sink, None),
    ]
    assert (report.sinks[sink].rows, report.sinks[sink].tries) == (3, 1)
    assert (report.attempt, report.replayed, report.dead_letters) == (
        record.attempt,
        False,
        {"null": 1},
    )
    assert not StoredEpochLog(store).is_marked_applied(0)


def test_a_report_says_since_when_input_waits_that_the_epoch_left(tmp_path: Path) -> None:
    store, offsets = LocalObjectStore(tmp_path), {"t": {"0": 3}}
    waits = []
    for epoch, latest in enumerate(({"t": {"0": 5}}, offsets)):
        store.create(f"offsets/{epoch}", b"v1\n{}\n{}")
        running = runner(store, sources=[KafkaSource(1, None, offsets, latest)])
        running.run(cast("Any", None), epoch)
        running.background.close()
        report = read_report(store, epoch)
        waits.append(report.waits_since_ms if report else None)
    close_writers(tmp_path.name)
    assert waits[0]
    assert 0 <= time.time() - waits[0] / 1000 < 600
    assert waits[1] == 0


def test_a_replay_writes_the_report_of_what_it_did(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    run(store)
    run(store)
    report = read_report(store, 0)
    assert report is not None
    assert report.replayed
    assert [step.name for step in report.steps] == ["apply"]
    assert len(committed(tmp_path.name)) == ROWS.num_rows


@pytest.mark.parametrize(
    ("of", "method", "error", "thrown_away"),
    [
        (BatchPlan, "check_state", StageFailed, 1),
        (TracedSinks, "apply", SinkRejected, 0),  # after the decision
    ],
)
def test_the_report_counts_attempts_that_failed_in_the_same_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of: type,
    method: str,
    error: type[SluicegateError],
    thrown_away: int,
) -> None:
    def fails(*_given: object, **_named: object) -> None:
        raise error("once")

    store = LocalObjectStore(tmp_path)
    store.create("offsets/0", b"v1\n{}\n{}")
    running = runner(store)
    with monkeypatch.context() as failing:
        failing.setattr(of, method, fails)
        with pytest.raises(SluicegateError):
            running.run(cast("Any", None), 0)
    running.run(cast("Any", None), 0)
    running.background.close()
    close_writers(tmp_path.name)
    report = read_report(store, 0)
    assert report is not None
    assert report.thrown_away == thrown_away


def test_an_epoch_whose_report_cannot_be_written_is_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sluicegate.epoch"):
        run(ReadOnlyReports(tmp_path))
    assert len(committed(tmp_path.name)) == ROWS.num_rows
    assert "report of epoch 0 was not written" in caplog.text


@pytest.mark.parametrize("content", [b"", b"applied", b"{}"])
def test_a_report_does_not_make_a_decided_epoch_applied(tmp_path: Path, content: bytes) -> None:
    """The driver ends after the decision; a report, which it would only write later, is there."""
    store = LocalObjectStore(tmp_path)
    failpoints.arm("after-decide@0=raise")
    try:
        with pytest.raises(failpoints.FailpointHit):
            run(store)
    finally:
        failpoints.arm("")
    store.put("epochs/0.report", [content])
    assert committed(tmp_path.name) == []
    run(store)
    assert len(committed(tmp_path.name)) == ROWS.num_rows


def test_a_try_that_failed_is_timed_too() -> None:
    timings = EpochTimings()
    with pytest.raises(SinkUnavailable), timings.step("apply", "s"):
        raise SinkUnavailable("away")
    with timings.step("apply", "s"):
        pass
    assert [(step.name, step.sink) for step in timings.timed] == [("apply", "s")] * 2
    assert list(timings.steps) == ["apply s"]
