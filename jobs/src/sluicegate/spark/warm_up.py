"""Warms up a session that waits: it loads and compiles what the first epoch of a job needs."""

from __future__ import annotations

import importlib
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate.errors import SluicegateError
from sluicegate.sinks.contract import Sink
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.outputs import Output, Outputs, arrow_schema, frame_of
from sluicegate.spark.query_execution import RunningExecution, kafka_options
from sluicegate.spark.staging import RESULT_TYPE, TASKS_PROPERTY, StageOrder, stage_with

log = logging.getLogger("sluicegate.run")

_OUTPUT: Final = "warm-up"

_NO_EPOCH: Final = -1
"""No epoch of a job has this number."""

_RECENT_MS: Final = 1000
"""The age of the oldest Kafka records that are read; a busy topic has some, and never many."""

_OF_POSITIONS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
"""Options of a Kafka source, one of which says where it starts."""


class Described(Protocol):
    """A job that was built: what a standby loads the code for (`sluicegate.spark.epochs.EpochsWriter`)."""

    @property
    def outputs(self) -> Mapping[str, Output]:
        """Its streaming frames."""

    @property
    def sinks(self) -> Sequence[Sink]:
        """Its sinks."""


Built = TypeVar("Built", bound=Described)


def prepare_standby(spark: SparkSession, build: Callable[[], Built]) -> Built | None:
    """Build a job and warm up the session for it; return the job, None if it cannot be built now.

    A failure does not end the standby: its first epoch then loads what is missing, and an error in
    the job is raised again when the standby takes over.
    """
    writer = None
    try:
        writer = build()
        warm_up(spark, writer)
    except (SluicegateError, PySparkException) as error:
        log.warning("the standby is not warm, so a takeover takes longer: %s", error)
    return writer


def warm_up(spark: SparkSession, writer: Described) -> None:
    """Stage a small stateful epoch, so that the first epoch of a job need not load the same code.

    It writes nothing, and neither opens nor reads a checkpoint or a sink of the job: the checkpoint
    is temporary and the staged rows are dropped. Its input is generated; from each Kafka topic of
    the job it also reads the records of the last second, which loads Spark's Kafka clients.
    """
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).load()
    values = rows.select("value")
    for output in writer.outputs.values():
        for options in kafka_options(frame_of(output)):
            values = values.union(_recent(spark, options))
    counts = values.groupBy("value").count()
    schema = arrow_schema(counts)
    sink = MemorySink("warm-up").bind(schema, lineage="warm-up", apply_timeout_s=1.0)
    outputs = Outputs({_OUTPUT: counts}, {_OUTPUT: [sink]})
    # the workers import the modules of the job's sinks when they receive their first order
    modules = sorted({type(sink).__module__ for sink in writer.sinks})
    with tempfile.TemporaryDirectory() as folder:
        stage = stage_with(StageOrder(folder, _NO_EPOCH, "warm-up", 1 << 20, (sink,), None))

        def load_and_stage(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for module in modules:
                importlib.import_module(module)
            yield from stage(batches)

        def run(batch: DataFrame, _epoch: int) -> None:
            execution = RunningExecution(spark)
            execution.prime_sources()
            staged = outputs.rows_to_stage(batch, execution.late_watermark_ms())
            # the share of a task in the inline bytes; it need not be exact here
            spark.sparkContext.setLocalProperty(TASKS_PROPERTY, "1")
            staged.mapInArrow(load_and_stage, RESULT_TYPE).toArrow()
            execution.kafka_sources()
            execution.rows_in()

        query = (
            outputs.stream()
            .writeStream.outputMode("update")
            .option("checkpointLocation", folder)
            .trigger(once=True)
            .foreachBatch(run)
            .start()
        )
        query.awaitTermination()


def _recent(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return a number from each record that a Kafka source received in the last second."""
    since_ms = int(time.time() * 1000) - _RECENT_MS
    positions = {name.lower() for name in _OF_POSITIONS}
    others = {name: value for name, value in options.items() if name.lower() not in positions}
    return (
        spark.readStream.format("kafka")
        .options(**others)
        .option("startingTimestamp", since_ms)
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
        .select(F.col("offset").alias("value"))
    )
