"""`batch` writes a static DataFrame exactly once. In this process, on files and memory.

A driver that is killed in a batch is in tests/robustness/test_jobs_batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluicegate import EpochSettings, batch, failpoints
from sluicegate.errors import InputChanged, SettingsInvalid
from sluicegate.sinks.memory import MemorySink, committed
from sluicegate.spark.batch import BatchRun
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store

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


@contextmanager
def dying_at(failpoint: str) -> Iterator[None]:
    """Make a batch fail at a failpoint."""
    failpoints.arm(f"{failpoint}=raise")
    try:
        with pytest.raises(failpoints.FailpointHit):
            yield
    finally:
        failpoints.arm("")


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Batch:
    """Return a batch over two files with blanks in their names."""
    found = Batch(spark, tmp_path)
    found.add("file 1", "a", "b")
    found.add("file 2", "c")
    return found


def test_a_second_run_changes_nothing(made: Batch) -> None:
    made.run()
    made.run()
    assert made.rows() == ["a", "b", "c"]


@pytest.mark.parametrize("point", ["after-stage", "after-decide", "before-done"])
def test_the_next_run_completes_a_batch_that_failed_anywhere(made: Batch, point: str) -> None:
    with dying_at(point):
        made.run()
    made.run()
    assert made.rows() == ["a", "b", "c"]


def test_a_decided_batch_is_finished_from_its_record_and_a_new_input_refused(made: Batch) -> None:
    with dying_at("after-decide"):
        made.run()
    made.add("file 3", "d")
    with pytest.raises(InputChanged, match="not what it was"):
        made.run()
    assert made.rows() == ["a", "b", "c"]


def test_an_undecided_batch_whose_input_has_changed_is_refused(made: Batch) -> None:
    with dying_at("after-stage"):
        made.run()
    made.add("file 1", "a", "b", "d")
    with pytest.raises(InputChanged, match="undecided"):
        made.run()
    assert made.rows() == []


def test_an_input_that_changes_while_it_is_read_is_not_decided(made: Batch) -> None:
    failpoints.hook("add-a-line", lambda: made.add("file 2", "c", "d"))
    failpoints.arm("before-stage=add-a-line")
    try:
        with pytest.raises(InputChanged, match="while the batch read it"):
            made.run()
    finally:
        failpoints.arm("")
    assert StoredEpochLog(open_store(str(made.folder / "checkpoint"))).newest() is None


def test_a_batch_without_files_must_name_its_input(made: Batch, spark: SparkSession) -> None:
    """A batch without files needs a name for its input; another name is another input."""
    rows = spark.createDataFrame([("x",)], "value string")
    checkpoint = str(made.folder / "checkpoint")
    sinks = [MemorySink(str(made.folder))]
    unsaid = batch(rows, name="b", sinks=sinks, checkpoint=checkpoint)
    with pytest.raises(SettingsInvalid, match="reads no files"):
        unsaid.start().await_end(60)
    for inputs in ("monday", "monday"):
        said = batch(rows, name="b", sinks=sinks, checkpoint=checkpoint, inputs=inputs)
        assert said.start().await_end(60)
    assert made.rows() == ["x"]
    with pytest.raises(InputChanged):
        batch(rows, name="b", sinks=sinks, checkpoint=checkpoint, inputs="tuesday").start().stop()


def test_streams_and_overlap_are_refused(made: Batch, spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    sinks, checkpoint = [MemorySink("no")], str(made.folder / "checkpoint")
    with pytest.raises(SettingsInvalid, match="streaming"):
        batch(stream, name="b", sinks=sinks, checkpoint=checkpoint)
    rows = spark.createDataFrame([("x",)], "value string")
    ahead = EpochSettings(overlap=True)
    with pytest.raises(SettingsInvalid, match="overlap"):
        batch(rows, name="b", sinks=sinks, checkpoint=checkpoint, settings=ahead).start()
