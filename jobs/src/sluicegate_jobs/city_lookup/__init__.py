"""The job city_lookup: ids enriched from Redis."""

from __future__ import annotations

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.city_lookup import job, verify

JOB = PackagedJob(
    name="city_lookup",
    summary="ids enriched from a Redis hash (id to city), into Kafka and MySQL",
    settings=job.CityLookupSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
)
