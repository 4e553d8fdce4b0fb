"""The job word_count: a running count of each word."""

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.generators import into_source, text_lines
from sluicegate_jobs.word_count import job, verify

JOB = PackagedJob(
    name="word_count",
    summary="Keep a running count of each word of a topic. Writes to MySQL.",
    settings=job.WordCountSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=into_source(text_lines),
)
