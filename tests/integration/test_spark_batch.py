"""`batch` writes a static DataFrame exactly once. In this process, on files and memory.

A driver that is killed in a batch is in tests/robustness/scenarios/test_jobs_batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluicegate import batch, failpoints
from sluicegate.errors import ExecutorStopping, InputChanged, SettingsInvalid
from sluicegate.sinks.memory import MemorySink, committed
from sluicegate.spark.batch import BatchRun
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.memory_streams import failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@dataclass
class Batch:
    """A batch from a folder into its own sink."""

    spark: SparkSession
    folder: Path

    def add(self, name: str, *lines: str) -> None:
        (self.folder / "some input").mkdir(exist_ok=True)
        (self.folder / "some input" / name).write_text("".join(f"{line}\n" for line in lines))

    def start(self) -> BatchRun:
        rows = self.spark.read.text(str(self.folder / "some input"))
        return batch(
            rows,
            name="b",
            sinks=[MemorySink(str(self.folder))],
            checkpoint=str(self.folder / "checkpoint"),
        ).start()

    def run(self) -> None:
        assert self.start().await_end(60)

    def rows(self) -> list[str]:
        return sorted(str(row["value"]) for row in committed(str(self.folder)))


@pytest.fixture
def batch_job(spark: SparkSession, tmp_path: Path) -> Batch:
    """Return a batch over two files with blanks in their names."""
    new_batch = Batch(spark, tmp_path)
    new_batch.add("file 1", "a", "b")
    new_batch.add("file 2", "c")
    return new_batch


def test_a_second_run_changes_nothing(batch_job: Batch) -> None:
    batch_job.run()
    batch_job.run()
    assert batch_job.rows() == ["a", "b", "c"]


@pytest.mark.parametrize("point", ["after-stage", "after-decide", "before-done"])
def test_the_next_run_completes_a_batch_that_failed_anywhere(batch_job: Batch, point: str) -> None:
    with failing_at(point, failpoints.FailpointHit):
        batch_job.run()
    batch_job.run()
    assert batch_job.rows() == ["a", "b", "c"]


def test_a_batch_whose_executor_stops_is_run_again_at_once(batch_job: Batch) -> None:
    raised: list[ExecutorStopping] = []

    def stop_once() -> None:
        if not raised:
            raised.append(ExecutorStopping("its executor is stopping"))
            raise raised[0]

    failpoints.hook("stop-once", stop_once)
    failpoints.arm("before-stage=stop-once")
    try:
        batch_job.run()
    finally:
        failpoints.arm("")
    assert raised
    assert batch_job.rows() == ["a", "b", "c"]


def test_a_decided_batch_is_applied_from_its_record_and_new_input_is_refused(
    batch_job: Batch,
) -> None:
    with failing_at("after-decide", failpoints.FailpointHit):
        batch_job.run()
    batch_job.add("file 3", "d")
    with pytest.raises(InputChanged, match="not what it was"):
        batch_job.run()
    assert batch_job.rows() == ["a", "b", "c"]


def test_an_undecided_batch_whose_input_has_changed_is_refused(batch_job: Batch) -> None:
    with failing_at("after-stage", failpoints.FailpointHit):
        batch_job.run()
    batch_job.add("file 1", "a", "b", "d")
    with pytest.raises(InputChanged, match="undecided"):
        batch_job.run()
    assert batch_job.rows() == []


def test_an_input_that_changes_while_it_is_read_is_not_decided(batch_job: Batch) -> None:
    failpoints.hook("add-a-line", lambda: batch_job.add("file 2", "c", "d"))
    failpoints.arm("before-stage=add-a-line")
    try:
        with pytest.raises(InputChanged, match="while the batch read it"):
            batch_job.run()
    finally:
        failpoints.arm("")
    assert StoredEpochLog(open_store(str(batch_job.folder / "checkpoint"))).newest() is None


def test_a_batch_without_files_must_name_its_input(batch_job: Batch, spark: SparkSession) -> None:
    """A batch without files needs a name for its input; another name is another input."""
    rows = spark.createDataFrame([("x",)], "value string")
    checkpoint = str(batch_job.folder / "checkpoint")
    sinks = [MemorySink(str(batch_job.folder))]
    without_inputs = batch(rows, name="b", sinks=sinks, checkpoint=checkpoint)
    with pytest.raises(SettingsInvalid, match="reads no files"):
        without_inputs.start().await_end(60)
    for inputs in ("monday", "monday"):
        with_inputs = batch(rows, name="b", sinks=sinks, checkpoint=checkpoint, inputs=inputs)
        assert with_inputs.start().await_end(60)
    assert batch_job.rows() == ["x"]
    with pytest.raises(InputChanged):
        batch(rows, name="b", sinks=sinks, checkpoint=checkpoint, inputs="tuesday").start().stop()


def test_a_batch_of_a_stream_is_refused(batch_job: Batch, spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    sinks, checkpoint = [MemorySink("no")], str(batch_job.folder / "checkpoint")
    with pytest.raises(SettingsInvalid, match="streaming"):
        batch(stream, name="b", sinks=sinks, checkpoint=checkpoint)
