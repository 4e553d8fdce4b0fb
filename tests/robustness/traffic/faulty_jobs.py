"""Test-only jobs: `python -m tests.robustness.traffic.faulty_jobs NAME SETTINGS`, settings as JSON.

Spark's Python workers import this module, so the repository root must be on their path.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink, epochs, failpoints
from sluicegate.cli.supervisor import drive
from sluicegate.packaged_job import PackagedJob
from sluicegate.spark import session
from sluicegate_jobs.ip_count import job as ip_count_job
from sluicegate_jobs.ip_count.job import IpCountSettings
from sluicegate_jobs.kafka_source import kafka_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluicegate.sinks.contract import Sink
    from sluicegate.spark.epochs import EpochsWriter

Build = Callable[["SparkSession", IpCountSettings], "EpochsWriter"]

DIE_ONCE_VARIABLE = "SLUICEGATE_TESTS_DIE_ONCE"
"""Variable with the marker file by which `shuffled` kills an executor only once."""

SHUFFLE_PARTS = 6

_BLOCK_BYTES = 1 << 20
_HELD: list[object] = []


def main(name: str, settings: str) -> int:
    """Run a job by name."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    job_settings = IpCountSettings(**json.loads(settings))
    job = PackagedJob("ip_count", "", IpCountSettings, _JOBS[name], lambda _: [])
    return drive(job, job_settings)


def distributed(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """ip_count with all rows staged as files and applied by executors, in two parts per sink."""
    writer = ip_count_job.build(spark, settings)
    sinks = tuple(_in_parts(sink) for sink in writer.sinks)
    staged_settings = dataclasses.replace(writer.settings, inline_bytes=1)
    return dataclasses.replace(writer, sinks=sinks, settings=staged_settings)


def _in_parts(sink: Sink) -> Sink:
    assert isinstance(sink, KafkaSink | MySQLSink)
    return dataclasses.replace(sink, parts=2)


def out_of_memory(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """ip_count with an action 'fill-heap', after which the JVM has no memory left."""
    failpoints.hook("fill-heap", lambda: _fill_heap(spark))
    return ip_count_job.build(spark, settings)


def _fill_heap(spark: SparkSession) -> None:
    """Fill the heap and keep it full. The error is taken here, so that others meet the next one."""
    allocate = spark._jvm.java.nio.ByteBuffer.allocate  # type: ignore[union-attr]
    with suppress(Py4JError):
        while True:
            _HELD.append(allocate(_BLOCK_BYTES))


def copied(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """Copies each line unchanged, so that lost and repeated lines show."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    sink = KafkaSink(settings.topic, value="value", bootstrap=settings.kafka)
    return epochs(
        source.select("value"),
        name="ip_count",
        sinks=[sink],
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def copied_in_parts(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """`copied`, staged as files and applied by executors."""
    staged_settings = dataclasses.replace(settings, inline_bytes=1)
    return copied(spark, staged_settings)


def digests(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """Writes the SHA-256 of each record to MySQL."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    sink = MySQLSink(settings.table, keys=("id",), on_conflict="error", url=settings.mysql)
    return epochs(
        source.select(F.sha2("value", 256).alias("id")),
        name="ip_count",
        sinks=[sink],
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def shuffled(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """Shuffles rows by a key that changes whenever it is computed again."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    rows_with_keys = source.select(F.col("value").cast("string").alias("id")).mapInArrow(
        _look_up, "id string, k long"
    )
    rows = rows_with_keys.repartition(SHUFFLE_PARTS, "k").mapInArrow(_die_once, "id string")
    sink = KafkaSink(settings.topic, value="id", bootstrap=settings.kafka)
    return epochs(
        rows,
        name="ip_count",
        sinks=[sink],
        checkpoint=settings.checkpoint,
        trigger=settings.interval,
    )


def shuffled_unsafe(spark: SparkSession, settings: IpCountSettings) -> EpochsWriter:
    """`shuffled` without rule 6."""
    checksum = "spark.sql.shuffle.orderIndependentChecksum"
    disabled = {f"{checksum}.enabled": "false", f"{checksum}.enableFullRetryOnMismatch": "false"}
    session.RUNTIME_SETTINGS = {**session.RUNTIME_SETTINGS, **disabled}
    return shuffled(spark, settings)


def _look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = [random.randrange(1000) for _ in range(batch.num_rows)]
        yield pa.record_batch({"id": batch.column(0), "k": pa.array(keys, pa.int64())})


def _die_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kill the executor once, when most readers of the shuffle have finished."""
    context = TaskContext.get()
    if context is not None and context.partitionId() == SHUFFLE_PARTS - 2:
        try:
            Path(os.environ[DIE_ONCE_VARIABLE]).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(60)  # it dies with its executor
    for batch in batches:
        yield batch.select(["id"])


_JOBS: dict[str, Build] = {
    build.__name__: build
    for build in (
        distributed,
        out_of_memory,
        copied,
        copied_in_parts,
        digests,
        shuffled,
        shuffled_unsafe,
    )
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
