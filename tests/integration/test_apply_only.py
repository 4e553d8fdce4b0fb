"""Apply-only runs of a stream and of a batch in this process: they apply decided epochs and start no query.

Killed drivers are in tests/robustness/scenarios/test_driver_process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluicegate import failpoints
from sluicegate.errors import RecordOfAnotherJob
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import shutdown
from sluicegate.spark.batch import BatchWriter, batch
from tests.robustness.traffic.memory_streams import Stream, failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

FIRST_EPOCH, SECOND_EPOCH = [{"x": 1}], [{"x": 2}]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """Return a stream of two epochs."""
    stream = Stream(spark, tmp_path, "x long")
    stream.add(FIRST_EPOCH, SECOND_EPOCH)
    yield stream
    shutdown.reset()


@pytest.fixture
def apply_only_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the mode; a test requests it once the epoch is decided."""
    monkeypatch.setenv("SLUICEGATE_MODE", "apply-only")


def run(stream: Stream, store: str = "out", *, overlap: bool = False) -> None:
    settings = EpochSettings(interval=AVAILABLE_NOW, overlap=overlap)
    stream.run(stream.rows, [MemorySink(stream.store(store), id="out")], settings=settings)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_decided_epoch_is_applied_and_no_other_begins(
    stream: Stream, request: pytest.FixtureRequest, *, overlap: bool
) -> None:
    with failing_at("after-decide@0"):
        run(stream, overlap=overlap)
    assert stream.committed_rows("out") == []
    request.getfixturevalue("apply_only_mode")
    for _ in range(2):
        with pytest.raises(SystemExit) as exit_info:
            run(stream, overlap=overlap)
        assert exit_info.value.code == 0
        assert stream.committed_rows("out") == FIRST_EPOCH
    assert stream.newest() == 0


def test_a_stream_continues_exactly_once_after_an_apply_only_run(
    stream: Stream, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing_at("after-decide@0"):
        run(stream)
    request.getfixturevalue("apply_only_mode")
    with pytest.raises(SystemExit):
        run(stream)
    monkeypatch.delenv("SLUICEGATE_MODE")
    run(stream)
    assert stream.committed_rows("out") == [*FIRST_EPOCH, *SECOND_EPOCH]


def test_an_epoch_decided_for_another_sink_is_not_applied(
    stream: Stream, request: pytest.FixtureRequest
) -> None:
    with failing_at("after-decide@0"):
        run(stream)
    request.getfixturevalue("apply_only_mode")
    with pytest.raises(RecordOfAnotherJob):
        run(stream, "elsewhere")
    assert stream.committed_rows("elsewhere") == []


def create_batch(stream: Stream) -> BatchWriter:
    rows = stream.spark.read.schema("x long").json(str(stream.folder / "source"))
    sink = MemorySink(stream.store("out"))
    return batch(rows, sinks=[sink], name="stream", checkpoint=stream.url)


def test_a_decided_batch_is_applied_and_complete(
    stream: Stream, request: pytest.FixtureRequest
) -> None:
    """Its rows are those of the decision, even if the input has changed since."""
    with failing_at("after-decide@0", failpoints.FailpointHit):
        create_batch(stream).start().await_end()
    stream.add([{"x": 3}])
    request.getfixturevalue("apply_only_mode")
    for _ in range(2):
        with pytest.raises(SystemExit) as exit_info:
            create_batch(stream).start()
        assert exit_info.value.code == 0
        assert sorted(row["x"] for row in stream.committed_rows("out")) == [1, 2]
    assert (stream.checkpoint / "commits" / "0").exists()


def test_an_undecided_batch_is_not_applied(stream: Stream, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("apply_only_mode")
    with pytest.raises(SystemExit):
        create_batch(stream).start()
    assert stream.committed_rows("out") == []
    assert stream.newest() is None
