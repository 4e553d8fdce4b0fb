"""Finishing what is decided without a query, of a stream and of a batch, in this process.

A killed driver and its pod are in tests/faults/test_pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import DecidedForAnotherJob
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import ending
from sluicegate.spark.batch import BatchWriter, batch
from tests.faults.streams import Stream, dying_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

FIRST, SECOND = [{"x": 1}], [{"x": 2}]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """Give a stream of two epochs."""
    made = Stream(spark, tmp_path, "x long")
    made.add(FIRST, SECOND)
    yield made
    ending.forget()


@pytest.fixture
def finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an environment that says so: ask for it when the epoch is decided."""
    monkeypatch.setenv("SLUICEGATE_PURPOSE", "finish")


def run(stream: Stream, store: str = "out", *, overlap: bool = False) -> None:
    settings = EpochSettings(interval=AVAILABLE_NOW, overlap=overlap)
    stream.run(stream.rows, [MemorySink(stream.store(store), id="out")], settings=settings)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_decided_epoch_is_applied_and_no_other_begun(
    stream: Stream, request: pytest.FixtureRequest, *, overlap: bool
) -> None:
    with dying_at("after-decide@0"):
        run(stream, overlap=overlap)
    assert stream.seen("out") == []
    request.getfixturevalue("finish")
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            run(stream, overlap=overlap)
        assert ended.value.code == 0
        assert stream.seen("out") == FIRST
    assert stream.newest() == 0


def test_a_stream_goes_on_exactly_after_it_was_finished(
    stream: Stream, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dying_at("after-decide@0"):
        run(stream)
    request.getfixturevalue("finish")
    with pytest.raises(SystemExit):
        run(stream)
    monkeypatch.delenv("SLUICEGATE_PURPOSE")
    run(stream)
    assert stream.seen("out") == [*FIRST, *SECOND]


def test_what_is_decided_for_another_sink_is_not_finished(
    stream: Stream, request: pytest.FixtureRequest
) -> None:
    with dying_at("after-decide@0"):
        run(stream)
    request.getfixturevalue("finish")
    with pytest.raises(DecidedForAnotherJob):
        run(stream, "elsewhere")
    assert stream.seen("elsewhere") == []


def a_batch(stream: Stream) -> BatchWriter:
    rows = stream.spark.read.schema("x long").json(str(stream.folder / "source"))
    sink = MemorySink(stream.store("out"))
    return batch(rows, sinks=[sink], name="stream", checkpoint=stream.url)


def test_a_decided_batch_is_finished_and_done(
    stream: Stream, request: pytest.FixtureRequest
) -> None:
    """As it was decided, whatever its input is by now."""
    failpoints.arm("after-decide@0=raise")
    with pytest.raises(failpoints.FailpointHit):
        a_batch(stream).start().await_end()
    failpoints.arm("")
    stream.add([{"x": 3}])
    request.getfixturevalue("finish")
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            a_batch(stream).start()
        assert ended.value.code == 0
        assert sorted(row["x"] for row in stream.seen("out")) == [1, 2]
    assert (stream.checkpoint / "commits" / "0").exists()


def test_an_undecided_batch_is_left_as_it_is(
    stream: Stream, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("finish")
    with pytest.raises(SystemExit):
        a_batch(stream).start()
    assert stream.seen("out") == []
    assert stream.newest() is None
