"""The job ip_count: hits per IP address and window."""

from __future__ import annotations

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.ip_count import job, verify

JOB = PackagedJob(
    name="ip_count",
    summary="hits per IP address in 5-second windows of an access log, into Kafka and MySQL",
    settings=job.IpCountSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=job.generate,
)
