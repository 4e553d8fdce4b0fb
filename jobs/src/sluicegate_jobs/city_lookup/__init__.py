"""The job city_lookup: ids enriched from Redis."""

from sluicegate.packaged_job import PackagedJob
from sluicegate_jobs.city_lookup import job, verify

JOB = PackagedJob(
    name="city_lookup",
    summary="Look up the city of each id in a Redis hash. Writes to Kafka and MySQL.",
    settings=job.CityLookupSettings,
    build=job.build,
    create_targets=job.create_targets,
    verify=verify.verify,
)
