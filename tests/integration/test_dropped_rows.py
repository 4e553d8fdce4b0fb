"""An output of dropped rows runs only in epochs in which another output has dropped a row.

Each call of `run` is one epoch of ten rows, ten seconds after the last one: the numbers from 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import DroppedRows, LateRows
from sluicegate.errors import StageFailed
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.filters import where_computed
from tests.robustness.traffic.memory_streams import Stream, failing_at

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EPOCHS = 3
LATE, BROKEN = 25, 13
"""One row of the third epoch is late, and one of the second is broken."""


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Return a stream without files: only its checkpoint and stores are used."""
    return Stream(spark, tmp_path, "")


def numbers(stream: Stream, late: int = LATE, broken: int = BROKEN) -> DataFrame:
    """Return the rows with `at`, their time, and `broken`; the last epochs have what is dropped."""
    rate = stream.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    rows = rate.option("advanceMillisPerBatch", 10_000).option("numPartitions", 2).load()
    hour_before = F.col("timestamp") - F.expr("interval 1 hour")
    at = F.when(F.col("value") == late, hour_before).otherwise(F.col("timestamp"))
    return rows.select("value", at.alias("at"), (F.col("value") == broken).alias("broken"))


def counted(rows: DataFrame) -> DataFrame:
    """Return the number of rows of each window of five seconds."""
    grouped = rows.withWatermark("at", "1 second").groupBy(F.window("at", "5 seconds"))
    return grouped.agg(F.count("*").alias("rows")).select("rows")


def dropped(rows: DataFrame, evaluated: Column | None = None) -> DroppedRows:
    """Return the late and the broken rows; `evaluated` is evaluated for each row of the source."""
    also = F.col("broken") if evaluated is None else F.col("broken") | evaluated
    windows = rows.select("value", "broken", F.window("at", "5 seconds").end.alias("end"))
    return DroppedRows(LateRows(windows, "end", also))


def run(stream: Stream, main: DataFrame, letters: DroppedRows) -> None:
    """Run one epoch, and apply it."""
    sinks = [MemorySink(stream.store(name), of=name) for name in ("main", "dropped")]
    stream.run({"main": main, "dropped": letters}, sinks)


def letters_of(stream: Stream) -> list[int]:
    """Return the numbers of the rows that reached the store of dropped rows."""
    return sorted(int(str(row["value"])) for row in stream.committed_rows("dropped"))


def test_late_and_broken_rows_reach_their_sink_from_whichever_epoch_they_are_in(
    stream: Stream,
) -> None:
    """An aggregation drops the late row, its filter the broken one; the first epoch has neither."""
    rows = numbers(stream)
    for _ in range(EPOCHS):
        run(stream, counted(rows.where(~F.col("broken"))), dropped(rows))
    assert letters_of(stream) == [BROKEN, LATE]
    windows = {str(row) for row in stream.committed_rows("main")}
    assert windows == {"{'rows': 10}", "{'rows': 9}"}


def test_dropped_rows_that_need_state_run_in_each_epoch(stream: Stream) -> None:
    """Each of the first two epochs writes its state; the third drops a row that is no duplicate."""
    rows = numbers(stream, late=BROKEN, broken=LATE)
    broken = rows.where("broken").dropDuplicates(["value"]).select("value")
    for _ in range(EPOCHS):
        run(stream, rows.where(~F.col("broken")).select("value"), DroppedRows(broken))
    assert letters_of(stream) == [LATE]


def test_the_plan_of_dropped_rows_does_not_run_if_no_row_was_dropped(stream: Stream) -> None:
    """Its condition raises an error in each row, and so in each epoch that evaluates it."""
    rows = numbers(stream, late=BROKEN, broken=BROKEN)
    raised = F.raise_error(F.lit("evaluated")).cast("boolean")
    main = counted(rows.where(~F.col("broken")))
    run(stream, main, dropped(rows, raised))
    with pytest.raises(StageFailed, match="evaluated"):  # the second epoch has the broken row
        run(stream, main, dropped(rows, raised))
    assert stream.newest() == 0
    run(stream, main, dropped(rows))
    assert letters_of(stream) == [BROKEN]


def test_broken_rows_need_no_window_and_the_other_output_may_parse_in_python(
    stream: Stream,
) -> None:
    """The condition raises an error in each epoch that evaluates it."""
    rows = numbers(stream, late=BROKEN)
    raised = F.raise_error(F.lit("evaluated")).cast("boolean")
    parsed = rows.withColumn("parsed", F.udf(lambda value: value, "bigint")("value"))
    main = counted(where_computed(parsed, ~F.col("broken") & F.col("parsed").isNotNull()))
    run(stream, main, DroppedRows(rows.where(F.col("broken") | raised)))
    run(stream, main, DroppedRows(rows.where("broken")))
    assert letters_of(stream) == [BROKEN]


def _through_python(rows: DataFrame) -> DataFrame:
    def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pa.compute.invert(batch.column("broken")))

    return rows.mapInArrow(whole, rows.schema)


@pytest.mark.parametrize(
    "main",
    [
        pytest.param(lambda rows: counted(_through_python(rows)), id="a-python-function"),
        pytest.param(
            lambda rows: counted(rows).where("rows >= 10"), id="a-filter-after-the-aggregation"
        ),
        pytest.param(
            lambda rows: counted(
                rows.withColumn("each", F.explode(F.expr("if(broken, array(), array(1))")))
            ),
            id="an-explode",
        ),
        pytest.param(
            lambda rows: counted(
                rows.withColumn("each", F.explode_outer(F.array("value"))).where("not broken")
            ),
            id="a-filter-of-exploded-rows",
        ),
        pytest.param(
            lambda rows: rows.withWatermark("at", "1 second").dropDuplicates(["broken"]),
            id="a-deduplication",
        ),
    ],
)
def test_dropped_rows_are_found_where_it_cannot_be_seen_whether_the_other_output_dropped_any(
    stream: Stream, main: Callable[[DataFrame], DataFrame]
) -> None:
    """Such operators do not tell how many rows they drop, so the plan runs in each epoch."""
    rows = numbers(stream, late=BROKEN)
    for _ in range(2):
        run(stream, main(rows), dropped(rows))
    assert letters_of(stream) == [BROKEN]


def test_dropped_rows_of_an_epoch_that_failed_before_its_decision_are_staged_again(
    stream: Stream,
) -> None:
    """The two Spark jobs of the epoch belong to one attempt."""
    rows = numbers(stream, late=BROKEN)
    main = counted(rows.where(~F.col("broken")))
    run(stream, main, dropped(rows))
    with failing_at("before-decide@1"):
        run(stream, main, dropped(rows))
    assert letters_of(stream) == []
    run(stream, main, dropped(rows))
    assert letters_of(stream) == [BROKEN]
