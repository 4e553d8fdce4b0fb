"""The job kafka_to_kafka: a topic copied to another one."""

from __future__ import annotations

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.kafka_to_kafka import job, verify

JOB = PackagedJob(
    name="kafka_to_kafka",
    summary="a topic copied with transformed values; keys, headers, times and order are preserved",
    settings=job.KafkaToKafkaSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=job.generate,
)
