"""The jobs orders_stream and orders_batch: totals of orders by user."""

from __future__ import annotations

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.orders import batch, batch_verify, stream, stream_verify

STREAM_JOB = PackagedJob(
    name="orders_stream",
    summary="streaming SQL: count, max, min of orders by user in 5-second windows, into Kafka and MySQL",
    settings=stream.OrdersStreamSettings,
    build=stream.build,
    create_targets=stream.create_targets,
    verify=stream_verify.verify,
    generate=stream.generate,
)


BATCH_JOB = PackagedJob(
    name="orders_batch",
    summary="batch SQL: total, max, min, count of a folder of orders by user, into MySQL",
    settings=batch.OrdersBatchSettings,
    build=batch.build,
    create_targets=batch.create_targets,
    verify=batch_verify.verify,
    generate=batch.generate,
)
