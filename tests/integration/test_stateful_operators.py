"""Every stateful operator of Spark gives the same rows with and without failures.

Each query runs twice over the same input: undisturbed, and with a failure before a decision (the
epoch is staged again) and one after a decision (the next start skips the plan of the epoch).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from sluicegate import epochs
from sluicegate.errors import FINAL_EXIT_CODES, QueryRefused, StageFailed
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.query_execution import RunningExecution, StateOperator
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.epoch_report import read_report
from sluicegate.storage.object_store import LocalObjectStore, open_store
from tests.robustness.traffic.memory_streams import Stream, failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Query = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for five files of hits, ten seconds apart."""
    return tmp_path_factory.mktemp("stateful")


def stream(spark: SparkSession, folder: Path, source: Path) -> Stream:
    """Return a stream with its own checkpoint over the same files."""
    folder.mkdir()
    (folder / "source").symlink_to(source / "source")
    return Stream(spark, folder, "ip string, at timestamp", files=5)


@pytest.fixture(scope="module", autouse=True)
def _files(spark: SparkSession, source: Path) -> None:
    written = Stream(spark, source, "ip string, at timestamp")
    for epoch in range(5):
        times = [epoch * 10 + second for second in (0, 3, 3, 7)]
        written.add([{"ip": f"10.0.0.{s % 2}", "at": f"2026-01-07 12:00:{s:02}"} for s in times])


def watermarked(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "5 seconds")


def drop_duplicates(rows: DataFrame) -> DataFrame:
    return watermarked(rows).dropDuplicates(["ip", "at"])


def drop_duplicates_within_watermark(rows: DataFrame) -> DataFrame:
    return watermarked(rows).dropDuplicatesWithinWatermark(["ip", "at"])


def session_windows(rows: DataFrame) -> DataFrame:
    grouped = watermarked(rows).groupBy(F.session_window("at", "4 seconds"), "ip")
    return grouped.count().select(F.col("session_window.start").alias("at"), "ip", "count")


def chained_aggregations(rows: DataFrame) -> DataFrame:
    first = watermarked(rows).groupBy(F.window("at", "5 seconds"), "ip").count()
    second = first.groupBy(F.window(F.window_time("window"), "10 seconds"))
    return second.agg(F.sum("count").alias("hits")).select(
        F.col("window.start").alias("at"), "hits"
    )


def stream_stream_join(rows: DataFrame) -> DataFrame:
    left = watermarked(rows.where("second(at) % 10 = 0"))
    right = rows.where("second(at) % 10 = 3").withWatermark("at", "5 seconds")
    right = right.select(F.expr("minute(at)").alias("other"), F.col("at").alias("then"))
    near = "minute(at) = other AND then BETWEEN at AND at + INTERVAL 5 SECONDS"
    return left.join(right, F.expr(near), "inner").select("ip", "at", "then")


def pandas_with_state(rows: DataFrame) -> DataFrame:
    def count(
        key: Any,  # noqa: ANN401 - as pyspark passes it
        batches: Iterator[pd.DataFrame],
        state: GroupState,
    ) -> Iterator[pd.DataFrame]:
        hits = (state.get[0] if state.exists else 0) + sum(len(batch) for batch in batches)
        state.update((hits,))
        yield pd.DataFrame({"ip": [key[0]], "hits": [hits]})

    grouped = rows.groupBy("ip")
    return grouped.applyInPandasWithState(
        count,  # type: ignore[arg-type]
        "ip string, hits long",
        "hits long",
        "update",
        GroupStateTimeout.NoTimeout,
    )


class CountHits(StatefulProcessor):
    """Counts the rows of a key in a value state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._hits = handle.getValueState("hits", StructType([StructField("hits", LongType())]))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ANN401 - as pyspark passes it
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ANN401, ARG002, N803 - as pyspark passes it
    ) -> Iterator[pd.DataFrame]:
        before = self._hits.get()
        hits = (before[0] if before else 0) + sum(len(batch) for batch in rows)
        self._hits.update((hits,))
        yield pd.DataFrame({"ip": [key[0]], "hits": [hits]})

    def close(self) -> None:
        """Nothing to release."""


def transform_with_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("ip").transformWithStateInPandas(
        CountHits(), "ip string, hits long", "Update", "None"
    )


QUERIES: dict[Query, tuple[str, int]] = {
    drop_duplicates: ("append", 1),
    drop_duplicates_within_watermark: ("append", 1),
    session_windows: ("append", 1),
    chained_aggregations: ("append", 2),
    stream_stream_join: ("append", 1),
    pandas_with_state: ("update", 1),
    transform_with_state: ("update", 1),
}
"""Output mode and number of stateful operators of each query."""


NOT_RUN_BY_PYSPARK = pytest.mark.xfail(
    strict=True,
    raises=StageFailed,
    reason="pyspark 4.1.2 cannot run applyInPandasWithState with pandas 2.3: its worker slices a "
    "batch by a float, in a query without Sluicegate too",
)


def assert_same_without_our_classes(execution: RunningExecution) -> None:
    """Check that a session without PlanNodes finds the same nodes, in the same order."""
    query = copy.copy(execution._query)
    assert query.nodes is not None, "the tests' session has our classes"
    query.nodes = None
    walked = RunningExecution(query)
    assert (walked._stateful, walked._watermarks) == (execution._stateful, execution._watermarks)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(
            query,
            id=query.__name__,
            marks=NOT_RUN_BY_PYSPARK if query is pandas_with_state else (),
        )
        for query in QUERIES
    ],
)
def test_failures_change_no_row(
    spark: SparkSession,
    tmp_path: Path,
    source: Path,
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mode, operators = QUERIES[query]
    found: list[list[StateOperator]] = []
    state_operators = RunningExecution.state_operators

    def recording(self: RunningExecution) -> list[StateOperator]:
        found.append(state_operators(self))
        assert_same_without_our_classes(self)
        return found[-1]

    monkeypatch.setattr(RunningExecution, "state_operators", recording)
    unsynced = unsynced_when_decided(monkeypatch)
    undisturbed = stream(spark, tmp_path / "undisturbed", source)
    undisturbed.run(
        query(undisturbed.rows), [MemorySink(undisturbed.store("out"))], output_mode=mode
    )
    assert undisturbed.committed_rows("out")
    assert {len(each) for each in found} == {operators}, "every epoch's state is checked (rule 9)"
    assert unsynced == [[]] * len(found), "a decision must not outlive its state in a power cut"

    failing = stream(spark, tmp_path / "failing", source)
    sinks = [MemorySink(failing.store("out"))]
    for failpoint in ("before-decide@1", f"after-decide@{failing.files - 1}"):
        with failing_at(failpoint):
            failing.run(query(failing.rows), sinks, output_mode=mode)
    failing.run(query(failing.rows), sinks, output_mode=mode)
    assert in_order(failing) == in_order(undisturbed)


def unsynced_when_decided(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that gets, for each decision, Spark's files that this driver did not sync."""
    synced: set[int] = set()
    found: list[list[str]] = []
    fsync, create = os.fsync, LocalObjectStore.create

    def syncing(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def deciding(self: LocalObjectStore, name: str, content: bytes) -> bool:
        if name.startswith("epochs/") and name.removeprefix("epochs/").isdecimal():
            root = Path(self.url)
            paths = [
                root / "metadata",
                *(root / "offsets").rglob("*"),
                *(root / "state").rglob("*"),
            ]
            # an empty directory says nothing
            written = [path for path in paths if path.is_file() or any(path.iterdir())]
            found.append([str(path) for path in written if path.stat().st_ino not in synced])
        return create(self, name, content)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(LocalObjectStore, "create", deciding)
    return found


def in_order(seen: Stream) -> list[list[str]]:
    """Return the rows as sorted text: within an epoch, partitions have no order."""
    return sorted([str(value) for value in row.values()] for row in seen.committed_rows("out"))


def test_a_query_that_spark_refuses_is_not_started_again(
    spark: SparkSession, tmp_path: Path, source: Path
) -> None:
    """The error says what to change; a supervisor would start it again without end."""
    refused = stream(spark, tmp_path / "refused", source)
    writer = epochs(
        stream_stream_join(refused.rows),
        sinks=[MemorySink(refused.store("out"))],
        name="stream",
        checkpoint=refused.url,
        output_mode="update",
    )
    service = Mock()
    with pytest.raises(QueryRefused, match="only in Append output mode") as raised:
        replace(writer, services=(service,)).start()
    assert raised.value.exit_code in FINAL_EXIT_CODES
    assert "output_mode" in raised.value.do
    assert refused.newest() is None
    service.stop.assert_called_once()


def test_each_record_counts_the_rows_of_the_state(
    spark: SparkSession, tmp_path: Path, source: Path
) -> None:
    """Which have a row for each of two addresses from the first epoch on."""
    counting = stream(spark, tmp_path / "counting", source)
    hits = counting.rows.groupBy("ip").count()
    counting.run(hits, [MemorySink(counting.store("out"))], output_mode="update")
    log = StoredEpochLog(open_store(str(counting.checkpoint)))
    records = [log.read(epoch) for epoch in range(counting.files)]
    assert [record and record.counts["state_rows"] for record in records] == [2] * counting.files


def test_each_report_times_what_spark_does_before_the_stage_and_for_the_state(
    spark: SparkSession, tmp_path: Path, source: Path
) -> None:
    """Spark counts the state's commits in whole milliseconds, so a fast epoch may have none."""
    timed = stream(spark, tmp_path / "timed", source)
    hits = timed.rows.groupBy("ip").count()
    timed.run(hits, [MemorySink(timed.store("out"))], output_mode="update")
    store = open_store(str(timed.checkpoint))
    state_ms = []
    for epoch in range(timed.files):
        report = read_report(store, epoch)
        assert report is not None
        steps = {step.name: step for step in report.steps if step.part is None}
        before = ["source", "offset log", "planning", "stage"]
        assert list(steps) == [*before, "state", "decide", "apply"]
        starts = [steps[name].start_ms for name in before]
        assert starts == sorted(starts)
        assert steps["planning"].duration_ms > 0
        assert 0 <= steps["state"].duration_ms <= steps["stage"].duration_ms
        state_ms.append(steps["state"].duration_ms)
    assert max(state_ms) > 0


def totals(rows: DataFrame, weight: int) -> DataFrame:
    """Return the sum of the hits of each address, each hit as heavy as this attempt finds it."""
    return rows.groupBy("ip").agg(F.sum(F.lit(weight)).alias("hits"))


def test_state_of_an_attempt_that_was_not_decided_is_not_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its snapshot is complete before it ends, as if Spark's maintenance had uploaded it."""
    weighted = Stream(spark, tmp_path, "ip string")
    weighted.add(*[[{"ip": "10.0.0.1"}]] * 3)
    sinks = [MemorySink(weighted.store("out"))]
    for changes in ("true", "false"):  # without changes, Spark writes a snapshot of each version
        spark.conf.set(CHANGES, changes)
        with failing_at("before-decide@1"):
            weighted.run(totals(weighted.rows, 1000), sinks)
    spark.conf.set(CHANGES, "true")
    written = {path.name for path in weighted.checkpoint.glob("state/0/*/2.*")}
    assert {"2.changelog", "2.zip"} <= written
    with failing_at("before-stage@2"):
        weighted.run(totals(weighted.rows, 1), sinks)
    weighted.run(totals(weighted.rows, 1), sinks)
    assert [row["hits"] for row in weighted.committed_rows("out")] == [1000, 1001, 1002]


CHANGES = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
