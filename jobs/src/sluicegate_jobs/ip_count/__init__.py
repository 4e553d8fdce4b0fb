"""The job ip_count: hits per IP address and window."""

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.generators import access_lines, into_source
from sluicegate_jobs.ip_count import job, verify

JOB = PackagedJob(
    name="ip_count",
    summary="Count the hits per IP address of an access log in windows. Writes to Kafka and MySQL.",
    settings=job.IpCountSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=into_source(access_lines),
)
