"""What Spark makes of the expressions of a Kafka sink, whatever a row holds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sluicegate.sinks.kafka.expressions import INVALID_TIME, RowExpressions

pytestmark = [
    pytest.mark.integration,
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_a_partition_that_is_no_number_of_one_is_refused_and_ends_no_epoch(
    spark: SparkSession,
) -> None:
    """A cast that fails would end each epoch again; one that wraps would find a partition."""
    rows = pa.schema([("shard", pa.int64()), ("name", pa.string())])
    row = RowExpressions(rows, "t")
    data = spark.createDataFrame(
        [(2**40, "abc"), (1, "2"), (None, None)], "shard bigint, name string"
    )
    staged = data.selectExpr(row.partition("shard"), row.partition("name")).collect()
    assert [tuple(found) for found in staged] == [(2**40, -1), (1, 2), (None, None)]


def test_a_time_is_in_milliseconds_whatever_it_is_an_expression_of(spark: SparkSession) -> None:
    """As a number a time of Spark is in seconds, and such a record would be one of January 1970."""
    time, ms = "2026-01-07 12:00:00.123", 1_767_787_200_123
    data = spark.sql(
        f"select timestamp'{time}' as at, struct(timestamp'{time}' as `end`) as window, "
        f"{ms} as ms, cast({ms} as string) as text, "
        f"cast({ms} as double) as double, cast({ms}.5 as decimal(20, 2)) as decimal"
    )
    row = RowExpressions(pa.schema([(name, pa.null()) for name in data.columns]), "t")
    times = ("at", "window.end", "coalesce(at, now())")
    numbers = ("ms", "ms + 0", "text", "double", "double + 0", "decimal", "decimal + 0")
    texts = (*times, *numbers)
    (found,) = data.selectExpr(*map(row.timestamp, texts)).collect()
    assert list(found) == [ms] * len(texts)


def test_a_value_that_is_no_time_is_not_replaced_by_the_time_of_writing(
    spark: SparkSession,
) -> None:
    data = spark.sql(
        "select 'soon' as word, 1e300D as huge, double('NaN') as nan, date'2026-01-07' as day, "
        "cast(null as double) as missing"
    )
    row = RowExpressions(pa.schema([(name, pa.null()) for name in data.columns]), "t")
    (found,) = data.selectExpr(*map(row.timestamp, data.columns)).collect()
    assert list(found) == [INVALID_TIME] * 4 + [None]
