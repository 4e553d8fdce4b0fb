"""The job two_sinks: sums by key into Kafka and MySQL."""

from __future__ import annotations

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.two_sinks import job, verify

JOB = PackagedJob(
    name="two_sinks",
    summary="sums by key into Kafka with new UUIDs and added up in MySQL: any repeat is visible",
    settings=job.TwoSinksSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=job.generate,
)
