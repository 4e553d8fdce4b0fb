"""city_lookup: ids enriched from a Redis hash (id -> city), into Kafka and MySQL.

Wiring only. A record without an id, an id that the hash does not have, and (with
`on_timeout=dead-letter`) one that got no answer go to the dead letters, with where they came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink, RedisHash, epochs, lookup, refuse
from sluicegate.cli.job import PackagedJob
from sluicegate.lookups.settings import Cache, Mode, OnTimeout
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.outputs import REFUSED
from sluicegate.spark.query import EpochsWriter
from sluicegate_jobs.city_lookup_verify import verify
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
        "checkpoints/city_lookup", "checkpoint of this job alone: a path or s3://…"
    )
    source: str = option("city_lookup_source", "topic of ids, the record's value")
    topic: str = option("city_lookup_sink", "topic of ids with their cities")
    table: str = option("city_lookup", "table of ids with their cities")
    dead_letters: str = option("city_lookup_dead_letters", "topic of ids without a city")
    cities: str = option("cities", "Redis hash: id -> city")
    mode: str = option(
        "ordered",
        "ordered, or unordered: batches leave as they are answered",
        choices=get_args(Mode),
    )
    capacity: int = option(8, "requests in flight in a task; the load is this x tasks")
    answer_timeout_s: float = option(1.0, "how long a request may take, each try")
    retries: int = option(2, "further tries of a request without an answer")
    on_timeout: str = option("fail", "what no answer means", choices=get_args(OnTimeout))
    cache_rows: int = option(0, "answers that each worker remembers; 0: none")
    cache_ttl_s: float = option(60.0, "for how long they are remembered")
    redis: str = option("", "redis://host:port/db; default $SLUICEGATE_REDIS")


def build(spark: SparkSession, settings: CityLookupSettings) -> EpochsWriter:
    """Return the job, not started."""
    source = kafka_source(spark, settings.source, settings.kafka, settings.max_records)
    ids = source.withColumn("id", F.trim(F.make_valid_utf8(F.col("value").cast("string"))))
    blank = F.coalesce("id", F.lit("")) == ""
    found = _found(refuse(ids, F.when(blank, "empty: the record holds no id")), settings)
    unknown = F.concat(F.lit(f"unknown: hash {settings.cities} has no id "), "id")
    reason = F.coalesce(REFUSED, F.when(F.col("city").isNull(), unknown))
    rows = found.withColumn(REFUSED, F.when(reason.isNotNull(), dead_letter(reason))).select(
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


def _found(ids: DataFrame, settings: CityLookupSettings) -> DataFrame:
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
    """Create the topics and the table where they are missing; return what was created."""
    topics = (settings.source, settings.topic, settings.dead_letters)
    made = create_topics(settings.kafka, topics, partitions=4)
    return made + create_table(settings.mysql, settings.table, TABLE)


JOB = PackagedJob(
    name="city_lookup",
    summary="ids enriched from a Redis hash (id to city), into Kafka and MySQL",
    settings=CityLookupSettings,
    build=build,
    create_targets=create_targets,
    verify=verify,
)
