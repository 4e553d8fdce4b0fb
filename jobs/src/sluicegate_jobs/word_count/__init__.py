"""The job word_count: a running count of each word."""

from __future__ import annotations

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.word_count import job, verify

JOB = PackagedJob(
    name="word_count",
    summary="a running count of each word of a topic, into MySQL",
    settings=job.WordCountSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
    generate=job.generate,
)
