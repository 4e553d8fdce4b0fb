"""The effect of epoch settings on a running query: delivery, tolerated failures, state, cancel.

In this process, on files and memory. Real drivers that are killed at each delivery guarantee are in
tests/robustness.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import AVAILABLE_NOW, EpochSettings, epochs, failpoints
from sluicegate.errors import (
    EpochUnfinished,
    PartTooLarge,
    RecordOfAnotherJob,
    SettingsInvalid,
    StageFailed,
)
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.pacing import Pace
from sluicegate.storage.driver_start import FOLDER, read_start
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.memory_streams import Stream, failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EPOCHS = 4


@pytest.fixture
def ids(spark: SparkSession, tmp_path: Path) -> Stream:
    """Return a stream of four epochs with two ids each; the tens digit is the epoch."""
    stream = Stream(spark, tmp_path, "id long")
    stream.add(*[[{"id": epoch * 10 + i} for i in range(2)] for epoch in range(EPOCHS)])
    return stream


def id_counts(stream: Stream) -> Counter[object]:
    """Return how often each id is in the sink."""
    return Counter(row["id"] for row in stream.committed_rows("out"))


EACH_ONCE = Counter(epoch * 10 + i for epoch in range(EPOCHS) for i in range(2))
THIRD_EPOCH = Counter((20, 21))


@pytest.mark.parametrize(
    ("delivery", "point", "expected"),
    [
        ("exactly-once", "after-commit", EACH_ONCE),
        ("exactly-once", "before-apply", EACH_ONCE),
        ("at-least-once", "after-commit", EACH_ONCE + THIRD_EPOCH),
        ("at-least-once", "before-apply", EACH_ONCE),
        ("at-most-once", "after-commit", EACH_ONCE),
        ("at-most-once", "before-apply", EACH_ONCE - THIRD_EPOCH),
        ("at-most-once", "before-decide", EACH_ONCE),
    ],
)
def test_a_crash_repeats_or_loses_only_what_the_guarantee_allows(
    ids: Stream, delivery: str, point: str, expected: Counter[int]
) -> None:
    """A driver that dies in its third epoch repeats or loses only that epoch, as the guarantee allows."""
    settings = EpochSettings(interval=AVAILABLE_NOW, delivery=delivery)
    sinks = [MemorySink(ids.store("out"))]
    with failing_at(f"{point}@2"):
        ids.run(ids.rows, sinks, settings=settings)
    ids.run(ids.rows, sinks, settings=settings)
    assert id_counts(ids) == expected


def test_each_driver_records_what_it_runs_with(ids: Stream) -> None:
    for timeout_s in (61.0, 62.0):
        settings = EpochSettings(AVAILABLE_NOW, apply_timeout_s=timeout_s)
        ids.run(ids.rows, [MemorySink(ids.store("out"))], settings=settings)
    store = open_store(ids.url)
    starts = [read_start(store, name) for name in sorted(store.entries(FOLDER))]
    recorded = [start.settings for start in starts if start]
    assert [each["apply-timeout-s"] for each in recorded] == ["61.0", "62.0"]
    assert recorded[0]["spark.sql.shuffle.partitions"] == "2"
    differing = {name for name, value in recorded[0].items() if recorded[1][name] != value}
    assert differing == {"apply-timeout-s"}, "nothing else is another for each driver"


def test_a_checkpoint_rejects_another_delivery_guarantee(ids: Stream) -> None:
    """The markers would mean something else."""
    sinks = [MemorySink(ids.store("out"))]
    with failing_at("after-decide@1"):
        ids.run(ids.rows, sinks, settings=EpochSettings(AVAILABLE_NOW, delivery="at-least-once"))
    with pytest.raises(
        RecordOfAnotherJob, match="decided with delivery at-least-once, but the job has exactly"
    ):
        ids.run(ids.rows, sinks)


def _fail(
    batches: Iterable[pa.RecordBatch], *, folder: str, times: int
) -> Iterator[pa.RecordBatch]:
    """Fail a number of times at the third epoch; failures are counted in files."""
    for batch in batches:
        if 20 in batch.column("id").to_pylist():
            failures = len(list(Path(folder).iterdir()))
            if failures < times:
                (Path(folder) / str(failures)).touch()
                raise OSError("a source that is unavailable for a moment")
        yield batch


def rows_failing(stream: Stream, times: int) -> DataFrame:
    """Return the rows of a plan that fails this often."""
    folder = stream.folder / "failures"
    folder.mkdir()
    return stream.rows.mapInArrow(partial(_fail, folder=str(folder), times=times), "id long")


def test_tolerated_failures_do_not_end_the_query(ids: Stream) -> None:
    settings = EpochSettings(AVAILABLE_NOW, tolerated_failures=2)
    ids.run(rows_failing(ids, times=2), [MemorySink(ids.store("out"))], settings=settings)
    assert id_counts(ids) == EACH_ONCE


def test_one_failure_too_many_ends_the_query(ids: Stream) -> None:
    settings = EpochSettings(AVAILABLE_NOW, tolerated_failures=1)
    with pytest.raises(StageFailed, match="epoch 2"):
        ids.run(rows_failing(ids, times=2), [MemorySink(ids.store("out"))], settings=settings)
    assert id_counts(ids) == Counter({0: 1, 1: 1, 10: 1, 11: 1})


@pytest.mark.parametrize(("parts", "max_part_bytes"), [(1, 10_000), (2, 600)])
def test_rule_10_a_part_that_is_too_large_is_refused_before_its_decision(
    spark: SparkSession, tmp_path: Path, parts: int, max_part_bytes: int
) -> None:
    """Spark has fixed the epoch's input; a higher limit or more parts let the same epoch succeed."""
    stream = Stream(spark, tmp_path, "id long")
    stream.add([{"id": i} for i in range(100)])
    sink = MemorySink(stream.store("out"), key="id")
    settings = EpochSettings(AVAILABLE_NOW, max_part_bytes=600)
    with pytest.raises(PartTooLarge, match=r"part 0 of sink .*, and max-part-bytes is 600"):
        stream.run(stream.rows, [sink], settings=settings)
    assert StoredEpochLog(open_store(stream.url)).newest() is None
    sink = dataclasses.replace(sink, parts=parts)
    settings = EpochSettings(AVAILABLE_NOW, max_part_bytes=max_part_bytes)
    stream.run(stream.rows, [sink], settings=settings)
    assert id_counts(stream) == Counter(range(100))


def totals(stream: Stream) -> DataFrame:
    """Return a running count by the last digit."""
    return stream.rows.groupBy((F.col("id") % 10).alias("digit")).agg(F.count("*").alias("n"))


@pytest.mark.parametrize("backend", ["rocksdb", "hdfs"])
@pytest.mark.parametrize("point", ["after-stage", "after-decide"])
def test_both_state_backends_survive_a_crash(ids: Stream, backend: str, point: str) -> None:
    """A running count is the same in both, even if a driver dies."""
    settings = EpochSettings(AVAILABLE_NOW, state_backend=backend)
    sinks = [MemorySink(ids.store("out"))]
    with failing_at(f"{point}@2"):
        ids.run(totals(ids), sinks, settings=settings)
    ids.run(totals(ids), sinks, settings=settings)
    counted = sorted((row["digit"], row["n"]) for row in ids.committed_rows("out"))
    assert counted == [(digit, n) for digit in range(2) for n in range(1, EPOCHS + 1)]


def test_tolerated_failures_leave_state_exact(ids: Stream) -> None:
    """An attempt that failed after writing its state is repeated from the state before it."""
    grouped = rows_failing(ids, times=1).groupBy((F.col("id") % 10).alias("digit"))
    frame = grouped.agg(F.count("*").alias("n"))
    settings = EpochSettings(AVAILABLE_NOW, tolerated_failures=1)
    ids.run(frame, [MemorySink(ids.store("out"))], settings=settings)
    newest = {row["digit"]: row["n"] for row in ids.committed_rows("out")}
    assert newest == {0: EPOCHS, 1: EPOCHS}


def test_a_checkpoint_rejects_another_state_backend(ids: Stream) -> None:
    """Spark would silently continue with the old one."""
    sinks = [MemorySink(ids.store("out"))]
    ids.run(totals(ids), sinks, settings=EpochSettings(AVAILABLE_NOW, state_backend="hdfs"))
    with pytest.raises(
        SettingsInvalid, match="state in hdfs, but the job has state-backend rocksdb"
    ):
        ids.run(totals(ids), sinks)


@pytest.mark.parametrize("on_cancel", ["retain", "delete"])
def test_a_cancel_retains_or_deletes_the_checkpoint(ids: Stream, on_cancel: str) -> None:
    """The checkpoint of a canceled job is retained, or deleted with everything in it."""
    query = epochs(
        ids.rows,
        sinks=[MemorySink(ids.store("out"))],
        name="stream",
        checkpoint=str(ids.checkpoint),
        settings=EpochSettings("100 milliseconds", min_pause_ms=0, on_cancel=on_cancel),
    ).start()
    query.cancel()
    assert ids.checkpoint.exists() == (on_cancel == "retain")


def test_a_cancel_retains_a_checkpoint_with_a_decided_epoch_that_no_sink_has(
    ids: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is canceled before it could apply what an earlier driver had decided."""
    sinks = [MemorySink(ids.store("out"))]
    with failing_at("after-decide@1"):
        ids.run(ids.rows, sinks)
    monkeypatch.setattr(Pace, "may_start", lambda _self: False)
    settings = EpochSettings(AVAILABLE_NOW, on_cancel="delete")
    query = epochs(
        ids.rows, sinks=sinks, name="stream", checkpoint=str(ids.checkpoint), settings=settings
    ).start()
    with pytest.raises(EpochUnfinished, match="epoch 1 is decided"):
        query.cancel()
    assert ids.checkpoint.exists()


def test_a_stop_is_not_a_cancel(ids: Stream) -> None:
    """`stop` never deletes, because a pod that moves to another node is stopped."""
    query = epochs(
        ids.rows,
        sinks=[MemorySink(ids.store("out"))],
        name="stream",
        checkpoint=str(ids.checkpoint),
        settings=EpochSettings("100 milliseconds", on_cancel="delete"),
    ).start()
    query.stop()
    assert ids.checkpoint.exists()


def test_an_apply_that_fails_ends_the_job_while_the_next_epoch_is_staged(
    ids: Stream, tmp_path: Path
) -> None:
    """The error is that of the apply: what stopped it may hold up the stage for minutes."""
    staging = tmp_path / "staging"

    def stage_slowly(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            if batch.column(0)[0].as_py() >= 10:
                staging.touch()
                time.sleep(30)
            yield batch

    def fail_while_staging() -> None:
        while not staging.exists():
            time.sleep(0.05)
        raise ValueError("the sink has failed")

    failpoints.hook("fail-while-staging", fail_while_staging)
    failpoints.arm("before-apply@0=fail-while-staging")
    started_s = time.monotonic()
    try:
        with pytest.raises(StageFailed, match="the sink has failed"):
            ids.run(ids.rows.mapInArrow(stage_slowly, "id long"), [MemorySink(ids.store("out"))])
    finally:
        failpoints.arm("")
    assert time.monotonic() - started_s < 25
