"""Outputs of rows that another output drops: their plan runs only if a row was dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.spark.filters import where_computed
from sluicegate.spark.java_classes import has_class
from sluicegate.spark.late_rows import LateRows
from sluicegate.spark.query_execution import JavaObject

_READER: Final = "dev.sluicegate.spark.DroppedRows"
"""Reads the plan of an epoch; source in jobs/java."""

_MARK: Final = "__kept_if_dropped"
"""The filter column by which it knows such an output in a plan."""


@dataclass(frozen=True)
class DroppedRows:
    """An output each of whose rows another output drops, such as broken lines and late ones.

    Its plan scans and parses the source in addition to that of the other output. So it runs only in
    epochs in which another output may have dropped a row, by Spark's own metrics. A row that no other
    output drops may be lost: in epochs in which nothing else is dropped.

    Rows that need state (`dropDuplicates`, an aggregation, a join of streams), a watermark of their own
    or a shuffle have a plan that runs in each epoch.

    Args:
        of: the rows; each of them is dropped by a filter of another output, or is late there.
    """

    of: DataFrame | LateRows


def marked(rows: DataFrame) -> DataFrame:
    """Return the rows of such an output with a filter by which it is known in a plan; it keeps all."""
    return where_computed(rows, F.expr("true"), _MARK)


def can_be_split(spark: SparkSession) -> bool:
    """Return whether the session has our Java classes; without them every output runs in each epoch."""
    return has_class(spark, _READER)


def split(batch: DataFrame, plan: JavaObject) -> tuple[DataFrame, DataFrame] | None:
    """Return an epoch's rows of the other outputs, and those of the outputs of dropped rows.

    Args:
        batch: the rows of the foreachBatch callback.
        plan: the physical plan of the epoch.

    Returns:
        None if the plan does not have both kinds of outputs, if an output of dropped rows has state, a
        watermark or a shuffle, or if it is not known which rows are which, as in an epoch without input:
        then all rows are to be staged together.
    """
    spark = batch.sparkSession
    halves = _reader(spark).split(batch._jdf, plan)  # noqa: SLF001 - no public API
    if not halves:
        return None
    others, dropped = (DataFrame(half, spark) for half in halves)
    return others, dropped


def may_have_dropped(spark: SparkSession, plan: JavaObject) -> bool:
    """Return whether an output may have dropped a row in the plan of an epoch; the plan has run."""
    return bool(_reader(spark).possible(plan))


def _reader(spark: SparkSession) -> JavaObject:
    jvm: JavaObject = spark._jvm  # noqa: SLF001 - no public API
    return jvm.dev.sluicegate.spark.DroppedRows
