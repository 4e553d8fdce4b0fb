"""city_lookup: enriches ids from a Redis hash (id -> city), into Kafka and MySQL.

A record without an id, an id that is not in the hash and, with `on_timeout=dead-letter`, an id without
an answer become dead letters with their source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink, RedisHash, epochs, lookup, refuse
from sluicegate.lookups.settings import Cache, Mode, OnTimeout
from sluicegate.packaged_job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.sinks.reserved_columns import REFUSED
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.kafka_source import dead_letter, kafka_source
from sluicegate_jobs.targets import create_table, create_topics

TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  source_partition INT NOT NULL,
  source_offset BIGINT NOT NULL,
  id VARCHAR(190) NOT NULL,
  city VARCHAR(190) NOT NULL,
  PRIMARY KEY (source_partition, source_offset)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""


@dataclass(frozen=True)
class CityLookupSettings(JobSettings):
    """The settings of city_lookup."""

    checkpoint: str = option(
        "checkpoints/city_lookup",
        "Checkpoint of this job alone: a path, file:///path or s3://bucket/prefix.",
    )
    source: str = option("city_lookup_source", "Topic of ids, in the values of records.")
    topic: str = option("city_lookup_sink", "Topic of ids with their cities.")
    table: str = option("city_lookup", "Table of ids with their cities.")
    dead_letters: str = option(
        "city_lookup_dead_letters", "Topic of dead letters: ids without a city."
    )
    cities: str = option("cities", "Redis hash from id to city.")
    mode: str = option(
        "ordered",
        "ordered: batches keep their order. unordered: batches continue as they are answered.",
        choices=get_args(Mode),
    )
    capacity: int = option(
        8, "Maximum number of concurrent requests of a task; the total is this times the tasks."
    )
    answer_timeout_s: float = option(1.0, "Time limit in seconds of each attempt of a request.")
    retries: int = option(2, "Number of retries of a request without an answer.")
    on_timeout: str = option(
        "fail",
        "What happens to a row without an answer: null, fail or dead-letter.",
        choices=get_args(OnTimeout),
    )
    cache_rows: int = option(
        0, "Maximum number of answers that each worker caches. 0 disables the cache."
    )
    cache_ttl_s: float = option(60.0, "Lifetime in seconds of a cached answer.")
    redis: str = option("", "Redis server, as redis://host:port/db. If empty: $SLUICEGATE_REDIS.")


def build(spark: SparkSession, settings: CityLookupSettings) -> EpochsWriter:
    """Return the job, not started."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    ids = source.withColumn("id", F.trim(F.make_valid_utf8(F.col("value").cast("string"))))
    blank = F.coalesce("id", F.lit("")) == ""
    cities = _look_up(refuse(ids, F.when(blank, "empty: the record has no id")), settings)
    unknown = F.concat(F.lit(f"unknown: hash {settings.cities} has no id "), "id")
    reason = F.coalesce(REFUSED, F.when(F.col("city").isNull(), unknown))
    rows = cities.withColumn(REFUSED, F.when(reason.isNotNull(), dead_letter(reason))).select(
        F.col("partition").alias("source_partition"),
        F.col("offset").alias("source_offset"),
        "id",
        "city",
        REFUSED,
    )
    kafka, mysql = settings.kafka or None, settings.mysql or None
    return epochs(
        rows,
        name="city_lookup",
        sinks=[
            KafkaSink(settings.topic, key="id", bootstrap=kafka, trace_headers=True),
            MySQLSink(settings.table, keys=("source_partition", "source_offset"), url=mysql),
        ],
        dead_letters=KafkaSink(settings.dead_letters, value="value", bootstrap=kafka),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def _look_up(ids: DataFrame, settings: CityLookupSettings) -> DataFrame:
    rows = settings.cache_rows
    return lookup(
        ids,
        key="id",
        client=RedisHash(settings.cities, url=settings.redis or None),
        into="city",
        mode=cast("Mode", settings.mode),
        capacity=settings.capacity,
        timeout_s=settings.answer_timeout_s,
        retries=settings.retries,
        on_timeout=cast("OnTimeout", settings.on_timeout),
        cache=Cache(rows, settings.cache_ttl_s) if rows else None,
    )


def create_targets(settings: CityLookupSettings) -> list[str]:
    """Create missing topics and tables; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    created = create_topics(settings.kafka, topics, partitions=4)
    return created + create_table(settings.mysql, settings.table, TABLE)
