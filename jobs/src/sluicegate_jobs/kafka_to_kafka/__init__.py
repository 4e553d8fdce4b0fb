"""The job kafka_to_kafka: a topic copied to another one."""

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.generators import into_source, keyed_messages
from sluicegate_jobs.kafka_to_kafka import job, verify

JOB = PackagedJob(
    name="kafka_to_kafka",
    summary="Copy a topic and transform its values. Preserves keys, headers, timestamps and order.",
    settings=job.KafkaToKafkaSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=into_source(keyed_messages),
)
