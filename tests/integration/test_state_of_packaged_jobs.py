"""Checkpoints of packaged jobs outlive a release: Spark refuses a state whose schema has changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from infra.local_services import Services
from sluicegate.packaged_job import JobSettings
from sluicegate.spark.epochs import EpochsWriter
from sluicegate.spark.outputs import frame_of
from sluicegate_jobs.ip_count import job as ip_count
from sluicegate_jobs.orders import stream as orders_stream
from sluicegate_jobs.word_count import job as word_count

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COUNT, TIME = ("bigint", False), ("timestamp", True)


@pytest.mark.parametrize(
    ("build", "kind", "output", "columns"),
    [
        pytest.param(
            ip_count.build,
            ip_count.IpCountSettings,
            "counts",
            [TIME, ("string", True), TIME, COUNT],
            id="ip_count",
        ),
        pytest.param(
            orders_stream.build,
            orders_stream.OrdersStreamSettings,
            "windows",
            [TIME, ("string", True), COUNT, ("decimal(12,2)", True), ("decimal(12,2)", True)],
            id="orders_stream",
        ),
        pytest.param(
            word_count.build,
            word_count.WordCountSettings,
            "counts",
            [("string", False), COUNT],
            id="word_count",
        ),
    ],
)
def test_the_columns_of_an_aggregation_keep_their_types_and_may_be_null_as_before(
    spark: SparkSession,
    services: Services,
    build: Callable[[SparkSession, JobSettings], EpochsWriter],
    kind: Callable[..., JobSettings],
    output: str,
    columns: list[tuple[str, bool]],
) -> None:
    """A word that may be null, by an explode_outer, made the checkpoints of word_count unusable."""
    source = f"state-of-{output}-{uuid.uuid4().hex[:8]}"
    services.kafka.create_topic(source, 1)
    settings = kind(kafka=services.kafka.bootstrap, source=source)
    fields = frame_of(build(spark, settings).outputs[output]).schema.fields
    assert [(field.dataType.simpleString(), field.nullable) for field in fields] == columns
