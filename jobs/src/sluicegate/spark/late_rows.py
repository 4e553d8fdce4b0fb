"""Outputs of late rows, which are few: the other rows leave the plan before their columns are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from sluicegate.spark.filters import where_computed
from sluicegate.spark.java_classes import has_class

_IS_LATE: Final = "dev.sluicegate.spark.IsLate"
"""A function of a row's window end; source in jobs/java."""

_FUNCTION: Final = "sluicegate_is_late"
"""Its name in a session."""

_WATERMARK: Final = "sluicegate.late.watermark"
"""The local property of a Spark job that IsLate compares with."""


@dataclass(frozen=True)
class LateRows:
    """An output of exactly the rows that a windowed aggregation drops as late.

    Spark counts late rows only after partial aggregation. Here each one is found by the same watermark
    that the epoch's aggregation uses, and can be sent to the dead letters.

    Args:
        rows: the streaming DataFrame, without its own watermark.
        window_end: the column with the end of the row's window; a row is late if it is not after the
            watermark.
        also: a condition for further rows to keep in every epoch, such as broken ones.
    """

    rows: DataFrame
    window_end: str
    also: Column | None = None

    def late_at(self) -> Column:
        """Return the watermark from which on a row counts as late; null keeps the row in every epoch."""
        end = F.col(self.window_end)
        return end if self.also is None else F.when(~F.coalesce(self.also, F.expr("false")), end)


def drops_timely_rows(spark: SparkSession) -> bool:
    """Return whether `without_timely_rows` drops rows: whether the session has our Java classes."""
    return has_class(spark, _IS_LATE)


def without_timely_rows(output: LateRows) -> DataFrame:
    """Return the rows without those that are not late by the watermark of `set_late_watermark`.

    A filter on the rows of the epoch comes too late: by then Spark has computed all columns of all
    rows, such as the JSON and the hash of a dead letter. It also has the watermark in its code, which
    is compiled again in each epoch then. A session without our classes keeps all rows here.
    """
    spark = output.rows.sparkSession
    if not drops_timely_rows(spark):
        return output.rows
    spark.udf.registerJavaFunction(_FUNCTION, _IS_LATE, BooleanType())
    late_at = F.unix_micros(output.late_at().cast("timestamp"))
    return where_computed(output.rows, F.call_function(_FUNCTION, late_at))


def set_late_watermark(spark: SparkSession, watermark_ms: int | None) -> None:
    """Set the watermark of the Spark jobs that this thread starts; None: no row is late."""
    value = "" if watermark_ms is None else str(watermark_ms)
    spark.sparkContext.setLocalProperty(_WATERMARK, value)
