"""two_sinks: sums each epoch by key into Kafka and MySQL, in a way that makes any repeat visible.

Each record in Kafka has a new UUID, so an epoch that ran twice would appear as two different ones; the
table adds up the sums, so a repeated sum would be too high. An epoch must add its own sums, not running
totals: rows are shuffled by key, and each task sums the epoch's rows of a key (`sum_by_key`) without
state for the next epoch. `--fail-mysql` makes the MySQL sink fail (`failing_sink`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink, epochs
from sluicegate.packaged_job import JobSettings, with_default
from sluicegate.settings.schema import option
from sluicegate.sinks.contract import Sink
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.json_objects import parse_json
from sluicegate_jobs.dead_letters import dead_letter_sink
from sluicegate_jobs.kafka_source import dead_letter, kafka_source
from sluicegate_jobs.targets import create_table, create_topics
from sluicegate_jobs.two_sinks.failing_sink import APPLY, NEVER, STAGE, FailingSink

KEYS = ("slot_time", "key1", "key2", "key3")
INPUT = "time string, key1 string, key2 string, key3 string, indicate bigint"
TIME = r"^(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z\z"
ROWS_BEFORE_FAILURE = 10
LARGEST = (1 << 31) - 1

TABLE_COLUMNS = """
  slot_time DATETIME NOT NULL,
  key1 VARCHAR(64) NOT NULL,
  key2 VARCHAR(64) NOT NULL,
  key3 VARCHAR(64) NOT NULL,
  indicate BIGINT NOT NULL,
  PRIMARY KEY (slot_time, key1, key2, key3)
"""


@dataclass(frozen=True)
class TwoSinksSettings(JobSettings):
    """The settings of two_sinks."""

    checkpoint: str = with_default("checkpoint", "checkpoints/two_sinks")
    interval: str = with_default("interval", "5 seconds")
    source: str = option(
        "two_sinks_source", "Topic of JSON objects with time, key1, key2, key3 and indicate."
    )
    topic: str = option("two_sinks_sink", "Topic of the sums of each epoch.")
    table: str = option("two_step_compare", "Table that adds up the sums.")
    dead_letters: str = option(
        "two_sinks_dead_letters", "Topic of dead letters: records that cannot be summed."
    )
    fail_mysql: str = option(
        NEVER,
        "Phase in which the MySQL sink fails after its 10th row. stage: phase one. apply: phase two.",
        choices=(NEVER, STAGE, APPLY),
    )


def build(spark: SparkSession, settings: TwoSinksSettings) -> EpochsWriter:
    """Return the job, not started."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    read, valid = read_rows(source)
    rows = read.where(valid).select("slot_time", "row.key1", "row.key2", "row.key3", "row.indicate")
    columns = ", ".join(f"{name} {kind}" for name, kind in rows.dtypes)
    sums = rows.repartition(*KEYS).mapInArrow(sum_by_key, f"id string, {columns}")
    reason = F.when(F.col("value").isNull(), "empty: the record has no value").otherwise(
        "unparsed: not a JSON object with time, keys without a space at the end, and an indicate of 32 bits"
    )
    letters = read.where(~valid).select(dead_letter(reason))
    mysql: Sink = MySQLSink(
        settings.table,
        keys=KEYS,
        on_conflict="add",
        columns=(*KEYS, "indicate"),
        of="sums",
        url=settings.mysql,
        statement_rows=10_000 if settings.fail_mysql == NEVER else ROWS_BEFORE_FAILURE,
    )
    if settings.fail_mysql != NEVER:
        mysql = FailingSink(mysql, settings.fail_mysql, ROWS_BEFORE_FAILURE)
    return epochs(
        {"sums": sums, "dead_letters": letters},
        name="two_sinks",
        sinks=[KafkaSink(settings.topic, key="key1", of="sums", bootstrap=settings.kafka), mysql],
        dead_letters=dead_letter_sink(settings, settings.dead_letters),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def read_rows(records: DataFrame) -> tuple[DataFrame, Column]:
    """Return records with the columns row and slot_time, and whether a record can be summed."""
    parsed = records.withColumn("row", parse_json(records.sparkSession, F.col("value"), INPUT))
    time = F.when(F.col("row.time").rlike(TIME), F.try_to_timestamp("row.time"))
    read = parsed.withColumn("slot_time", F.date_trunc("minute", time))
    # so that no sum leaves the 64 bits of its column
    valid = F.col("slot_time").isNotNull() & F.col("row.indicate").between(-LARGEST - 1, LARGEST)
    for name in ("key1", "key2", "key3"):
        key = F.col(f"row.{name}")
        # the table's collation ignores spaces at the end, so two keys would share a row
        valid = valid & key.isNotNull() & ~key.endswith(" ")
    return read, F.coalesce(valid, F.lit(False))  # noqa: FBT003 - a literal


def sum_by_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum a task's rows by key, and give each sum a random UUID.

    The rows of a key are in one task, so a key has one sum per epoch. Holds one row per key in memory.
    """
    sums: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        combined = rows if sums is None else pa.concat_tables([sums, rows])
        summed = combined.group_by(list(KEYS)).aggregate([("indicate", "sum")])
        sums = summed.rename_columns([*KEYS, "indicate"]).cast(rows.schema)
    if sums is not None and sums.num_rows:
        ids = pa.array([str(uuid.uuid4()) for _ in range(sums.num_rows)], pa.string())
        yield from sums.add_column(0, "id", ids).combine_chunks().to_batches()


def create_targets(settings: TwoSinksSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    created = create_topics(settings.kafka, topics)
    return created + create_table(settings.mysql, settings.table, TABLE_COLUMNS)
