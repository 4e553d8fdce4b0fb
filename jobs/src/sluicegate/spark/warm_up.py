"""Warms up a session that waits: it loads what the first epoch of a job would load."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def warm_up(spark: SparkSession) -> None:
    """Run a small query with state and Python workers, so that the first epoch of a job need not load them.

    It reads and writes nothing of the job: its input is generated and its checkpoint temporary.
    """

    def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from batches

    def count(batch: DataFrame, _epoch: int) -> None:
        batch.mapInArrow(same, "value bigint, count bigint").collect()

    with tempfile.TemporaryDirectory() as folder:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).load()
        query = (
            rows.groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .option("checkpointLocation", folder)
            .trigger(once=True)
            .foreachBatch(count)
            .start()
        )
        query.awaitTermination()
