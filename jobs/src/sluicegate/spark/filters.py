"""Filters on columns that are expensive to compute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_KEPT: Final = "__kept"


def where_computed(rows: DataFrame, condition: Column, name: str = _KEPT) -> DataFrame:
    """Return the rows for which a condition is true, like `where`, but compute its columns once.

    Spark moves a filter below the projection that computes its columns. So it computes them in the
    filter, each time that the condition uses them, and then again for the rows that are left. It moves
    no filter below a projection that is not deterministic (SPARK-13473), as one with the number of the
    partition is in Spark's eyes.

    Args:
        rows: the rows with the columns that the condition uses.
        condition: true for the rows to keep.
        name: the column that the plan filters by; `rows` has none of that name.
    """
    kept = condition & (F.spark_partition_id() >= 0)
    return rows.withColumn(name, kept).where(name).drop(name)
