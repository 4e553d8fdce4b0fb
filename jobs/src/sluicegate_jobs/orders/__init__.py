"""The jobs orders_stream and orders_batch: totals of orders by user."""

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.generators import into_source, orders
from sluicegate_jobs.orders import batch, batch_verify, stream, stream_verify

STREAM_JOB = PackagedJob(
    name="orders_stream",
    summary="Aggregate orders by user in 5-second windows, in streaming SQL. Writes to Kafka and MySQL.",
    settings=stream.OrdersStreamSettings,
    build=stream.build,
    create_targets=stream.create_targets,
    verify=stream_verify.verify,
    generate=into_source(orders),
)


BATCH_JOB = PackagedJob(
    name="orders_batch",
    summary="Aggregate a folder of orders by user, in batch SQL. Writes to MySQL.",
    settings=batch.OrdersBatchSettings,
    build=batch.build,
    create_targets=batch.create_targets,
    verify=batch_verify.verify,
    generate=batch.generate,
)
