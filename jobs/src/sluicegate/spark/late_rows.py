"""Outputs of late rows, which are few: the other rows leave the plan before their columns are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from sluicegate.spark.filters import KEPT, where_computed
from sluicegate.spark.java_classes import has_class

_IS_LATE: Final = "dev.sluicegate.spark.IsLate"
"""A function of a row's window end; source in jobs/java."""

_FUNCTION: Final = "sluicegate_is_late"
"""Its name in a session."""

_KEPT_IF_DROPPED: Final = "__kept_if_dropped"
"""The filter column of an output that is `only_dropped`; dev.sluicegate.spark.DroppedRows looks for it."""

_WATERMARK: Final = "sluicegate.late.watermark"
"""The local property of a Spark job that IsLate compares with."""

JavaObject = Any


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
        only_dropped: every row that is kept is missing in another output: it is late there, or a
            filter on the rows of the source drops it. The plan of `rows` then runs only in epochs in
            which another output has dropped a row; in the others it would scan the source in vain. If
            that is not true of a row, the row may be lost. Default: false.
    """

    rows: DataFrame
    window_end: str
    also: Column | None = None
    only_dropped: bool = False

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
    name = _KEPT_IF_DROPPED if output.only_dropped else KEPT
    return where_computed(output.rows, F.call_function(_FUNCTION, late_at), name)


def split_off_dropped(batch: DataFrame, plan: JavaObject) -> tuple[DataFrame, DataFrame] | None:
    """Return an epoch's rows of the other outputs, and those of the outputs of dropped rows.

    Args:
        batch: the rows of the foreachBatch callback.
        plan: the physical plan of the epoch.

    Returns:
        None if the plan does not have both kinds of outputs, or if it is not known which rows are
        which, as in an epoch without input: then all rows are to be staged together.
    """
    spark = batch.sparkSession
    halves = _dropped_rows(spark).split(batch._jdf, plan)  # noqa: SLF001 - no public API
    if not halves:
        return None
    others, dropped = (DataFrame(half, spark) for half in halves)
    return others, dropped


def may_have_dropped(spark: SparkSession, plan: JavaObject) -> bool:
    """Return whether an output may have dropped a row in the plan of an epoch; the plan has run."""
    return bool(_dropped_rows(spark).possible(plan))


def _dropped_rows(spark: SparkSession) -> JavaObject:
    jvm: JavaObject = spark._jvm  # noqa: SLF001 - no public API
    return jvm.dev.sluicegate.spark.DroppedRows


def set_late_watermark(spark: SparkSession, watermark_ms: int | None) -> None:
    """Set the watermark of the Spark jobs that this thread starts; None: no row is late."""
    value = "" if watermark_ms is None else str(watermark_ms)
    spark.sparkContext.setLocalProperty(_WATERMARK, value)
