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
from sluicegate.packaged_job import JobSettings, with_default
from sluicegate.settings.schema import option
from sluicegate.sinks.reserved_columns import REFUSED, SOURCE
from sluicegate.spark.epochs import EpochsWriter
from sluicegate_jobs.kafka_source import dead_letter, kafka_source, record_source
from sluicegate_jobs.targets import create_table, create_topics

TABLE_COLUMNS = """
  source_partition INT NOT NULL,
  source_offset BIGINT NOT NULL,
  id VARCHAR(190) NOT NULL,
  city VARCHAR(190) NOT NULL,
  PRIMARY KEY (source_partition, source_offset)
"""


@dataclass(frozen=True)
class CityLookupSettings(JobSettings):
    """The settings of city_lookup."""

    checkpoint: str = with_default("checkpoint", "checkpoints/city_lookup")
    source: str = option("city_lookup_source", "Topic whose record values are ids.")
    topic: str = option("city_lookup_sink", "Topic of ids with their cities.")
    table: str = option("city_lookup", "Table of ids with their cities.")
    dead_letters: str = option(
        "city_lookup_dead_letters", "Topic of dead letters: ids without a city."
    )
    cities: str = option("cities", "Redis hash that maps ids to cities.")
    mode: str = option(
        "ordered",
        "Order of the results. ordered: as in the source. unordered: batches are passed on as soon as "
        "they are answered.",
        choices=get_args(Mode),
    )
    capacity: int = option(8, "Maximum number of concurrent requests per task.")
    answer_timeout_s: float = option(1.0, "Time limit in seconds of each attempt at a request.")
    retries: int = option(2, "Number of retries of a request that is not answered.")
    on_timeout: str = option(
        "fail",
        "What happens to a row whose request is not answered. null: its id counts as unknown. fail: the "
        "epoch fails. dead-letter: it becomes a dead letter.",
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
        record_source().alias(SOURCE),
    )
    kafka = settings.kafka
    return epochs(
        rows,
        name="city_lookup",
        sinks=[
            KafkaSink(settings.topic, key="id", bootstrap=kafka, trace_headers=True),
            MySQLSink(
                settings.table, keys=("source_partition", "source_offset"), url=settings.mysql
            ),
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
        client=RedisHash(settings.cities, url=settings.redis),
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
    created = create_topics(settings.kafka, topics)
    return created + create_table(settings.mysql, settings.table, TABLE_COLUMNS)
