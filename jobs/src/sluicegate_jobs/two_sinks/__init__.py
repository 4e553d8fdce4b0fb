"""The job two_sinks: sums by key into Kafka and MySQL."""

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.generators import indicators, into_source
from sluicegate_jobs.two_sinks import job, verify

JOB = PackagedJob(
    name="two_sinks",
    summary="Sum the rows of each epoch by key, in a way that makes any repeat visible in Kafka and MySQL.",
    settings=job.TwoSinksSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=into_source(indicators),
)
