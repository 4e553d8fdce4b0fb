"""restart_demo: copies a topic with a source that fails on every 5th record, to show restart strategies.

Every 5th record of a partition fails when it is first read. With `--failures=once` it then passes: the
checkpoint remembers the failure in a create-once object (`restart_demo/<partition>-<offset>`). With
`always` it fails every time, until the strategy gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, epochs
from sluicegate.packaged_job import JobSettings, PackagedJob, with_default
from sluicegate.settings.schema import option
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.storage.object_store import open_store
from sluicegate_jobs.generators import into_source, numbered
from sluicegate_jobs.kafka_source import kafka_source
from sluicegate_jobs.targets import create_topics

EVERY = 5
ONCE, ALWAYS = "once", "always"
COLUMNS = "key binary, value binary, partition int, offset long"


class SourceFailure(Exception):
    """Raised by the source."""


@dataclass(frozen=True)
class RestartDemoSettings(JobSettings):
    """The settings of restart_demo."""

    checkpoint: str = with_default("checkpoint", "checkpoints/restart_demo")
    interval: str = with_default("interval", "1 second")
    max_records: int = with_default("max_records", 10)
    source: str = option("restart_demo_source", "Topic to read.")
    topic: str = option("restart_demo_sink", "Topic to write.")
    failures: str = option(
        ONCE, "How often each 5th record fails: once or always.", choices=(ONCE, ALWAYS)
    )


def build(spark: SparkSession, settings: RestartDemoSettings) -> EpochsWriter:
    """Return the job, not started."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    rows = source.select("key", "value", "partition", "offset").mapInArrow(
        failing(settings.checkpoint, settings.failures), COLUMNS
    )
    return epochs(
        rows.select("key", "value", F.col("partition").alias("from")),
        name="restart_demo",
        sinks=[KafkaSink(settings.topic, key="key", value="value", bootstrap=settings.kafka)],
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def failing(
    checkpoint: str, failures: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the step after the source that fails on every 5th record."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        objects = open_store(checkpoint)
        for batch in batches:
            positions = zip(
                *(batch.column(n).to_pylist() for n in ("partition", "offset")), strict=True
            )
            for partition, offset in positions:
                if offset % EVERY != EVERY - 1:
                    continue
                name = f"restart_demo/{partition}-{offset}"
                if failures == ALWAYS or objects.create(name, b"failed once"):
                    raise SourceFailure(f"the source fails at record {partition}@{offset}")
            yield batch

    return check


def create_targets(settings: RestartDemoSettings) -> list[str]:
    """Create missing topics; return what was created."""
    return create_topics(settings.kafka, (settings.source, settings.topic), partitions=1)


JOB = PackagedJob(
    name="restart_demo",
    summary="Copy a topic with a source that fails on every 5th record, to show restart strategies.",
    settings=RestartDemoSettings,
    build=build,
    create_targets=create_targets,
    generate=into_source(numbered),
)
